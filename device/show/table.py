"""Tables of a function's state, for readers that change nothing; registers and config as bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol

from bluebridge.device.layout.mlx4 import bar0
from bluebridge.device.mlx4.commands.register import CommandRegister
from bluebridge.device.mlx4.registers.health import Health
from bluebridge.device.pci.endpoint import Endpoint

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


class SingleTable:
    """A table with one row, which the function `make` returns."""

    def __init__(self, make: Callable[[], Row]) -> None:
        self._make = make

    def numbers(self) -> Sequence[int]:
        """Return the number of the only row."""
        return (0,)

    def find(self, number: int) -> int | None:
        """Return the number of the only row for any `number`.

        Registers are found by offset when the reader decodes the bytes.
        """
        return 0

    def row(self, number: int) -> Row | None:
        """Return the only row."""
        return self._make()


def lines_of(lines: Mapping[int, bytes]) -> Row:
    """Convert lines of registers by offset to values that JSON has."""
    return {str(offset): line.hex() for offset, line in lines.items()}


def config_table(endpoint: Endpoint) -> SingleTable:
    """Return a table of a function's config space and the sizes of its BARs.

    Zeros at the end of config space are left out.
    """

    def row() -> Row:
        return {
            "config": endpoint.config_snapshot().rstrip(b"\0").hex(),
            "bars": {str(bar.index): bar.size for bar in endpoint.bars},
        }

    return SingleTable(row)


def hca_registers(commands: CommandRegister, health: Health) -> SingleTable:
    """Return a table of the BAR0 registers of an HCA: command register and error buffer."""

    def row() -> Row:
        lines = {
            bar0.HCR_BASE: commands.read(0, bar0.HCR.size),
            bar0.CATAS_OFFSET: health.read(bar0.CATAS_OFFSET, bar0.CATAS.size),
        }
        return {"model": "hca", "lines": lines_of(lines), "failed": health.failed}

    return SingleTable(row)
