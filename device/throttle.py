"""Keeps what a guest can provoke at will from filling a log."""

from __future__ import annotations

TALKATIVE = 100


class Throttle:
    """Counts repetitions: the first hundred are worth a report, then those at powers of two."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def admits(self) -> bool:
        """Count one more, and whether to report it."""
        self.count += 1
        return self.count < TALKATIVE or self.count & (self.count - 1) == 0
