"""The connection manager's interfaces: events and parameters above, ports and datagrams below."""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Generic, Protocol, TypeVar

Event = TypeVar("Event")


class CmError(OSError):
    """A call of the connection manager failed: `errno`, and a line that says why."""


class EventType(IntEnum):
    """The types of events, numbered as enum rdma_cm_event_type."""

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
    TIMEWAIT_EXIT = 15


@dataclass(frozen=True, slots=True)
class ConnParam:
    """The parameters on which both sides of a connection agree (struct rdma_conn_param).

    `private_data` goes to the peer: at most 56 bytes with connect, 196 with accept, 148 with
    reject. `retry_count` and `rnr_retry_count` are 0..7, 7 RNR retries meaning endless.
    """

    private_data: bytes = b""
    responder_resources: int = 1
    initiator_depth: int = 1
    flow_control: int = 0
    retry_count: int = 7
    rnr_retry_count: int = 7


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


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of a MAD: 16-byte GID, 6-byte MAC address, traffic class.

    Two that differ in the traffic class only are the same peer.
    """

    gid: bytes
    mac: bytes
    traffic_class: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Received:
    """A MAD of 256 bytes with its sender."""

    mad: bytes
    peer: Peer


@dataclass(frozen=True, slots=True)
class LocalPort:
    """This device's port: IP address, 6-byte MAC, 16-byte GID and its index, node GUID."""

    ip: str
    mac: bytes
    gid: bytes
    gid_index: int
    guid: int


class PeersLost:
    """Everybody that a transport reached is lost: what comes behind it is of other peers."""


class Resolver(Protocol):
    """Finds the MAC address behind an IP address (bluebridge.guest.netif.NetInterface)."""

    def resolve(self, ip: str, timeout: float = ...) -> bytes:
        """Return a neighbour's MAC address (6 bytes).

        Raises `OSError` when nobody answers, `ValueError` for an address that is no neighbour's.
        """


class MadTransport(Protocol):
    """A transport of unreliable datagrams between general service interfaces."""

    def fileno(self) -> int:
        """Return a descriptor that is readable when `receive` may have something."""

    def receive(self) -> Sequence[Received | PeersLost]:
        """Return all MADs that arrived without waiting; call once before polling `fileno`.

        Raises `DeviceLost` when the device is gone, for which it must be called every few seconds.
        """

    def send(self, mad: bytes, peer: Peer) -> None:
        """Post one MAD; it may be lost. Raises `OSError` when it cannot even be posted."""

    def flush(self, timeout: float) -> None:
        """Wait up to `timeout` seconds until everything posted has left."""

    def close(self) -> None:
        """Destroy the queue pair."""
