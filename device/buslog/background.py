"""A thread that writes batches, so that whoever hands them over never waits for the disk."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

from bluebridge.device.buslog.segments import Batch, log


MOST_BYTES: Final = 64 << 20
"""Bytes that may be handed over and not yet written; batches beyond it are lost."""


class Background:
    """Calls `write` with each batch, in order, in a thread of its own."""

    def __init__(self, write: Callable[[Batch], None], most: int = MOST_BYTES) -> None:
        self._write = write
        self._most = most
        self._lock = threading.Lock()
        self._waiting = 0
        self._batches: SimpleQueue[Batch | threading.Event | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="bus log", daemon=True)
        self._thread.start()

    def put(self, batch: Batch) -> bool:
        """Hand a batch over; return whether there was room for it."""
        with self._lock:
            if self._waiting + len(batch.data) > self._most:
                return False
            self._waiting += len(batch.data)
        self._batches.put(batch)
        return True

    def wait(self) -> None:
        """Return when all that was handed over is written."""
        written = threading.Event()
        self._batches.put(written)
        written.wait()

    def close(self) -> None:
        """Write all batches that were handed over, and end the thread."""
        self._batches.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (batch := self._batches.get()) is not None:
            if isinstance(batch, threading.Event):
                batch.set()
                continue
            try:
                self._write(batch)
            except Exception:
                log.exception("the bus log lost %d events", batch.events)
            with self._lock:
                self._waiting -= len(batch.data)
