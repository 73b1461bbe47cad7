"""Limits how often something that a guest can provoke at will is reported in a log."""

from __future__ import annotations

ALL_REPORTED = 100
"""Repetitions below this number are all reported."""


class Throttle:
    """Counts repetitions: the first 99 are reported, then those whose number is a power of two."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def admits(self) -> bool:
        """Count one more; whether to report it."""
        self.count += 1
        return self.count < ALL_REPORTED or self.count & (self.count - 1) == 0
