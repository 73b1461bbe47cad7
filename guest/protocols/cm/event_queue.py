"""A queue of events between threads, with a descriptor to poll."""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from typing import Generic, TypeVar

Event = TypeVar("Event")


class CmEvents(Generic[Event]):
    """A queue of events in order of arrival; `fileno()` is readable while there are any."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._lock = threading.Lock()
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_SEMAPHORE | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        """Return an eventfd that is readable while there are events."""
        return self._fd

    def put(self, event: Event) -> None:
        """Append an event; nothing happens after `close`."""
        with self._lock:
            if self._fd >= 0:
                self._events.append(event)
                os.eventfd_write(self._fd, 1)

    def get_nowait(self) -> Event | None:
        """Return the oldest event, None when there is none."""
        with self._lock:
            if not self._events:
                return None
            os.eventfd_read(self._fd)
            return self._events.popleft()

    def get(self, timeout: float | None = None) -> Event | None:
        """Return the oldest event; None after `timeout` seconds (None waits without end)."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            event = self.get_nowait()
            if event is not None:
                return event
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return None
            select.select([self._fd], [], [], left)

    def close(self) -> None:
        """Drop the events that are left and close the descriptor."""
        with self._lock:
            self._events.clear()
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
