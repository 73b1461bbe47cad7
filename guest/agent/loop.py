"""The agent's event loop: one thread, epoll, timers."""

from __future__ import annotations

import heapq
import select
import sys
import time
from collections.abc import Callable

READ, WRITE = select.EPOLLIN, select.EPOLLOUT
_LONGEST_WAIT = 1.0

Handler = Callable[[int], None]
"""The type of a call that takes the epoll events of its file descriptor."""


class Timer:
    """A planned call that can be cancelled."""

    def __init__(self, when: float, call: Callable[[], None]) -> None:
        self.when = when
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        """Cancel the call; harmless when it was made already."""
        self.call = None

    def __lt__(self, other: Timer) -> bool:
        return self.when < other.when


class Loop:
    """Calls handlers of file descriptors and timers; no exception of theirs ends it."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, Handler] = {}
        self._timers: list[Timer] = []

    def add(self, fd: int, events: int, handler: Handler) -> None:
        """Watch `fd`, which must not be watched yet."""
        self._epoll.register(fd, events)
        self._handlers[fd] = handler

    def remove(self, fd: int) -> None:
        """Stop watching `fd`; do this before closing it. Harmless if it is not watched."""
        if self._handlers.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def watches(self, fd: int) -> bool:
        """Return True if `fd` is watched."""
        return fd in self._handlers

    def hung_up(self, fd: int) -> bool:
        """Return True if the other end of `fd` is closed at this moment."""
        poll = select.poll()
        poll.register(fd, 0)  # POLLHUP is always reported
        return any(events & select.POLLHUP for _, events in poll.poll(0))

    def now(self) -> float:
        """Return the monotonic time of the timers in seconds."""
        return time.monotonic()

    def later(self, seconds: float, call: Callable[[], None]) -> Timer:
        """Call `call` in `seconds` of monotonic time."""
        timer = Timer(self.now() + seconds, call)
        heapq.heappush(self._timers, timer)
        return timer

    def run_once(self, idle: bool = True) -> None:
        """Handle what is ready; when `idle`, wait for something up to a second."""
        for fd, events in self._epoll.poll(self._patience() if idle else 0):
            # A handler called before may have removed this one.
            if (handler := self._handlers.get(fd)) is not None:
                _guarded(lambda handler=handler, events=events: handler(events))  # type: ignore[misc]
        now = self.now()
        while self._timers and self._timers[0].when <= now:
            timer = heapq.heappop(self._timers)
            if timer.call is not None:
                _guarded(timer.call)

    def _patience(self) -> float:
        while self._timers and self._timers[0].call is None:
            heapq.heappop(self._timers)
        if not self._timers:
            return _LONGEST_WAIT
        return min(_LONGEST_WAIT, max(0.0, self._timers[0].when - self.now()))


def _guarded(call: Callable[[], None]) -> None:
    """Call and log exceptions, since a mistake in one operation must not end the agent."""
    try:
        call()
    except Exception:
        import traceback  # slow to import, and hardly ever needed

        traceback.print_exc(file=sys.stderr)
