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
"""Values of one counter at most."""
FIRST_BIN_NS: Final = 100_000
TO_HOST, FROM_HOST, WIRE = "to the host", "from the host", "to the wire"
_WAYS: Final = {
    Kind.MMIO_READ: TO_HOST,
    Kind.DMA_WRITE: TO_HOST,
    Kind.MMIO_WRITE: FROM_HOST,
    Kind.DMA_READ: FROM_HOST,
    Kind.WIRE: WIRE,
}
"""The direction of the bytes by kind of event; those of a read go to the reader."""
_MOVING: Final = frozenset(map(int, _WAYS))
_RARE: Final = frozenset(map(int, Kind)) - _MOVING - {int(Kind.IRQ), int(Kind.BLUEFLAME)}
"""Kinds of events that do not belong to data traffic."""


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
        """Return the bins by function and direction; `devices` are the names by their numbers."""
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
    """Make the overview of a log from the heads of all events."""
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


DEFAULT_LIMIT: Final = 120_000
"""Events that are drawn singly unless --limit is given."""
STRETCH_BLOCKS: Final = 8
"""Blocks that are selected together, so that the work requests in them are complete."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive blocks, all of them `drawn` or none."""

    blocks: Sequence[Block]
    drawn: bool

    @property
    def events(self) -> int:
        """Number of events in the stretch."""
        return sum(block.events for block in self.blocks)


def stretches(blocks: Sequence[Block], limit: int) -> list[Stretch]:
    """Divide the log into stretches, of which about `limit` events at most are drawn.

    Blocks with more than data traffic come first, up to half of the limit; the rest is spread
    evenly over the log.
    """
    chosen = _chosen(blocks, limit)
    found: list[Stretch] = []
    start = 0
    for place in range(1, len(blocks) + 1):
        if place == len(blocks) or (place in chosen) != (start in chosen):
            found.append(Stretch(blocks[start:place], start in chosen))
            start = place
    return found


def _chosen(blocks: Sequence[Block], limit: int) -> set[int]:
    """Return the indices of the blocks that are drawn."""
    if sum(block.events for block in blocks) <= limit:
        return set(range(len(blocks)))
    room = max(1, limit // BLOCK_EVENTS)
    rare = [place for place, block in enumerate(blocks) if block.rare]
    chosen = set(rare[: max(1, room // 2)])
    rest = [place for place in range(len(blocks)) if place not in chosen]
    room = min(room - len(chosen), len(rest))
    count = -(-room // STRETCH_BLOCKS)
    for number in range(count):
        start = number * len(rest) // count
        size = min(STRETCH_BLOCKS, room)
        chosen.update(rest[start : start + size])
        room -= size
    return chosen
