"""The interfaces of the two engines: a client's session and a server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from bluebridge.guest.protocols.rtrs.engine.actions import (
    Action,
    AddressPair,
    Direction,
    LinkInfo,
    Received,
)


class Permit(NamedTuple):
    """The right to one request in flight; its `slot` is also the number of the server's chunk."""

    slot: int
    cpu: int
    admin: bool


class PathStatistics(Protocol):
    """The counts of one path that the files below `stats` show."""

    reads: int
    read_bytes: int
    writes: int
    write_bytes: int
    inflight: int
    failovers: int
    reconnects: int
    failed_reconnects: int

    def reset(self) -> None:
        """Set all counts but `inflight` to zero."""


class PathStatus(NamedTuple):
    """The present state of one path; `latency` is a heartbeat's round trip in seconds."""

    path: int
    addresses: AddressPair
    state: str
    hca: str
    port: int
    latency: float
    statistics: PathStatistics


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


class ClientEngine(Engine, Protocol):
    """The interface of the engine of one client's session."""

    mp_policy: str
    """The multipath policy: round-robin, min-inflight or min-latency."""
    max_reconnect_attempts: int

    @property
    def name(self) -> str:
        """The name of the session."""

    @property
    def connected(self) -> bool:
        """True when a path can take requests."""

    @property
    def queue_depth(self) -> int:
        """The number of permits of the session, 0 before a path was first connected."""

    @property
    def max_io_size(self) -> int:
        """The most bytes of data of one request."""

    @property
    def paths(self) -> Sequence[PathStatus]:
        """Return all paths in the order in which they were added."""

    def open(self, paths: Sequence[AddressPair], now: float) -> None:
        """Connect these paths; `Opened` follows. After a failure everything is given back."""

    def close(self, now: float) -> None:
        """End the session; requests in flight fail. `Closed` follows."""

    def add_path(self, addresses: AddressPair, now: float) -> int:
        """Connect one more path, whose number is returned; `Opened` follows."""

    def remove_path(self, path: int, now: float) -> None:
        """Disconnect and forget a path; raises `ValueError` for an unknown one."""

    def disconnect_path(self, path: int, now: float) -> None:
        """Disconnect a path, which then stays closed. Raises `ValueError`."""

    def reconnect_path(self, path: int, now: float) -> None:
        """Disconnect a path if need be, and connect it anew. Raises `ValueError`."""

    def get_permit(self, *, admin: bool = False, cpu: int = 0) -> Permit | None:
        """Return a permit, None while all are in use.

        With `admin` the request will use connection 0.
        """

    def put_permit(self, permit: Permit) -> None:
        """Give back a permit whose request is over."""

    def request(
        self, direction: Direction, permit: Permit, user: bytes, length: int, now: float
    ) -> int:
        """Start a request of `length` bytes; returns 0, or a positive errno.

        The bytes are in the permit's slot (WRITE), or come there (READ). `Finished` follows after 0
        only.
        """


class ServerEngine(Engine, Protocol):
    """The interface of a server's engine, with all sessions of the server."""

    @property
    def sessions(self) -> Sequence[SessionStatus]:
        """Return all sessions in the order in which they came."""

    def requested(
        self, connection: int, private_data: bytes, addresses: AddressPair, now: float
    ) -> None:
        """Take a client's request for a connection.

        The source of `addresses` is the client's address.
        """

    def respond(self, operation: int, errno: int, now: float) -> None:
        """Take the end of an operation of `Serve`; `errno` is 0 or positive."""

    def disconnect_path(self, path: int, now: float) -> None:
        """Disconnect a path; raises `ValueError` for an unknown one."""

    def close(self, now: float) -> None:
        """End all sessions; `Closed` follows."""
