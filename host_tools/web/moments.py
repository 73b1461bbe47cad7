"""The queues of a log at any moment of it, found from copies that are kept of some moments.

The log is passed once, a limited time for each request; the copies grow sparser with its length.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from pathlib import Path
from threading import Lock

from bluebridge.device.buslog.positions import about_last
from bluebridge.device.buslog.reader import Filter, LogReader
from bluebridge.host_tools.analyzer.queues.queues import KINDS, Queues

SECONDS = 0.2
"""The time limit of one request; a later one goes on."""
_APART = 4096
"""The number of events between two copies, at first."""
_MOST_KEPT = 1 << 20
"""The most queues in all copies together; beyond that every second copy is dropped."""


class Moments:
    """The queues of a log after each of its events, as far as it was passed.

    Methods may be called from several threads and raise `LogError`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = Lock()
        self._kept: list[tuple[int, Queues]] = [(0, Queues())]
        self._apart = _APART
        self._last = Queues()
        self._next = 0
        self._near: tuple[int, Queues] = (0, Queues())

    def at(self, number: int, seconds: float = SECONDS) -> tuple[Queues | None, Queues, int, bool]:
        """Return the queues after event `number`, and those after the last event that was passed.

        The former are None where the log was not passed so far yet. Then come the number of the
        event that is passed next, and whether the log has none left.
        """
        with self._lock:
            done = self._pass(time.monotonic() + seconds)
            then = self._then(number) if done or number < self._next else None
            return then, self._last, self._next, done

    def end(self) -> int:
        """Return about how many events the log has."""
        return about_last(self._folder)

    def _pass(self, deadline: float) -> bool:
        """Go on with the log up to its end or for some time; return whether it was the end."""
        reader, last = LogReader(self._folder), self._last
        for event in reader.events(Filter(first=self._next, kinds=KINDS)):
            last.feed(event)
            self._next = event.number + 1
            if self._next - self._kept[-1][0] >= max(self._apart, len(last)):
                self._keep(self._next)
            if not event.number & 63 and time.monotonic() > deadline:
                return False
        return True

    def _keep(self, number: int) -> None:
        self._kept.append((number, self._last.copy()))
        if sum(len(queues) + 1 for _, queues in self._kept) > _MOST_KEPT:
            del self._kept[1::2]
            self._apart *= 2

    def _then(self, number: int) -> Queues:
        """Return the queues after an event, from the copy before it or from the moment before."""
        end = min(number + 1, self._next)
        place = bisect_right(self._kept, end, key=lambda each: each[0]) - 1
        first, queues = self._kept[place]
        if first <= self._near[0] <= end:
            first, queues = self._near
        queues = queues.copy()
        for event in LogReader(self._folder).events(Filter(first=first, kinds=KINDS)):
            if event.number >= end:
                break
            queues.feed(event)
        self._near = end, queues
        return queues
