"""The interface of a table of objects of one kind, for readers that change nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

Row = dict[str, Any]
"""One object as values that JSON has; bytes, such as contexts, are hexadecimal digits."""


class Table(Protocol):
    """The objects of one kind of one function. No method changes anything or reads guest memory."""

    def numbers(self) -> Sequence[int]:
        """Return the numbers for `row` of all objects, as they are at this moment."""

    def find(self, number: int) -> int | None:
        """Return the number for `row` of the object that software calls `number`, or None."""

    def row(self, number: int) -> Row | None:
        """Return the object, or None when it is gone."""


Tables = Mapping[str, Table]
"""The tables of one function, by the word that `bluebridge show` uses for their kind."""
