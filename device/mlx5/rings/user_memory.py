"""Memory of users (UMEM): lists of pages that later commands name for their rings and keys."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from struct import unpack_from
from typing import Final

from bluebridge.device.layout.mlx5.commands import Status
from bluebridge.device.layout.mlx5.user_contexts import PRIVILEGED, SHARED
from bluebridge.device.mlx5.numbers import Numbers, Table
from bluebridge.device.mlx5.settings.refused import Refused

MAX_MEMORIES: Final = 1 << 16
MAX_PAGES: Final = 1 << 21
"""Pages of all memory of users at most: 16 MiB of lists."""
PAGE_SHIFTS: Final = range(12, 44)
ADDRESS_BYTES: Final = 8


class Part(Enum):
    """A part of an object that can be in memory of a user."""

    RING = "ring"
    RECORD = "record"
    PAGES = "pages"


@dataclass(slots=True, eq=False)
class Memory:
    """Pages of `1 << shift` bytes as a command lists them; it begins `start` bytes into them.

    `owner` is the user context that made it, `objects` the number of those that are in it.
    """

    pages: bytes
    shift: int
    start: int
    owner: int
    objects: int = 0

    def address(self, offset: int, length: int) -> int:
        """Return the guest-physical address of `length` bytes that lie within one page.

        Raises `Refused` (BAD_PARAM).
        """
        place = self.start + offset
        page, inside = place >> self.shift, place & ((1 << self.shift) - 1)
        if ADDRESS_BYTES * page >= len(self.pages) or inside + length > 1 << self.shift:
            raise Refused(Status.BAD_PARAM, f"offset {offset:#x} of memory of a user")
        found = int(unpack_from(">Q", self.pages, ADDRESS_BYTES * page)[0])
        return (found & -1 << self.shift) + inside

    def pages_from(self, offset: int, shift: int, first: int, count: int) -> list[int]:
        """Return addresses of `count` pages of `1 << shift` bytes, from the `first` one on.

        Page 0 is that of the byte at `offset`. Raises `Refused` (BAD_PARAM) for pages beyond it, or
        larger than its own.
        """
        if not PAGE_SHIFTS[0] <= shift <= self.shift:
            raise Refused(Status.BAD_PARAM, f"pages of 2**{shift} bytes in memory of a user")
        base = ((self.start + offset) >> shift) - (self.start >> shift)
        inside = self.start & ((1 << shift) - 1)
        numbers = range(base + first, base + first + count)
        return [self.address((number << shift) - inside, 1 << shift) for number in numbers]


class UserMemory:
    """The memory of users of one adapter; `used` are the numbers that the present command names."""

    def __init__(self) -> None:
        self._memories: Table[Memory] = Table("UMEM", Numbers("UMEM", 1, MAX_MEMORIES))
        self._pages = 0
        self._uid = PRIVILEGED
        self.used: dict[Part, int] = {}

    def reset(self) -> None:
        """Forget all memory of users."""
        self._memories.reset()
        self._pages = 0
        self.used = {}

    def __len__(self) -> int:
        return len(self._memories)

    def begin(self, uid: int) -> None:
        """Begin with a command that is sent for a user context."""
        self._uid = uid
        self.used = {}

    def create(self, listed: bytes, count: int, shift: int, start: int) -> int:
        """Keep a list of `count` pages (CREATE_UMEM); returns its number.

        Raises `Refused`: BAD_PARAM, BAD_INP_LEN for a list that is too short, LIM_ERR.
        """
        if shift not in PAGE_SHIFTS or start >> shift:
            raise Refused(Status.BAD_PARAM, f"offset {start:#x} in pages of 2**{shift} bytes")
        if not 0 < count <= len(listed) // ADDRESS_BYTES:
            raise Refused(Status.BAD_INP_LEN, f"{len(listed) // ADDRESS_BYTES} pages of {count}")
        if self._pages + count > MAX_PAGES:
            raise Refused(Status.LIM_ERR, f"no room for {count} pages of users")
        memory = Memory(listed[: ADDRESS_BYTES * count], shift, start, self._uid)
        number = self._memories.add(memory)
        self._pages += count
        return number

    def destroy(self, number: int) -> None:
        """Forget a list; raises `Refused`: BAD_RES, BAD_RES_STATE with an object in its pages."""
        if self._memories.known(number).objects:
            raise Refused(Status.BAD_RES_STATE, f"an object is in umem {number:#x}")
        self._pages -= len(self._memories.remove(number).pages) // ADDRESS_BYTES

    def use(self, number: int, part: Part) -> Memory:
        """Return the memory that a command names for an object; raises `Refused` (BAD_RES)."""
        found = self._memories.known(number)
        if self._uid not in (PRIVILEGED, SHARED, found.owner):
            raise Refused(Status.BAD_RES, f"umem {number:#x} of another user context")
        self.used[part] = number
        return found

    def hold(self) -> dict[Part, int]:
        """Keep what the present command named until `release` is called with what this returns."""
        for number in self.used.values():
            self._memories[number].objects += 1
        return self.used

    def release(self, numbers: Iterable[int]) -> None:
        """Give up memory that an object was in."""
        for number in numbers:
            self._memories[number].objects -= 1
