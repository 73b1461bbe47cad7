"""The server's event loop: it serves descriptors, timers and calls that are due, in one thread."""

from __future__ import annotations

import heapq
import logging
import os
import select
import signal
from collections import deque
from collections.abc import Callable
from resource import RUSAGE_THREAD, getrusage
from time import monotonic
from typing import Final

from bluebridge.device.throttle import Throttle

SLOW_SECONDS: Final = 0.05
"""Time in seconds after which a call of the loop counts as slow."""
NOTE_SECONDS: Final = 0.01
"""Greatest age in seconds of the noted processor time.

The processor time that is logged for a slow call may be too high by this much.
"""

log: Final = logging.getLogger(__name__)

Action = Callable[[], None]

SOON_SECONDS: Final = 0.002
"""Seconds for which due calls run before sockets are served; one call may take longer."""

WAKING: Final = 4096
"""Bytes read from the wake-up pipe at once; each signal and each `stop` writes one byte."""
FEW_TIMERS: Final = 64
"""Number of cancelled timers up to which they are not removed before they are due."""


class Watchdog:
    """Logs slow calls of the loop, which reports its turns and its slow calls to this object.

    A call is slow because it computes, because it waits for something, or because the machine was
    busy with other processes: processor time and voluntary context switches tell these apart.
    """

    def __init__(self) -> None:
        self._noted = 0.0
        self._computed = 0.0
        self._waits = 0
        self._sleeps = 0  # of the loop itself, since the note
        self._throttle = Throttle()

    def note(self, now: float, slept: bool) -> None:
        """Note that calls start at `now`, in seconds of the monotonic clock.

        `slept` says whether the loop may have slept.
        """
        if now - self._noted > NOTE_SECONDS:
            self._noted = now
            self._sleeps = 0
            self._computed, self._waits = _usage()
        elif slept:
            self._sleeps += 1

    def slow(self, action: Callable[[], None], seconds: float) -> None:
        """Log that `action` took `seconds`."""
        computed, waits = _usage()
        used = min(seconds, computed - self._computed)
        if used >= SLOW_SECONDS:
            self._report(action, seconds, f"computed for {used * 1000:.0f} ms of them")
        elif waits > self._waits + self._sleeps:
            self._report(action, seconds, "waited")
        else:
            log.info("other processes held the loop for %.0f ms", seconds * 1000)
        self._noted = 0.0

    def _report(self, action: Callable[[], None], seconds: float, why: str) -> None:
        if self._throttle.admits():
            milliseconds, count = seconds * 1000, self._throttle.count
            who = _name(action)
            log.warning(
                "a call held the loop for %.0f ms and %s: %s (%d so far)",
                milliseconds,
                why,
                who,
                count,
            )


def _usage() -> tuple[float, int]:
    """Return this thread's processor time in seconds, and its voluntary context switches."""
    usage = getrusage(RUSAGE_THREAD)
    return usage.ru_utime + usage.ru_stime, usage.ru_nvcsw


def _name(action: Callable[[], None]) -> str:
    """Return the name of the function, with that of its device if it has one."""
    function = str(getattr(action, "__qualname__", action))
    owner = getattr(action, "__self__", None)
    device = getattr(owner, "name", None)
    return f"{function} of {device}" if isinstance(device, str) else function


class LoopTimer:
    """A call that is scheduled for `due`, in seconds of the monotonic clock."""

    __slots__ = ("_loop", "action", "due", "number")

    def __init__(self, loop: EventLoop, due: float, number: int, action: Action) -> None:
        self._loop = loop
        self.due = due
        self.number = number
        self.action: Action | None = action

    def __lt__(self, other: LoopTimer) -> bool:
        # Of two that are due together the one that was asked for first runs first.
        return (self.due, self.number) < (other.due, other.number)

    def cancel(self) -> None:
        """Cancel the call; this has no effect when it has already run."""
        if self.action is not None:
            self.action = None
            self._loop.timer_cancelled()


class EventLoop:
    """An event loop that runs until `stop`.

    Exceptions and slow calls of callbacks are logged and do not end the loop. Guests can cause
    exceptions at will, so only some of many are logged.
    """

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._readers: dict[int, Action] = {}
        self._timers: list[LoopTimer] = []
        self._cancelled = 0  # how many of them
        self._failures = Throttle()
        self._watchdog = Watchdog()
        self._now = 0.0  # when the call under way started
        self.longest = 0.0
        """The seconds of the longest call so far."""
        self._soon: deque[Action] = deque()
        self._next: list[Action] = []
        self._number = 0
        self._stopped = False
        self._signals: frozenset[int] = frozenset()
        # A signal handler that writes to a full pipe must not wait.
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll.register(self._wake_read, select.EPOLLIN)

    def add_reader(self, fd: int, action: Action) -> None:
        """Call `action` whenever `fd` is readable."""
        self._readers[fd] = action
        self._poll.register(fd, select.EPOLLIN)

    def remove_reader(self, fd: int) -> None:
        """Stop watching `fd`."""
        if self._readers.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def call_later(self, seconds: float, action: Action) -> LoopTimer:
        """Run `action` after `seconds`."""
        self._number += 1
        timer = LoopTimer(self, monotonic() + max(seconds, 0.0), self._number, action)
        heapq.heappush(self._timers, timer)
        return timer

    @property
    def timers_kept(self) -> int:
        """Number of timers in memory: those that wait, and cancelled ones not yet removed."""
        return len(self._timers)

    def timer_cancelled(self) -> None:
        """Count a cancelled timer; remove all cancelled ones when they are more than half.

        Most timers are timeouts and are cancelled long before they are due.
        """
        self._cancelled += 1
        if self._cancelled > FEW_TIMERS and 2 * self._cancelled > len(self._timers):
            self._timers = [timer for timer in self._timers if timer.action is not None]
            heapq.heapify(self._timers)
            self._cancelled = 0

    def call_soon(self, action: Action) -> None:
        """Run `action` before the loop sleeps again."""
        self._soon.append(action)

    def call_next_turn(self, action: Action) -> None:
        """Run `action` in the next turn of the loop, however many calls and timers are due.

        Meant for calls of a millisecond or two, of which each function has one of each kind pending
        at a time: a turn runs all of them.
        """
        self._next.append(action)

    def stop(self) -> None:
        """End `run`; this is safe in a signal handler."""
        self._stopped = True
        os.write(self._wake_write, b"x")

    def stop_on(self, *signals: int) -> None:
        """End `run` on any of these signals; only the main thread may call this.

        Native code runs Python's handlers when it calls Python: a signal that comes shortly before
        the loop sleeps would be handled an hour later. So the number that the interpreter writes
        to the pipe at once counts, not the handler.
        """
        self._signals = frozenset(signals)
        for number in signals:
            signal.signal(number, _nothing)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)

    def run(self) -> None:
        """Serve descriptors, timers and calls until `stop`."""
        while not self._stopped:
            self.step()

    def step(self, longest: float = 3600.0) -> None:
        """Wait for readable descriptors and due calls, at most `longest` seconds, and run them."""
        timeout = 0.0 if self._soon or self._next else self._until_timer(longest)
        ready = self._poll.poll(timeout)
        self._now = monotonic()
        self._watchdog.note(self._now, timeout > 0.0)
        for fd, _ in ready:
            action = self._readers.get(fd)
            if action is not None:
                self._call(action)
            elif fd == self._wake_read and not self._signals.isdisjoint(os.read(fd, WAKING)):
                self._stopped = True
        self._run_next()
        self._run_soon()
        self._run_timers()

    def close(self) -> None:
        """Close the loop's own descriptors."""
        if self._signals:
            signal.set_wakeup_fd(-1)
        self._poll.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _until_timer(self, longest: float) -> float:
        while self._timers and self._timers[0].action is None:
            heapq.heappop(self._timers)
            self._cancelled -= 1
        if not self._timers:
            return longest
        return min(longest, max(0.0, self._timers[0].due - monotonic()))

    def _run_next(self) -> None:
        actions, self._next = self._next, []
        for action in actions:
            self._call(action)

    def _run_soon(self) -> None:
        # Calls that these calls add run in the next round, after the sockets. So does the rest of
        # many long calls, such as the large messages of a hundred queue pairs.
        until = self._now + SOON_SECONDS
        for _ in range(len(self._soon)):
            self._call(self._soon.popleft())
            if self._now >= until:
                return

    def _run_timers(self) -> None:
        now = self._now
        until = now + SOON_SECONDS
        while self._timers and self._timers[0].due <= now:
            timer = heapq.heappop(self._timers)
            action, timer.action = timer.action, None
            if action is None:
                self._cancelled -= 1
                continue
            self._call(action)
            if self._now >= until:
                return

    def _call(self, action: Action) -> None:
        try:
            action()
        except Exception:
            if self._failures.admits():
                log.exception("a callback of the loop failed (%d so far)", self._failures.count)
        started, self._now = self._now, monotonic()
        if self._now - started > self.longest:
            self.longest = self._now - started
        if self._now - started > SLOW_SECONDS:
            self._watchdog.slow(action, self._now - started)


def _nothing(*_: object) -> None:
    pass
