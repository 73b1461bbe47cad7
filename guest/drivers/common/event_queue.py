"""An event queue of a device without its registers: waiting, waking, its ring of entries."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from bluebridge.guest.verbs.interface import HEALTH_SECONDS, Health

LOG_ENTRIES: Final = 9
ENTRIES: Final = 1 << LOG_ENTRIES
Event = TypeVar("Event")


class EventQueue(ABC, Generic[Event]):
    """An event queue whose waiting thread drains it; there is no interrupt thread.

    `fd` is the eventfd of its interrupt vector.
    """

    def __init__(self, health: Health, fd: int) -> None:
        self._health = health
        self._fd = fd
        os.set_blocking(fd, False)
        self._pending: deque[Event] = deque()
        self._woken = 0
        self._lock = threading.Lock()
        self._closed = False

    def fileno(self) -> int:
        """Return the eventfd that becomes readable when the device raised the vector.

        Then call `get_event(0)`.
        """
        return self._fd

    def get_event(self, timeout: float | None = None) -> Event | None:
        """Return the next event; waits up to `timeout` seconds, with None without end.

        Returns None after the time has passed, after `wake` and once the queue is closed. A wait
        ends with `DeviceLost` within seconds when the device is gone.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            with self._lock:
                if not self._pending and not self._closed:
                    self._drain()
                if self._pending:
                    event = self._pending.popleft()
                    if self._pending:
                        self._signal()  # the rest must keep the descriptor readable
                    return event
                if self._closed:
                    return None
                if self._woken:
                    self._woken -= 1
                    return None
            if not self._wait(deadline):
                return None

    def wake(self) -> None:
        """Make one waiting `get_event`, or the next one, return None."""
        with self._lock:
            self._woken += 1
        self._signal()

    def close(self) -> None:
        """Take the queue back from the device; waiting threads return."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._stop()
        self._signal()
        self._release()

    @abstractmethod
    def _stop(self) -> None:
        """Take the queue back from the device."""

    @abstractmethod
    def _release(self) -> None:
        """Free its memory, its number and its vector."""

    @abstractmethod
    def _consume(self) -> None:
        """Turn the entries that hardware wrote into pending events, and arm the queue again."""

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._fd, 8)
        self._consume()

    def _wait(self, deadline: float | None) -> bool:
        poller = select.poll()
        poller.register(self._fd, select.POLLIN)
        while True:
            rest = (
                HEALTH_SECONDS
                if deadline is None
                else min(HEALTH_SECONDS, deadline - time.monotonic())
            )
            if rest <= 0:
                return False
            if poller.poll(rest * 1000):
                return True
            self._health.check()

    def _signal(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._fd, b"\1\0\0\0\0\0\0\0")


class EventRing(EventQueue[Event]):
    """An event queue of `ENTRIES` entries in `data`, memory that hardware writes.

    The byte at `owner` of an entry has at `bit` whether the lap is an odd one. While the queue is
    open it is among `queues`.
    """

    def __init__(
        self,
        health: Health,
        fd: int,
        queues: list[EventQueue[Event]],
        data: memoryview,
        owner: int,
        bit: int,
    ) -> None:
        super().__init__(health, fd)
        self._queues = queues
        self._data = data
        self._size, self._owner, self._bit = len(data) // ENTRIES, owner, bit
        self._consumer = 0
        self._parts = ExitStack()

    def _start(self, parts: ExitStack) -> None:
        """Arm the queue, which the device knows from now on; its end closes `parts`."""
        self._parts = parts
        self._queues.append(self)
        self._rearm()

    def _release(self) -> None:
        self._queues.remove(self)
        self._parts.close()

    def _consume(self) -> None:
        data, consumer = self._data, self._consumer
        size, owner, bit = self._size, self._owner, self._bit
        while True:
            offset = (consumer & (ENTRIES - 1)) * size
            if (data[offset + owner] >> bit) & 1 != (consumer >> LOG_ENTRIES) & 1:
                break
            self._take(data[offset + 1], data[offset : offset + size])
            consumer += 1
        if consumer != self._consumer:
            self._consumer = consumer
            self._rearm()

    @abstractmethod
    def _take(self, kind: int, entry: memoryview) -> None:
        """Turn one entry into pending events."""

    @abstractmethod
    def _rearm(self) -> None:
        """Tell the device what was consumed, and ask for the next interrupt."""


@dataclass(slots=True, frozen=True)
class AsyncEvent:
    """An asynchronous event: EventType number, subtype, and the QP, CQ, SRQ or port number."""

    type: int
    subtype: int
    number: int
