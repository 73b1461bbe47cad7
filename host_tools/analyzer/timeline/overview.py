"""An overview of a whole log: bytes per second, and blocks of events to choose from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final

from bluebridge.device.buslog.reader import Head
from bluebridge.device.buslog.record import function_of
from bluebridge.device.layout.buslog import Kind

BLOCK_EVENTS: Final = 1024
MOST_BINS: Final = 4096
"""Values of one counter, at most."""
FIRST_BIN_NS: Final = 100_000
TO_HOST, FROM_HOST, WIRE = "to the host", "from the host", "to the wire"
_WAYS: Final = {
    Kind.MMIO_READ: TO_HOST,
    Kind.DMA_WRITE: TO_HOST,
    Kind.MMIO_WRITE: FROM_HOST,
    Kind.DMA_READ: FROM_HOST,
    Kind.WIRE: WIRE,
}
"""Where the bytes go; those of a read go to the reader."""
_MOVING: Final = frozenset(map(int, _WAYS))
_RARE: Final = frozenset(map(int, Kind)) - _MOVING - {int(Kind.IRQ), int(Kind.BLUEFLAME)}
"""Kinds that data traffic does not consist of."""


@dataclass(slots=True)
class Block:
    """Consecutive events: number of the first, nanoseconds of the first and the last.

    `counts` are the numbers of events by kind; `rare` says that there is more than data traffic.
    """

    first: int
    begin: int
    end: int = 0
    rare: bool = False
    events: int = 0
    counts: list[int] = field(default_factory=lambda: [0] * len(Kind))


class Rates:
    """Bytes by numbers of device and kind, in bins of time that become wider in a long log."""

    def __init__(self) -> None:
        self.width = FIRST_BIN_NS
        self.bins: dict[tuple[int, int], list[int]] = {}

    def add(self, key: tuple[int, int], time: int, length: int) -> None:
        """Count `length` bytes at `time`, in nanoseconds; a damaged log has times before 0."""
        time = max(time, 0)
        try:
            self.bins[key][time // self.width] += length
        except (KeyError, IndexError):
            self._make(key, time)
            self.bins[key][time // self.width] += length

    def ways(self, devices: Sequence[str]) -> dict[tuple[str, str], list[int]]:
        """The bins by function and direction; `devices` are the names by their numbers."""
        found: dict[tuple[str, str], list[int]] = {}
        for (device, kind), values in self.bins.items():
            name = devices[device] if device < len(devices) else str(device)
            key = function_of(name), _WAYS[Kind(kind)]
            pairs = zip_longest(found.get(key, ()), values, fillvalue=0)
            found[key] = [one + other for one, other in pairs]
        return found

    def _make(self, key: tuple[int, int], time: int) -> None:
        """Make the bin of that time."""
        while time // self.width >= MOST_BINS:
            self.width *= 2
            for other, values in self.bins.items():
                pairs = zip_longest(values[::2], values[1::2], fillvalue=0)
                self.bins[other] = [first + second for first, second in pairs]
        values = self.bins.setdefault(key, [])
        values.extend([0] * (time // self.width + 1 - len(values)))


@dataclass(slots=True)
class Overview:
    """The blocks of a log and its rates."""

    blocks: list[Block] = field(default_factory=list)
    rates: Rates = field(default_factory=Rates)

    @property
    def events(self) -> int:
        """Number of events in the log."""
        return sum(block.events for block in self.blocks)


def overview(heads: Iterable[Head]) -> Overview:
    """Read the heads of all events once."""
    found = Overview()
    add = found.rates.add
    block = None
    for number, when, device, kind, length in heads:
        if block is None or block.events == BLOCK_EVENTS:
            block = Block(number, when)
            found.blocks.append(block)
        block.events += 1
        block.end = when
        block.counts[kind] += 1
        if kind in _RARE:
            block.rare = True
        elif kind in _MOVING:
            add((device, kind), when, length)
    return found
