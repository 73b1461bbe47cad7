"""Rows of registers and of config space, which hold bytes; who asks decodes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from bluebridge.device.layout.mlx4 import bar0
from bluebridge.device.mlx4.commands.register import CommandRegister
from bluebridge.device.mlx4.registers.health import Health
from bluebridge.device.pci.endpoint import Endpoint
from bluebridge.device.show.table import Row


class SingleTable:
    """One row, which `make` makes."""

    def __init__(self, make: Callable[[], Row]) -> None:
        self._make = make

    def numbers(self) -> Sequence[int]:
        """Just one."""
        return (0,)

    def find(self, number: int) -> int | None:
        """Offsets are found by who decodes the bytes."""
        return 0

    def row(self, number: int) -> Row | None:
        """The row."""
        return self._make()


def lines_of(lines: Mapping[int, bytes]) -> Row:
    """Bytes of registers by offset, for JSON."""
    return {str(offset): line.hex() for offset, line in lines.items()}


def config_table(endpoint: Endpoint) -> SingleTable:
    """Config space of a function, without the zeros at its end, and the sizes of its BARs."""

    def row() -> Row:
        return {
            "config": endpoint.config_snapshot().rstrip(b"\0").hex(),
            "bars": {str(bar.index): bar.size for bar in endpoint.bars},
        }

    return SingleTable(row)


def hca_registers(commands: CommandRegister, health: Health) -> SingleTable:
    """The registers of BAR0 that hold something: command register and error buffer."""

    def row() -> Row:
        lines = {
            bar0.HCR_BASE: commands.read(0, bar0.HCR.size),
            bar0.CATAS_OFFSET: health.read(bar0.CATAS_OFFSET, bar0.CATAS.size),
        }
        return {"model": "hca", "lines": lines_of(lines), "failed": health.failed}

    return SingleTable(row)
