"""Ends writes that block, by a signal.

An interrupt is a write to an eventfd of the client. Such a write does not block if the file is as
the client gave it, but its owner can fill it and make it blocking at any moment, also between a
check of the file and the write. So a timer sends a signal every few milliseconds as long as there
are such writes: one that blocks then fails with EINTR. Without such writes the timer is off.
"""

from __future__ import annotations

import signal
from typing import Final

PERIOD_SECONDS: Final = 0.005
"""Seconds for which a write may block at most."""


class Interrupter:
    """The timer of the process; it does nothing until `enable`.

    Only the main thread may call `enable`.
    """

    def __init__(self) -> None:
        self._enabled = False
        self._ticking = False
        self._writing = False
        self._written = False

    def enable(self) -> None:
        """Take SIGALRM and the timer that sends it (ITIMER_REAL)."""
        signal.signal(signal.SIGALRM, self._tick)
        self._enabled = True

    def begin(self) -> None:
        """Start the timer for a write that may block; `end` must be called after the write."""
        self._writing = self._written = True
        if not self._ticking and self._enabled:
            self._ticking = True
            signal.setitimer(signal.ITIMER_REAL, PERIOD_SECONDS, PERIOD_SECONDS)

    def end(self) -> None:
        """Note that the write has returned."""
        self._writing = False

    def rest(self) -> None:
        """Stop the timer, so that a process that ends gets no signal that it does not expect."""
        if self._ticking:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            self._ticking = False

    def _tick(self, *_: object) -> None:
        # It may run between `begin` and the write, whatever time passes there.
        if not self._writing and not self._written:
            self.rest()
        self._written = False


interrupter: Final = Interrupter()
"""The only instance: a process has one such timer."""
