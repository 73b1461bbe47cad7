"""What functions held when their client was lost: a guest that panicked takes its QEMU with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from bluebridge.device.show.table import Row, Table, Tables

MOST_ROWS = 256
"""Objects of each kind that are kept: a few milliseconds for all kinds of a function."""


class KeptTable:
    """Rows as they were."""

    def __init__(self, table: Table) -> None:
        numbers = islice(table.numbers(), MOST_ROWS)
        self._rows = [row for row in map(table.row, numbers) if row is not None]

    def numbers(self) -> Sequence[int]:
        """The places of the rows."""
        return range(len(self._rows))

    def find(self, number: int) -> int | None:
        """Nothing is found by number: who asks has all rows."""
        return None

    def row(self, number: int) -> Row | None:
        """A row, by its place."""
        return self._rows[number]


class Remains:
    """The last state of each function whose client was lost, by its name."""

    def __init__(self) -> None:
        self._kept: dict[str, Tables] = {}

    def keep(self, name: str, tables: Tables) -> None:
        """Keep what a function holds now, before it is reset; forgets what was kept before."""
        self._kept[name] = {what: KeptTable(table) for what, table in tables.items()}

    @property
    def tables(self) -> Mapping[str, Tables]:
        """What was kept, by the name of its function."""
        return self._kept
