"""The length of a log and its events over time, from the index of its segments."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from bluebridge.device.buslog.filter import Filter
from bluebridge.device.buslog.positions import read_index
from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.buslog.record import SEGMENT_GLOB

CLASSES = 120
"""The number of equal parts of the log's time for which events are counted."""
_EXACT = 20_000
"""The number of events up to which a log is counted event by event."""


def overview(reader: LogReader) -> dict[str, Any]:
    """Return `first` and `end` event numbers, `seconds`, and `parts`.

    `parts` has a pair for each of `CLASSES` parts of the time: number of the first event, and how
    many events.
    """
    marks = list(_marks(reader))
    if not marks:
        return {"first": 0, "end": 0, "seconds": 0.0, "parts": []}
    first, (last, end_time) = marks[0][0], marks[-1]
    if last + 1 - first <= _EXACT:
        marks = [(event.number, event.time) for event in reader]
    begin = marks[0][1]
    counts = _Counts(begin, max(end_time - begin, 1e-9))
    for (number, when), (following, then) in pairwise([*marks, (last + 1, end_time)]):
        counts.add(number, when, following - number, then)
    parts = counts.parts
    return {"first": first, "end": last + 1, "seconds": round(end_time, 3), "parts": parts}


class _Counts:
    """The number of events in each part of the time; those between two marks are spread evenly."""

    def __init__(self, begin: float, span: float) -> None:
        self.parts = [[0, 0] for _ in range(CLASSES)]
        self._begin = begin
        self._span = span

    def add(self, number: int, when: float, count: int, then: float) -> None:
        """Count `count` events from `number` on, which took from `when` to `then`."""
        first, last = sorted((self._place(when), self._place(then)))
        each, rest = divmod(count, last - first + 1)
        for place in range(first, last + 1):
            here = each + (place - first < rest)
            part = self.parts[place]
            part[0] = part[0] if part[1] else number
            part[1] += here
            number += here

    def _place(self, when: float) -> int:
        return max(0, min(CLASSES - 1, int((when - self._begin) / self._span * CLASSES)))


def _marks(reader: LogReader) -> Iterator[tuple[int, float]]:
    """Yield number and time of some events in order, the last event among them."""
    started = int(reader.meta["started_monotonic_ns"])
    number = -1
    for path in sorted(reader.folder.glob(SEGMENT_GLOB)):
        for number, when, _ in read_index(path):
            yield number, (when - started) / 1e9
    for event in reader.events(Filter(first=max(number, 0))):
        if event.number > number:
            number = event.number
            yield number, event.time
