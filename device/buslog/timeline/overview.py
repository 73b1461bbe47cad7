"""What a whole log holds: bytes per second, and blocks of events to choose from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from bluebridge.device.buslog.reader import Event
from bluebridge.device.buslog.timeline.tracks import function_of
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
_RARE: Final = frozenset(
    (Kind.COMMAND, Kind.RESET, Kind.NOTE, Kind.FAULT, Kind.CONFIG_READ, Kind.CONFIG_WRITE)
)
"""Kinds that data traffic does not consist of."""


@dataclass(slots=True)
class Block:
    """Consecutive events: number of the first, times of the first and last in seconds.

    `counts` are the numbers of events by kind; `rare` says that there is more than data traffic.
    """

    first: int
    begin: float
    end: float = 0.0
    rare: bool = False
    events: int = 0
    counts: list[int] = field(default_factory=lambda: [0] * len(Kind))


class Rates:
    """Bytes by function and direction in bins of time, which become wider in a long log."""

    def __init__(self) -> None:
        self.width = FIRST_BIN_NS
        self.bins: dict[tuple[str, str], list[int]] = {}

    def add(self, key: tuple[str, str], time: float, length: int) -> None:
        """Count `length` bytes at `time`."""
        place = int(time * 1e9) // self.width
        while place >= MOST_BINS:
            self._widen()
            place = int(time * 1e9) // self.width
        values = self.bins.get(key)
        if values is None:
            values = self.bins[key] = []
        if place >= len(values):
            values.extend([0] * (place + 1 - len(values)))
        values[place] += length

    def _widen(self) -> None:
        self.width *= 2
        for key, values in self.bins.items():
            pairs = zip(values[::2], [*values[1::2], 0], strict=False)
            self.bins[key] = [one + other for one, other in pairs]


@dataclass(slots=True)
class Overview:
    """The blocks of a log and its rates."""

    blocks: list[Block] = field(default_factory=list)
    rates: Rates = field(default_factory=Rates)
    events: int = 0


def overview(events: Iterable[Event]) -> Overview:
    """Read all events once."""
    found = Overview()
    add = found.rates.add
    ways: dict[tuple[str, Kind], tuple[str, str]] = {}
    block: Block | None = None
    for event in events:
        if block is None or block.events == BLOCK_EVENTS:
            block = Block(event.number, event.time)
            found.blocks.append(block)
        kind = event.kind
        block.events += 1
        block.counts[kind] += 1
        block.end = event.time
        if kind in _RARE:
            block.rare = True
            continue
        way = ways.get((event.device, kind))
        if way is None:
            way = ways[event.device, kind] = function_of(event.device), _WAYS.get(kind, "")
        if way[1]:
            add(way, event.time, event.length)
    found.events = sum(block.events for block in found.blocks)
    return found
