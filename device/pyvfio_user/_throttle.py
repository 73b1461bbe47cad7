"""Limits how many lines a client can cause in the log."""

from __future__ import annotations

import logging
from typing import Final

ALL_LOGGED: Final = 100
"""Repetitions below this number are all logged."""


class Throttle:
    """Counts repetitions: the first 99 are logged, then those whose number is a power of two."""

    def __init__(self) -> None:
        self.count = 0

    def admits(self) -> bool:
        """Count one more repetition; return whether to log it."""
        self.count += 1
        return self.count < ALL_LOGGED or self.count & (self.count - 1) == 0


class Complaints:
    """Warnings about what the clients of one device send."""

    def __init__(self, log: logging.Logger, name: str) -> None:
        self._log = log
        self._name = name
        self._throttle = Throttle()

    def __call__(self, text: str) -> None:
        """Log `text` as a warning, unless there were too many."""
        if self._throttle.admits():
            self._log.warning("%s: %s (%d so far)", self._name, text, self._throttle.count)
