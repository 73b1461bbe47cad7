"""The checker of a history, which names the clause of docs/clauses.md that is broken.

Clauses are named as the first column of the page does, by section and word.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

What = TypeVar("What")


class Broken(AssertionError):
    """A history breaks a clause."""

    def __init__(self, clause: str, text: object) -> None:
        super().__init__(f"{clause}: {text}")
        self.clause = clause


def holds(condition: object, clause: str, text: object) -> None:
    """Raise `Broken` unless a condition holds."""
    if not condition:
        raise Broken(clause, text)


class Due(Generic[What]):
    """Entries that must come, in this order, each with the clause that asks for it."""

    def __init__(self, unasked: str) -> None:
        self._queue: deque[tuple[What, str]] = deque()
        self._unasked = unasked

    def add(self, what: What, clause: str) -> None:
        """Something must come."""
        self._queue.append((what, clause))

    @property
    def clause(self) -> str | None:
        """The clause that asks for the next one; None if nothing must come."""
        return self._queue[0][1] if self._queue else None

    def comes(self, found: What) -> None:
        """Something has come. Raises `Broken`."""
        holds(self._queue, self._unasked, f"{found} without a reason")
        expected, clause = self._queue.popleft()
        holds(found == expected, clause, f"{found} instead of {expected}")

    def is_nothing(self) -> None:
        """Everything has come. Raises `Broken`."""
        holds(not self._queue, self.clause or "", f"{self._queue} does not come")
