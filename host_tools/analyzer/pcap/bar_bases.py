"""Finds the addresses of each function's BARs in the config accesses of a log."""

from __future__ import annotations

from typing import Final

from bluebridge.device.layout.pci import BAR_64BIT, HEADER
from bluebridge.host_tools.analyzer.transaction import Tlp, Transaction

FIRST: Final = HEADER.field("bar0").offset
COUNT: Final = 6
_ALL_ONES: Final = 0xFFFFFFFF
"""Value that software writes to a BAR to learn its size, before it writes an address."""
_TYPE: Final = 0xF
_TYPE_OF_MEMORY: Final = 0x7


class _Registers:
    """The BAR registers of one function."""

    def __init__(self) -> None:
        self.values = [0] * COUNT
        self.wide: set[int] = set()
        self.sizing: set[int] = set()

    def written(self, bar: int, value: int) -> None:
        """Take what software writes to the register of `bar`."""
        if value == _ALL_ONES:
            self.sizing.add(bar)
            return
        self.sizing.discard(bar)
        self.values[bar] = value
        self._typed(bar, value)

    def read(self, bar: int, value: int) -> None:
        """Take what software reads from it; a mask of the size tells the type only."""
        if bar not in self.sizing:
            self.values[bar] = value
        self._typed(bar, value)

    def _typed(self, bar: int, value: int) -> None:
        if value & _TYPE_OF_MEMORY == BAR_64BIT and bar - 1 not in self.wide:
            self.wide.add(bar)

    def base(self, bar: int) -> int:
        """Return the address of `bar`, 0 if it is unknown."""
        value = self.values[bar] & ~_TYPE
        if bar in self.wide and bar + 1 < COUNT:
            value |= self.values[bar + 1] << 32
        return value


class BarBases:
    """Follows the config accesses of all functions in the order of the log."""

    def __init__(self) -> None:
        self._functions: dict[str, _Registers] = {}

    def follow(self, one: Transaction) -> None:
        """Take a config access; accesses of other registers and of parts of a BAR are ignored."""
        bar, rest = divmod(one.address - FIRST, 4)
        if rest or not 0 <= bar < COUNT or len(one.data) != 4:
            return
        registers = self._functions.setdefault(one.device, _Registers())
        value = int.from_bytes(one.data, "little")
        if one.tlp is Tlp.CONFIG_WRITE:
            registers.written(bar, value)
        else:
            registers.read(bar, value)

    def base(self, device: str, bar: int) -> int:
        """Return the address of a function's BAR, 0 if the log does not tell."""
        registers = self._functions.get(device)
        return registers.base(bar) if registers is not None and bar < COUNT else 0
