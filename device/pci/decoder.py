"""Which addresses of a guest's bus a function answers to, learned from config writes.

No message of vfio-user tells where the guest has put a BAR: QEMU forwards the writes to the base
address registers, and that is all there is (facts of hw/vfio-user in QEMU 11.1).
"""

from __future__ import annotations

from collections.abc import Sequence

from bluebridge.device.layout import pci as layout
from bluebridge.device.pci.identity import Bar

_FIRST = layout.HEADER.field("bar0").offset
_END = layout.HEADER.field("bar5").offset + 4


class BarDecoder:
    """The decoded BARs of one function.

    A BAR counts only while memory decoding is on and holds an address: not zero, and not the
    all-ones of a sizing probe. What the guest wrote outlives a function level reset, since QEMU
    answers reads of the registers itself and the guest finds nothing to restore.
    """

    def __init__(self, bars: Sequence[Bar]) -> None:
        self._bars = tuple(bars)
        self._words = bytearray(_END - _FIRST)
        self._memory = False
        self.ranges: tuple[tuple[int, int, int], ...] = ()
        """Start, end and index of each decoded BAR."""

    def power_off(self) -> None:
        """Nothing is decoded any more: the guest is gone."""
        self._words[:] = bytes(len(self._words))
        self._memory = False
        self.ranges = ()

    def write(self, offset: int, data: bytes, command: int) -> None:
        """A config write has happened, the command register now holds `command`."""
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
        """Where BAR `index` is, or None while it is nowhere."""
        return next((start for start, _, bar in self.ranges if bar == index), None)
