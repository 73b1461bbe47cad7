"""A loop in one thread over descriptors, times, and sources that are polled until empty."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import select
import time
from collections.abc import Callable
from typing import Protocol

SPIN_SECONDS = 0.0003
"""The seconds that sources are polled after their last piece of work before they are armed.

The answer to a recent request mostly comes within it, and an interrupt costs an emulated guest
more.
"""
MAX_WAIT = 1.0
"""The longest wait in seconds: sources that lose their device find out at such intervals."""


class Source(Protocol):
    """An object with work of its own for the loop, such as completion queues."""

    def work(self) -> bool:
        """Do the work there is now; returns True if there was any. May be called at any time."""

    def arm(self) -> None:
        """Make a registered descriptor become readable at the next piece of work.

        `work` is called once more afterwards, so that no work is lost that came in between.
        """


class Timer:
    """A call at a time, until it is cancelled."""

    __slots__ = ("action", "when")

    def __init__(self, when: float, action: Callable[[], None]) -> None:
        self.when = when
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        """Cancel the call if it has not been made."""
        self.action = None


class Loop:
    """Calls the handlers of readable descriptors, of times and of sources, until `stop`."""

    def __init__(self) -> None:
        self._poller = select.epoll()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._timers: list[tuple[float, int, Timer]] = []
        self._numbers = itertools.count()
        self._sources: list[Source] = []
        self._running = False
        self._spin_until = 0.0
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.register(self._wake, select.EPOLLIN, self._woken)

    @staticmethod
    def now() -> float:
        """Return the time in seconds of the clock that `call_at` uses."""
        return time.monotonic()

    def register(self, fd: int, events: int, handler: Callable[[int], None]) -> None:
        """Call `handler(events)` while one of `events` (EPOLLIN, EPOLLOUT) is there."""
        if fd in self._handlers:
            self._poller.modify(fd, events)
        else:
            self._poller.register(fd, events)
        self._handlers[fd] = handler

    def unregister(self, fd: int) -> None:
        """Forget a descriptor; one that is unknown is no error."""
        if self._handlers.pop(fd, None) is not None:
            with contextlib.suppress(OSError):
                self._poller.unregister(fd)

    def call_at(self, when: float, action: Callable[[], None]) -> Timer:
        """Call `action` at `when`, or as soon as possible after it."""
        timer = Timer(when, action)
        heapq.heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    def add(self, source: Source) -> None:
        """Poll `source` from now on."""
        self._sources.append(source)

    def remove(self, source: Source) -> None:
        """Do not poll `source` any more."""
        if source in self._sources:
            self._sources.remove(source)

    def stop(self) -> None:
        """End `run` after this turn; may be called by any thread and by signal handlers."""
        self._running = False
        os.eventfd_write(self._wake, 1)

    def run(self) -> None:
        """Handle events until `stop`."""
        self._running = True
        while self._running:
            self.turn()

    def run_until(self, done: Callable[[], bool], seconds: float) -> bool:
        """Handle events until `done()`, or for `seconds`; returns True if it is done."""
        end = self.now() + seconds
        wake = self.call_at(end, lambda: None)
        try:
            while not (over := done()) and self.now() < end:
                self.turn()
        finally:
            wake.cancel()
        return over

    def turn(self) -> None:
        """Take one turn, which waits only if no source has work."""
        self._expire()
        if self._work():
            self._spin_until = self.now() + SPIN_SECONDS
            self._poll(0.0)
            return
        if self.now() < self._spin_until:
            return
        for source in self._sources:
            source.arm()
        self._poll(0.0 if self._work() else self._patience())

    def close(self) -> None:
        """Close the loop's own descriptors."""
        self._poller.close()
        os.close(self._wake)

    def _work(self) -> bool:
        worked = False
        for source in list(self._sources):
            worked |= source.work()
        return worked

    def _poll(self, seconds: float) -> None:
        for fd, events in self._poller.poll(seconds):
            handler = self._handlers.get(fd)
            if handler is not None:
                handler(events)

    def _patience(self) -> float:
        while self._timers and self._timers[0][2].action is None:
            heapq.heappop(self._timers)
        if not self._timers:
            return MAX_WAIT
        return min(MAX_WAIT, max(0.0, self._timers[0][0] - self.now()))

    def _expire(self) -> None:
        now = self.now()
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[2]
            action, timer.action = timer.action, None
            if action is not None:
                action()

    def _woken(self, _events: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake)

    def __enter__(self) -> Loop:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()
