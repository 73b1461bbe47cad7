"""Common to both engines: paths, delivery of events to them, and what is told of them."""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from bluebridge.guest.protocols.rtrs.engine.actions import (
    Action,
    AddressPair,
    Direction,
    LinkInfo,
    PathChanged,
    Received,
)
from bluebridge.guest.protocols.rtrs.engine.connection import (
    MESSAGE,
    Alarm,
    Alarms,
    Beat,
    EngineConnection,
    Heartbeat,
)
from bluebridge.guest.protocols.rtrs.engine.settings import Timing


class Permit(NamedTuple):
    """The right to one request in flight; its `slot` is also the number of the server's chunk."""

    slot: int
    cpu: int
    admin: bool


class Statistics:
    """Counts of a path, as the files below `stats` show them.

    `reconnects` starts at -1 on a client: the first connect makes it 0, as in the kernel.
    """

    def __init__(self) -> None:
        self.reads = 0
        self.read_bytes = 0
        self.writes = 0
        self.write_bytes = 0
        self.inflight = 0
        """The requests that were started under the policy min-inflight, as in the kernel."""
        self.failovers = 0
        self.reconnects = 0
        self.failed_reconnects = 0

    def reset_requests(self) -> None:
        """Set the counts of requests to zero, but not `inflight`."""
        self.reads = self.read_bytes = 0
        self.writes = self.write_bytes = 0
        self.failovers = 0

    def reset_reconnects(self) -> None:
        """Set the counts of reconnections to zero."""
        self.reconnects = self.failed_reconnects = 0

    def reset(self) -> None:
        """Set everything but `inflight` to zero."""
        self.reset_requests()
        self.reset_reconnects()

    def count(self, direction: Direction, length: int) -> None:
        """Count a request; `length` is that of data and user message."""
        if direction is Direction.READ:
            self.reads += 1
            self.read_bytes += length
        else:
            self.writes += 1
            self.write_bytes += length


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


class State(StrEnum):
    """The kernel's states of a path (rtrs-clt.h: rtrs_clt_state, rtrs-srv.h: rtrs_srv_state).

    The file `state` of a client has connected, and disconnected for all others.
    """

    CONNECTING = "connecting"
    """Connections are being made, until INFO_REQ and its answer."""
    CONNECTING_ERR = "connecting_err"
    """Client: connecting has failed, and connections are being given back."""
    RECONNECTING = "reconnecting"
    """Client: the path is broken, connections are being given back, or the next attempt waits."""
    CONNECTED = "connected"
    CLOSING = "closing"
    CLOSED = "closed"
    DEAD = "dead"
    """Client: the path is removed from its session."""


class EnginePath(ABC):
    """A path of either engine, which takes the events of its connections as `Engine` tells them."""

    def __init__(
        self,
        number: int,
        addresses: AddressPair,
        timing: Timing,
        outbox: list[Action],
        alarms: Alarms,
    ) -> None:
        self.number = number
        self.addresses = addresses
        self.state = State.CONNECTING
        self.hca = ""
        self.port = 0
        self.statistics = Statistics()
        self.heartbeat = Heartbeat(timing.missed_heartbeats)
        self._timing = timing
        self._outbox = outbox
        self._alarms = alarms

    @property
    def status(self) -> PathStatus:
        """Return what users are told of the path."""
        return PathStatus(
            self.number,
            self.addresses,
            self.state.value,
            self.hca,
            self.port,
            self.heartbeat.latency,
            self.statistics,
        )

    @abstractmethod
    def established(
        self, connection: EngineConnection, private_data: bytes, link: LinkInfo, now: float
    ) -> None: ...

    @abstractmethod
    def rejected(self, private_data: bytes, now: float) -> None: ...

    @abstractmethod
    def disconnected(self, connection: EngineConnection, now: float) -> None: ...

    @abstractmethod
    def received(self, connection: EngineConnection, received: Received, now: float) -> None: ...

    @abstractmethod
    def sent(self, connection: EngineConnection, token: int, now: float) -> None: ...

    @abstractmethod
    def drained(self, connection: EngineConnection, now: float) -> None: ...

    @abstractmethod
    def device_removed(self, now: float) -> None: ...

    @abstractmethod
    def fail(self, error: int, reason: str, now: float) -> None:
        """Give the connections back after a failure; `error` is a positive errno."""

    @abstractmethod
    def alarm(self, kind: Alarm, now: float) -> None:
        """Act on an alarm whose time has come."""

    def _change(self, state: State, reason: str = "") -> None:
        self.state = state
        self._outbox.append(PathChanged(self.number, state.value, reason))

    def _beat(self, service: EngineConnection, now: float) -> None:
        """Act at the end of a heartbeat's interval; `service` is connection 0."""
        if self.state is not State.CONNECTED:
            return
        beat = self.heartbeat.interval(now)
        if beat is Beat.DEAD:
            self.fail(errno.ETIMEDOUT, "no heartbeat", now)
            return
        if beat is Beat.SEND:
            service.queue.post_immediate(MESSAGE)
        self._set_heartbeat(now)

    def _set_heartbeat(self, now: float) -> None:
        self._alarms.set(self.number, Alarm.HEARTBEAT, now + self._timing.heartbeat)


class Engine(ABC):
    """The base of both engines: events go in, actions come out.

    Completions of one connection are told in their order, and no connection waits for its turn
    much longer than another: a server relies on that when it lets a path in while requests of an
    older one may still be on their way. Events of connections that are gone are dropped.
    """

    def __init__(self, outbox: list[Action], alarms: Alarms) -> None:
        self._outbox = outbox
        self._alarms = alarms
        self._connections: dict[int, tuple[EnginePath, EngineConnection]] = {}

    @abstractmethod
    def _path(self, number: int) -> EnginePath | None: ...

    def connection_opened(self, path: EnginePath, connection: EngineConnection) -> None:
        """Deliver the connection's events to the path from now on."""
        self._connections[connection.number] = path, connection

    def connection_gone(self, connection: EngineConnection) -> None:
        """Drop all later events of the connection."""
        del self._connections[connection.number]

    def take_actions(self) -> list[Action]:
        """Return the actions since the last call, to be carried out in this order."""
        actions = self._outbox.copy()
        self._outbox.clear()
        return actions

    @property
    def deadline(self) -> float | None:
        """Return the time at which `expire` has something to do, None for never."""
        return self._alarms.next

    def expire(self, now: float) -> None:
        """Do what is due at `now`: heartbeats, time limits, attempts to connect."""
        for number, kind in self._alarms.due(now):
            path = self._path(number)
            if path is not None:
                path.alarm(kind, now)

    def established(self, connection: int, private_data: bytes, link: LinkInfo, now: float) -> None:
        """Take the event that a connection is up; a client gets the private data of the REP."""
        if (found := self._connections.get(connection)) is not None:
            found[0].established(found[1], private_data, link, now)

    def rejected(self, connection: int, private_data: bytes, now: float) -> None:
        """Take the event that the peer refused a connection.

        The data is empty if the peer's engine was not asked.
        """
        if (found := self._connections.get(connection)) is not None:
            found[0].rejected(private_data, now)

    def connect_failed(self, connection: int, errno: int, now: float) -> None:
        """Take the event that a connection did not come up; `errno` is positive.

        There was no address, no answer or no memory.
        """
        if (found := self._connections.get(connection)) is not None:
            found[0].fail(errno, "cannot connect", now)

    def disconnected(self, connection: int, now: float) -> None:
        """Take the event that the peer ended a connection, or knows its requested end."""
        if (found := self._connections.get(connection)) is not None:
            found[0].disconnected(found[1], now)

    def received(self, connection: int, received: Received, now: float) -> None:
        """Take the completion of a receive."""
        if (found := self._connections.get(connection)) is not None:
            found[0].received(found[1], received, now)

    def sent(self, connection: int, token: int, now: float) -> None:
        """Take the completion of a signaled work request."""
        if (found := self._connections.get(connection)) is not None:
            found[0].sent(found[1], token, now)

    def failed(self, connection: int, reason: str, now: float) -> None:
        """Take the failure of a work request that was not caused by an earlier failure."""
        if (found := self._connections.get(connection)) is not None:
            found[0].fail(errno.ECONNRESET, reason, now)

    def drained(self, connection: int, now: float) -> None:
        """Take the event that a connection uses no memory and completes nothing any more."""
        if (found := self._connections.get(connection)) is not None:
            found[0].drained(found[1], now)

    def device_removed(self, connection: int, now: float) -> None:
        """Take the event that the device under a connection is gone.

        `Disconnect` is still answered after it.
        """
        if (found := self._connections.get(connection)) is not None:
            found[0].device_removed(now)
