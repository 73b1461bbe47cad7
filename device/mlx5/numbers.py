"""Numbers that the adapter gives to objects of one kind, and tables of the objects."""

from __future__ import annotations

from collections import deque
from typing import TypeVar

from bluebridge.device.layout.mlx5.commands import Status
from bluebridge.device.mlx5.settings.refused import Refused

Made = TypeVar("Made")


class Numbers:
    """The numbers of one kind of object, `count` of them from `first` on.

    A number that was freed is given again as late as possible: what comes late for the old object
    then finds none.
    """

    def __init__(self, kind: str, first: int, count: int) -> None:
        self._kind = kind
        self._first = first
        self._count = count
        self.reset()

    def reset(self) -> None:
        """Free all numbers."""
        self._used: set[int] = set()
        self._freed: deque[int] = deque()
        self._next = self._first

    def __len__(self) -> int:
        return len(self._used)

    def __contains__(self, number: int) -> bool:
        return number in self._used

    def used(self) -> list[int]:
        """Return the numbers in use, sorted."""
        return sorted(self._used)

    def take(self) -> int:
        """Return a number that is not in use; raises `Refused` (LIM_ERR) without one."""
        if self._next < self._first + self._count:
            number = self._next
            self._next += 1
        elif self._freed:
            number = self._freed.popleft()
        else:
            raise Refused(Status.LIM_ERR, f"{self._count} objects of kind {self._kind} are in use")
        self._used.add(number)
        return number

    def check(self, number: int) -> None:
        """Raise `Refused` (BAD_RES) unless the number is in use."""
        if number not in self._used:
            raise Refused(Status.BAD_RES, f"{self._kind} {number:#x}")

    def free(self, number: int) -> None:
        """Free a number; raises `Refused` (BAD_RES) unless it is in use."""
        self.check(number)
        self._used.remove(number)
        self._freed.append(number)


class Table(dict[int, Made]):
    """The objects of one kind by number; other kinds may have numbers of the same range."""

    def __init__(self, kind: str, numbers: Numbers) -> None:
        super().__init__()
        self._kind = kind
        self._numbers = numbers

    def reset(self) -> None:
        """Forget all objects."""
        self.clear()
        self._numbers.reset()

    def known(self, number: int, otherwise: Status = Status.BAD_RES) -> Made:
        """Return an object; raises `Refused` (BAD_RES, or what is said)."""
        found = self.get(number)
        if found is None:
            raise Refused(otherwise, f"{self._kind} {number:#x}")
        return found

    def add(self, made: Made) -> int:
        """Take an object in and return its number; raises `Refused` (LIM_ERR)."""
        number = self._numbers.take()
        self[number] = made
        return number

    def remove(self, number: int) -> Made:
        """Take an object out; raises `Refused` (BAD_RES)."""
        found = self.known(number)
        del self[number]
        self._numbers.free(number)
        return found
