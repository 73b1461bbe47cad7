"""The interface that the two engines share, and what they tell of paths and sessions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from bluebridge.guest.protocols.rtrs.engine.actions import Action, AddressPair, LinkInfo, Received


class Statistics:
    """`reconnects` starts at -1 on a client: the first connect makes it 0, as in the kernel."""

    def __init__(self, reconnects: int = 0) -> None:
        self.reads = 0
        self.read_bytes = 0
        self.writes = 0
        self.write_bytes = 0
        self.inflight = 0
        """The requests that were started under the policy min-inflight, as in the kernel."""
        self.failovers = 0
        self.reconnects = reconnects
        self.failed_reconnects = 0

    def reset(self) -> None:
        """Set everything but `inflight` to zero."""
        self.reads = self.read_bytes = 0
        self.writes = self.write_bytes = 0
        self.failovers = self.reconnects = self.failed_reconnects = 0

    def count_read(self, length: int) -> None:
        """Count a read; `length` is that of data and user message."""
        self.reads += 1
        self.read_bytes += length

    def count_write(self, length: int) -> None:
        """Count a write; `length` is that of data and user message."""
        self.writes += 1
        self.write_bytes += length


class Permit(NamedTuple):
    """The right to one request in flight; its `slot` is also the number of the server's chunk."""

    slot: int
    cpu: int
    admin: bool


class PathStatus(NamedTuple):
    """The present state of one path; `latency` is a heartbeat's round trip in seconds."""

    path: int
    addresses: AddressPair
    state: str
    hca: str
    port: int
    latency: float
    statistics: Statistics


class SessionStatus(NamedTuple):
    """The present state of one session of a server."""

    session: int
    name: str
    paths: Sequence[PathStatus]


class Engine(Protocol):
    """The interface of both engines: events go in, actions come out.

    Completions of one connection are told in their order, and no connection waits for its turn
    much longer than another: a server relies on that when it lets a path in while requests of an
    older one may still be on their way.
    """

    def take_actions(self) -> list[Action]:
        """Return the actions since the last call, to be carried out in this order."""

    @property
    def deadline(self) -> float | None:
        """Return the time at which `expire` has something to do, None for never."""

    def expire(self, now: float) -> None:
        """Do what is due at `now`: heartbeats, time limits, attempts to connect."""

    def established(self, connection: int, private_data: bytes, link: LinkInfo, now: float) -> None:
        """Take the event that a connection is up; a client gets the private data of the REP."""

    def rejected(self, connection: int, private_data: bytes, now: float) -> None:
        """Take the event that the peer refused a connection.

        The data is empty if the peer's engine was not asked.
        """

    def connect_failed(self, connection: int, errno: int, now: float) -> None:
        """Take the event that a connection did not come up; `errno` is positive.

        There was no address, no answer or no memory.
        """

    def disconnected(self, connection: int, now: float) -> None:
        """Take the event that the peer ended a connection, or knows its requested end."""

    def received(self, connection: int, received: Received, now: float) -> None:
        """Take the completion of a receive."""

    def sent(self, connection: int, token: int, now: float) -> None:
        """Take the completion of a signaled work request."""

    def failed(self, connection: int, reason: str, now: float) -> None:
        """Take the failure of a work request that was not caused by an earlier failure."""

    def drained(self, connection: int, now: float) -> None:
        """Take the event that a connection uses no memory and completes nothing any more."""

    def device_removed(self, connection: int, now: float) -> None:
        """Take the event that the device under a connection is gone.

        `Disconnect` is still answered after it.
        """
