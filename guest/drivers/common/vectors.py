"""The interrupt vectors of one adapter."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from bluebridge.guest.errors import VerbsError

DEFAULT_VECTORS = 16


class InterruptVectors:
    """The eventfds of the device's vectors, and which vectors are free."""

    def __init__(self, fds: Sequence[int]) -> None:
        self._fds = fds
        self._free = list(range(len(fds) - 1, 0, -1))
        self._lock = threading.Lock()

    def fd(self, vector: int) -> int:
        """Return the eventfd of a vector."""
        return self._fds[vector]

    def allocate(self) -> int:
        """Return a vector that no channel has; raises `VerbsError` when all are in use."""
        with self._lock:
            if not self._free:
                raise VerbsError("no interrupt vector is left for another completion channel")
            return self._free.pop()

    def free(self, vector: int) -> None:
        """Give a vector back; 0 is never handed out again."""
        with self._lock:
            if vector:
                self._free.append(vector)
