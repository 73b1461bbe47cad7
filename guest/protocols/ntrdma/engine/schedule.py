"""Whose turn it is: the own queue pairs, by number, that have something to do."""

from __future__ import annotations

from collections import deque


class Schedule:
    """The queue pairs that may send, those that wait for a time, and those that have failed."""

    def __init__(self) -> None:
        self.runnable: deque[int] = deque()
        self.failed: deque[int] = deque()
        """The queue pairs that found a failure, and are not in the error state yet."""
        self.stalled: dict[int, float] = {}
        """The times at which queue pairs are tried again."""

    def make_runnable(self, key: int) -> None:
        """Note that a queue pair may have something to send."""
        if key not in self.runnable:
            self.runnable.append(key)

    def resume(self, now: float) -> None:
        """Let those go on whose time has come."""
        for key in [key for key, at in self.stalled.items() if at <= now]:
            del self.stalled[key]
            self.make_runnable(key)

    @property
    def deadline(self) -> float:
        """The time at which a queue pair goes on; one in the past if any has failed."""
        if self.failed:
            return 0.0
        return min(self.stalled.values(), default=float("inf"))
