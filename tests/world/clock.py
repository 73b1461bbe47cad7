"""A virtual clock: nothing waits, and a seed gives the same order again."""

from __future__ import annotations

import heapq
from collections.abc import Callable

Event = Callable[[], None]


class Clock:
    """Runs events; those of one time in the order in which they were asked for."""

    def __init__(self) -> None:
        self.now = 0.0
        """In seconds."""
        self._events: list[tuple[float, int, Event]] = []
        self._count = 0

    def after(self, delay: float, event: Event) -> None:
        """Call `event` in `delay` seconds."""
        self._count += 1
        heapq.heappush(self._events, (self.now + delay, self._count, event))

    def step(self) -> bool:
        """Run the next event; False: there is none."""
        if not self._events:
            return False
        self.now, _count, event = heapq.heappop(self._events)
        event()
        return True

    def run(self, until: Callable[[], bool], limit: float) -> bool:
        """Run events until `until` holds; False: not within `limit` seconds, or never."""
        end = self.now + limit
        while not until():
            if not self._events or self._events[0][0] > end:
                self.now = end
                return until()
            self.step()
        return True

    def run_all(self) -> None:
        """Let time pass until nothing is left to happen."""
        while self.step():
            pass
