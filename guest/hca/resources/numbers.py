"""Numbers of objects (QPN, CQN, PD, memory keys)."""

from __future__ import annotations

import threading

from bluebridge.guest.hca.errors import VerbsError


class Numbers:
    """Hands out numbers `first … 2^log-1`, with a generation above bit `log` as Linux does.

    The generation, up to `width` bits in all, tells a stale number from one in use again
    (core/alloc.c: mlx4_bitmap_alloc). With `width == log` there is none. Numbers return to the
    end of the queue, so that one is reused as late as possible.
    """

    def __init__(self, what: str, first: int, log: int, width: int | None = None) -> None:
        self._what = what
        self._log = log
        self._limit = (1 << (log if width is None else width)) - 1
        self._free = list(range((1 << log) - 1, first - 1, -1))
        self._lock = threading.Lock()

    def allocate(self) -> int:
        """A number nobody has; `VerbsError` when all are in use."""
        with self._lock:
            if not self._free:
                raise VerbsError(f"no more {self._what} numbers: all {1 << self._log} are in use")
            return self._free.pop()

    def free(self, number: int) -> None:
        """Give a number back."""
        with self._lock:
            self._free.insert(0, (number + (1 << self._log)) & self._limit)
