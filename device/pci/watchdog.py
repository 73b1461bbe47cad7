"""Logs which call of the server's loop took so long that every guest noticed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from resource import RUSAGE_THREAD, getrusage
from typing import Final

from bluebridge.device.throttle import Throttle

log: Final = logging.getLogger(__name__)

SLOW_SECONDS: Final = 0.05
"""Time in seconds after which a call of the loop counts as slow."""
NOTE_SECONDS: Final = 0.01
"""Greatest age in seconds of the noted processor time.

The processor time that is logged for a slow call may be too high by this much.
"""


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
