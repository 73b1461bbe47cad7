"""What a connection identifier tells its user, with the numbers of include/rdma/rdma_cm.h."""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bluebridge.guest.cm.identifier import CmId


class CmError(OSError):
    """A connection manager call that cannot be done: `errno` and one line saying why."""


class EventType(IntEnum):
    """enum rdma_cm_event_type."""

    ADDR_RESOLVED = 0
    ADDR_ERROR = 1
    ROUTE_RESOLVED = 2
    ROUTE_ERROR = 3
    CONNECT_REQUEST = 4
    CONNECT_RESPONSE = 5
    CONNECT_ERROR = 6
    UNREACHABLE = 7
    REJECTED = 8
    ESTABLISHED = 9
    DISCONNECTED = 10
    DEVICE_REMOVAL = 11
    MULTICAST_JOIN = 12
    MULTICAST_ERROR = 13
    ADDR_CHANGE = 14
    TIMEWAIT_EXIT = 15


@dataclass(frozen=True, slots=True)
class ConnParam:
    """What both sides agree on when connecting (struct rdma_conn_param).

    `private_data` goes to the peer: at most 56 bytes with connect, 196 with accept, 148 with
    reject. `retry_count` and `rnr_retry_count` are 0..7, 7 RNR retries meaning endless.
    """

    private_data: bytes = b""
    responder_resources: int = 1
    initiator_depth: int = 1
    flow_control: int = 0
    retry_count: int = 7
    rnr_retry_count: int = 7


@dataclass(frozen=True, slots=True)
class CmEvent:
    """One event: `status` is 0, a negative errno, or the reason of a rejection."""

    type: EventType
    id: CmId
    status: int = 0
    private_data: bytes = b""
    listener: CmId | None = None
    param: ConnParam = field(default_factory=ConnParam)


class EventQueue:
    """Events in order of arrival; `fileno()` is readable while there are any."""

    def __init__(self) -> None:
        self._events: deque[CmEvent] = deque()
        self._lock = threading.Lock()
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_SEMAPHORE | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        """An eventfd to poll for reading."""
        return self._fd

    def put(self, event: CmEvent) -> None:
        """Append an event; nothing happens after `close`."""
        with self._lock:
            if self._fd >= 0:
                self._events.append(event)
                os.eventfd_write(self._fd, 1)

    def get_nowait(self) -> CmEvent | None:
        """The oldest event, or None."""
        with self._lock:
            if not self._events:
                return None
            os.eventfd_read(self._fd)
            return self._events.popleft()

    def get(self, timeout: float | None = None) -> CmEvent | None:
        """The oldest event, waiting up to `timeout` seconds (None: for ever); None when late."""
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
        """Drop what is left and give the descriptor back."""
        with self._lock:
            self._events.clear()
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
