"""Decodes the BARs of a function: its address ranges on the guest's bus, from config writes.

vfio-user has no message with the address of a BAR: QEMU only forwards the writes to the base
address registers (hw/vfio-user in QEMU 11.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bluebridge.device.layout import pci as layout
from bluebridge.device.pci.identity import Bar

_FIRST: Final = layout.HEADER.field("bar0").offset
_END: Final = layout.HEADER.field("bar5").offset + 4


class BarDecoder:
    """The decoded BARs of one function.

    A BAR is decoded only while memory decoding is on and it holds an address: not zero, and not the
    all ones of a sizing probe. Its value is kept over a function level reset, since QEMU answers
    reads of the registers itself, so that the guest does not restore them.
    """

    def __init__(self, bars: Sequence[Bar]) -> None:
        self._bars = tuple(bars)
        self._words = bytearray(_END - _FIRST)
        self._memory = False
        self.ranges: tuple[tuple[int, int, int], ...] = ()
        """Start address, end address and index of each decoded BAR."""

    def power_off(self) -> None:
        """Stop decoding all BARs, because the client was lost."""
        self._words[:] = bytes(len(self._words))
        self._memory = False
        self.ranges = ()

    def write(self, offset: int, data: bytes, command: int) -> None:
        """Update the decoded BARs after a write to configuration space.

        `command` is the value of the command register after the write.
        """
        self._memory = bool(command & layout.COMMAND_MEMORY)
        for position, value in enumerate(data, offset):
            if _FIRST <= position < _END:
                self._words[position - _FIRST] = value
        self.ranges = tuple(self._decoded()) if self._memory else ()

    def _decoded(self) -> list[tuple[int, int, int]]:
        found = []
        for bar in self._bars:
            width = 8 if bar.wide else 4
            start = 4 * bar.index
            every = (1 << (8 * width)) - 1
            mask = every & -bar.size
            base = int.from_bytes(self._words[start : start + width], "little") & mask
            if base not in (0, mask):
                found.append((base, base + bar.size, bar.index))
        return found

    def base(self, index: int) -> int | None:
        """Return the bus address of BAR `index`, or None while it is not decoded."""
        return next((start for start, _, bar in self.ranges if bar == index), None)
