"""An overview of a whole log: blocks of events to choose from, and counters over its time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from operator import attrgetter
from typing import Final

from bluebridge.device.buslog.reader import Event, Head
from bluebridge.device.buslog.record import function_of
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.layout.events import Fact
from bluebridge.host_tools.analyzer.activity import Activity, ActivityKind
from bluebridge.host_tools.analyzer.timeline.tracks import Mark, Shape, Tracks, nanoseconds

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

DEFAULT_LIMIT: Final = 120_000
"""Events that are drawn singly unless --limit is given."""
STRETCH_BLOCKS: Final = 8
"""Blocks that are selected together, so that the work requests in them are complete."""

OUTSTANDING: Final = {
    ActivityKind.WORK_REQUEST: "outstanding work requests",
    ActivityKind.COMMAND: "outstanding commands",
    ActivityKind.DESCRIPTOR: "outstanding descriptors",
}
"""Names of the counters of unfinished activities, by kind."""
MOST_QUEUE_COUNTERS: Final = 64
"""Queue pairs with a counter of their own in a stretch of the log."""


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
            while time // self.width >= MOST_BINS:
                self.width *= 2
                for other, values in self.bins.items():
                    pairs = zip_longest(values[::2], values[1::2], fillvalue=0)
                    self.bins[other] = [first + second for first, second in pairs]
            values = self.bins.setdefault(key, [])
            values.extend([0] * (time // self.width + 1 - len(values)))
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


def overview(heads: Iterable[Head]) -> tuple[list[Block], Rates]:
    """Return the blocks of a log and its rates from the heads of all events."""
    blocks: list[Block] = []
    rates = Rates()
    for number, when, device, kind, length in heads:
        if not blocks or blocks[-1].events == BLOCK_EVENTS:
            blocks.append(Block(number, when))
        block = blocks[-1]
        block.events += 1
        block.end = when
        block.counts[kind] += 1
        if kind in _RARE:
            block.rare = True
        elif kind in _MOVING:
            rates.add((device, kind), when, length)
    return blocks, rates


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
    """Divide the log; about `limit` events are drawn, up to half of them beyond data traffic."""
    chosen = _chosen(blocks, limit)
    found: list[Stretch] = []
    start = 0
    for place in range(1, len(blocks) + 1):
        if place == len(blocks) or (place in chosen) != (start in chosen):
            found.append(Stretch(blocks[start:place], start in chosen))
            start = place
    return found


def _chosen(blocks: Sequence[Block], limit: int) -> set[int]:
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


def paces(notes: Iterable[Event], tracks: Tracks) -> Iterator[Mark]:
    """Yield marks of the rate that congestion leaves a queue pair, one at each change."""
    for event in notes:
        if event.fact is Fact.RATE:
            told, function = event.values, function_of(event.device)
            track = tracks.counter(function, f"rate of QP {told['qpn']:#x}", "bits/s")
            yield Mark(nanoseconds(event.time), Shape.COUNTER, track, value=told["rate"])


def rates(found: Rates, devices: Sequence[str], tracks: Tracks) -> list[Mark]:
    """Return marks of bytes per second by function and direction, one at each change."""
    marks: list[Mark] = []
    for (function, way), values in sorted(found.ways(devices).items()):
        track = tracks.counter(function, f"bytes {way}", "bytes/s")
        before = 0
        for place, value in enumerate([*values, 0]):
            if value != before or not place:
                per_second = value * 1_000_000_000 // found.width
                time = place * found.width
                marks.append(Mark(time, Shape.COUNTER, track, value=per_second))
            before = value
    marks.sort(key=attrgetter("time"))
    return marks


def outstanding(activities: Iterable[Activity], tracks: Tracks) -> Iterator[Mark]:
    """Yield marks of the number of unfinished activities, by function and by queue pair."""
    steps: dict[int, list[tuple[int, int]]] = {}
    queues: set[str] = set()
    for activity in activities:
        function = function_of(activity.device)
        begin, end = nanoseconds(activity.begin), nanoseconds(activity.end)
        for name in _counters(activity, queues):
            track = tracks.counter(function, name, "")
            steps.setdefault(track, []).extend(((begin, 1), (end, -1)))
    for track, changes in steps.items():
        yield from _levels(track, changes)


def _counters(activity: Activity, queues: set[str]) -> Iterator[str]:
    name = OUTSTANDING.get(activity.kind)
    if name is None:
        return
    yield name
    if activity.transfer is not None:
        queue = f"{name} of {activity.transfer.noun} {activity.transfer.qpn:#x}"
        if queue in queues or len(queues) < MOST_QUEUE_COUNTERS:
            queues.add(queue)
            yield queue


def _levels(track: int, changes: list[tuple[int, int]]) -> Iterator[Mark]:
    """Yield a mark at each moment when the sum of the changes has a new value."""
    changes.sort()
    level = 0
    for place, (time, change) in enumerate(changes):
        level += change
        if place + 1 == len(changes) or changes[place + 1][0] != time:
            yield Mark(time, Shape.COUNTER, track, value=level)
