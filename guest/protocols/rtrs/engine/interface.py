"""The two engines as their surroundings see them: a client's session, and a server."""

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
    """Counts of one path, as the files below `stats` show them."""

    reads: int
    read_bytes: int
    writes: int
    write_bytes: int
    inflight: int
    failovers: int
    reconnects: int
    failed_reconnects: int

    def reset(self) -> None:
        """Everything but `inflight` to zero."""


class PathStatus(NamedTuple):
    """One path now; `latency` is the last heartbeat's way there and back, in seconds."""

    path: int
    addresses: AddressPair
    state: str
    hca: str
    port: int
    latency: float
    statistics: PathStatistics


class SessionStatus(NamedTuple):
    """One session of a server now."""

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
        """The actions since the last call, to be carried out in this order."""

    @property
    def deadline(self) -> float | None:
        """The time at which `expire` has something to do; None: never."""

    def expire(self, now: float) -> None:
        """The time is `now`: heartbeats, time limits, the next attempt to connect."""

    def established(self, connection: int, private_data: bytes, link: LinkInfo, now: float) -> None:
        """A connection is up; a client gets the private data of the REP."""

    def rejected(self, connection: int, private_data: bytes, now: float) -> None:
        """The peer refused a connection; empty data if the peer's engine was not asked."""

    def connect_failed(self, connection: int, errno: int, now: float) -> None:
        """A connection did not come up: no address, no answer, no memory. `errno` is positive."""

    def disconnected(self, connection: int, now: float) -> None:
        """The peer ended a connection, or the end that we asked for is known to the peer."""

    def received(self, connection: int, received: Received, now: float) -> None:
        """A receive completed."""

    def sent(self, connection: int, token: int, now: float) -> None:
        """A signaled work request completed."""

    def failed(self, connection: int, reason: str, now: float) -> None:
        """A work request failed, of itself and not because others did."""

    def drained(self, connection: int, now: float) -> None:
        """Nothing of a connection uses memory any more, and nothing of it completes any more."""

    def device_removed(self, connection: int, now: float) -> None:
        """The device under a connection is gone; `Disconnect` is still answered."""


class ClientEngine(Engine, Protocol):
    """One session of a client."""

    mp_policy: str
    """round-robin, min-inflight or min-latency."""
    max_reconnect_attempts: int

    @property
    def name(self) -> str:
        """The session's."""

    @property
    def connected(self) -> bool:
        """Whether a path can take requests."""

    @property
    def queue_depth(self) -> int:
        """Permits of the session; 0 before the first path was connected."""

    @property
    def max_io_size(self) -> int:
        """Bytes of data of one request."""

    @property
    def paths(self) -> Sequence[PathStatus]:
        """All paths, in the order in which they were added."""

    def open(self, paths: Sequence[AddressPair], now: float) -> None:
        """Connect these paths; `Opened` follows. Without success everything is given back."""

    def close(self, now: float) -> None:
        """End the session; requests in flight fail. `Closed` follows."""

    def add_path(self, addresses: AddressPair, now: float) -> int:
        """Connect one more path, whose number is returned; `Opened` follows."""

    def remove_path(self, path: int, now: float) -> None:
        """Disconnect and forget a path. Raises `ValueError` for one that there is not."""

    def disconnect_path(self, path: int, now: float) -> None:
        """Disconnect a path, which then stays closed. Raises `ValueError`."""

    def reconnect_path(self, path: int, now: float) -> None:
        """Disconnect a path if need be, and connect it anew. Raises `ValueError`."""

    def get_permit(self, *, admin: bool = False, cpu: int = 0) -> Permit | None:
        """A permit, None while all are in use. `admin`: the request uses connection 0."""

    def put_permit(self, permit: Permit) -> None:
        """Give a permit back, whose request is over."""

    def request(
        self, direction: Direction, permit: Permit, user: bytes, length: int, now: float
    ) -> int:
        """Start a request of `length` bytes, which are in the permit's slot (WRITE) or come there.

        0, and `Finished` follows; or a positive errno, and nothing follows.
        """


class ServerEngine(Engine, Protocol):
    """All sessions of a server."""

    @property
    def sessions(self) -> Sequence[SessionStatus]:
        """All sessions, in the order in which they came."""

    def requested(
        self, connection: int, private_data: bytes, addresses: AddressPair, now: float
    ) -> None:
        """A client asks for a connection; its source is the client's address."""

    def respond(self, operation: int, errno: int, now: float) -> None:
        """An operation of `Serve` is over; `errno` 0 or positive."""

    def disconnect_path(self, path: int, now: float) -> None:
        """Disconnect a path. Raises `ValueError` for one that there is not."""

    def close(self, now: float) -> None:
        """End all sessions; `Closed` follows."""
