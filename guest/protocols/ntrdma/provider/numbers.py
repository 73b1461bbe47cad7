"""Keys of regions."""

from __future__ import annotations

import itertools
import threading

FIRST_INDEX = 0x10
_INDICES = 1 << 24


class Numbers:
    """Keys that were not used before: an index, and a low byte that fast registration counts."""

    def __init__(self) -> None:
        self._indices = itertools.count(FIRST_INDEX)
        self._lock = threading.Lock()

    def key(self) -> int:
        """A key with a low byte of 0."""
        with self._lock:
            return next(self._indices) % _INDICES << 8
