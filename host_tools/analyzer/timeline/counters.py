"""Counters of a timeline: bytes per second, unfinished activities, rates that congestion leaves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Final

from bluebridge.device.buslog.reader import Event
from bluebridge.device.buslog.record import function_of
from bluebridge.host_tools.analyzer.activity import Activity, ActivityKind
from bluebridge.host_tools.analyzer.timeline.drawing import Mark, Shape, nanoseconds
from bluebridge.host_tools.analyzer.timeline.overview import Rates
from bluebridge.host_tools.analyzer.timeline.tracks import Tracks

OUTSTANDING: Final = {
    ActivityKind.WORK_REQUEST: "outstanding work requests",
    ActivityKind.COMMAND: "outstanding commands",
    ActivityKind.DESCRIPTOR: "outstanding descriptors",
}
"""Names of the counters of unfinished activities, by kind."""
MOST_QUEUE_COUNTERS: Final = 64
"""Queue pairs with a counter of their own in a stretch of the log."""
_PACE: Final = re.compile(r"QP (0x[0-9a-f]+): rate ([0-9.]+) Mb/s, target ")
"""A note of `PacketSender.rate_changed`."""


def paces(notes: Iterable[Event], tracks: Tracks) -> Iterator[Mark]:
    """Yield marks of the rate that congestion leaves a queue pair, one at each change."""
    for event in notes:
        found = _PACE.match(event.text)
        if found is not None:
            track = tracks.counter(function_of(event.device), f"rate of QP {found[1]}", "bits/s")
            value = round(float(found[2]) * 1e6)
            yield Mark(nanoseconds(event.time), Shape.COUNTER, track, value=value)


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
    """Yield marks of the number of unfinished work requests, commands and descriptors.

    A work request is one of its queue pair as well as of its function.
    """
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
    """Yield the names of the counters of an activity; `queues` are the queue pairs so far."""
    name = OUTSTANDING.get(activity.kind)
    if name is None:
        return
    yield name
    if activity.transfer is not None:
        queue = f"{name} of QP {activity.transfer.qpn:#x}"
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
