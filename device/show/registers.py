"""Rows that contain registers and config space as bytes, which the reader decodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from bluebridge.device.layout.mlx4 import bar0
from bluebridge.device.mlx4.commands.register import CommandRegister
from bluebridge.device.mlx4.registers.health import Health
from bluebridge.device.pci.endpoint import Endpoint
from bluebridge.device.show.table import Row


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
