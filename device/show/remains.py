"""State of functions when their client was lost: a guest that panicked takes its QEMU with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from bluebridge.device.show.table import Row, Table, Tables

MOST_ROWS = 256
"""Objects of each kind that are kept; copying them takes a few milliseconds per function."""


class KeptTable:
    """A table of rows that were kept as they were."""

    def __init__(self, table: Table) -> None:
        numbers = islice(table.numbers(), MOST_ROWS)
        self._rows = [row for row in map(table.row, numbers) if row is not None]

    def numbers(self) -> Sequence[int]:
        """Return the positions of the rows."""
        return range(len(self._rows))

    def find(self, number: int) -> int | None:
        """Return None: kept rows are not found by number, since the reader gets all of them."""
        return None

    def row(self, number: int) -> Row | None:
        """Return the row at a position."""
        return self._rows[number]


class Remains:
    """The last state of each function whose client was lost, by its name."""

    def __init__(self) -> None:
        self._kept: dict[str, Tables] = {}

    def keep(self, name: str, tables: Tables) -> None:
        """Keep what a function holds now, before it is reset, instead of what was kept before."""
        self._kept[name] = {what: KeptTable(table) for what, table in tables.items()}

    @property
    def tables(self) -> Mapping[str, Tables]:
        """The tables that were kept, by the names of their functions."""
        return self._kept
