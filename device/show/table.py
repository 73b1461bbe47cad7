"""A table of objects of one kind, as those who only look see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

Row = dict[str, Any]
"""One object: values that JSON has. Bytes, such as contexts, are hexadecimal digits."""


class Table(Protocol):
    """The objects of one kind of one function. No method changes anything or reads guest memory."""

    def numbers(self) -> Sequence[int]:
        """The numbers by which `row` finds the objects; taken at once, however many there are."""

    def find(self, number: int) -> int | None:
        """The number for `row` of the object that software calls `number`; None without one."""

    def row(self, number: int) -> Row | None:
        """The object, or None when it is gone."""


class Health(Protocol):
    """Why a table may be empty."""

    @property
    def failed(self) -> bool:
        """Whether an internal error stopped the function."""

    @property
    def initialised(self) -> bool:
        """Whether a driver has started it."""


Tables = Mapping[str, Table]
"""The tables of one function, by the word of `bluebridge show` for their kind."""
