"""A path of a server's session, from its first connection over INFO_REQ to its close.

As in the kernel's rtrs-srv.c: create_con, process_info_req, rtrs_srv_close_work.
"""

from __future__ import annotations

import errno
from collections.abc import Collection
from enum import StrEnum
from typing import Final, Protocol

from bluebridge.device.layout.net.rtrs import INFO_REQ, SERVICE_QUEUE_DEPTH
from bluebridge.guest.protocols.rtrs.engine.actions import (
    Accept,
    AddressPair,
    Destroy,
    Disconnect,
    LinkInfo,
    PathChanged,
    PostReceive,
    Prepare,
    Received,
    Region,
    Register,
    Send,
    WorkRequest,
)
from bluebridge.guest.protocols.rtrs.engine.connection import (
    FIRST_SLOT_TOKEN,
    SIGNALED,
    EngineConnection,
    SendQueue,
)
from bluebridge.guest.protocols.rtrs.engine.formats import next_key
from bluebridge.guest.protocols.rtrs.engine.heartbeat import MESSAGE, Alarm, Beat, Heartbeat
from bluebridge.guest.protocols.rtrs.engine.interface import Statistics
from bluebridge.guest.protocols.rtrs.engine.server.messages import (
    ConnectionRequest,
    Refused,
    chunks_per_region,
    info_response,
    limits,
    parse_info,
)
from bluebridge.guest.protocols.rtrs.engine.server.operations import BadRequest, Operation
from bluebridge.guest.protocols.rtrs.engine.server.shared import Session, Shared
from bluebridge.guest.protocols.rtrs.engine.server.traffic import Traffic


class State(StrEnum):
    """The kernel's states of a server's path."""

    CONNECTING = "connecting"
    """Connections are being made, until INFO_REQ."""
    CONNECTED = "connected"
    CLOSING = "closing"
    CLOSED = "closed"


REGISTERED: Final = FIRST_SLOT_TOKEN
"""The token of the last registration."""
_AT_ONCE: Final = 128
"""The number of registrations in one chain, which must fit into the send queue."""


class Registrations:
    """The registrations of one path, with their `keys` by region, which requests change later."""

    def __init__(self, path: int, regions: list[Region]) -> None:
        self._path = path
        self._regions = regions
        self.keys = [next_key(region.key) for region in regions]

    def post(self, queue: SendQueue) -> None:
        """Register all chunks; the last registration completes with the token REGISTERED."""
        count = len(self._regions)
        for first in range(0, count, _AT_ONCE):
            some = range(first, min(count, first + _AT_ONCE))
            chain: list[WorkRequest] = [self._register(index, 0) for index in some[:-1]]
            token = REGISTERED if some[-1] == count - 1 else SIGNALED
            queue.post([*chain, self._register(some[-1], token)], True)

    def info_response(self) -> bytes:
        """Return INFO_RSP with all pieces."""
        pairs = zip(self._regions, self.keys, strict=True)
        return info_response([(region.address, key, region.length) for region, key in pairs])

    def _register(self, index: int, token: int) -> Register:
        length = self._regions[index].length
        return Register(self._path, index, self.keys[index], length, True, token)


class Owner(Protocol):
    """The calls that paths make to their server."""

    def connection_gone(self, connection: EngineConnection) -> None:
        """Drop all later events of the connection."""

    def name_taken(self, name: str, session: Session) -> bool:
        """Return True if another session has this name."""

    def operations_of(self, session: Session) -> list[Operation]:
        """Return all operations in progress of a session."""

    def path_connected(self, path: Path, name: str) -> None:
        """Note that the path takes requests; `name` is what the client calls the session."""

    def path_closed(self, path: Path, connected: bool) -> None:
        """Note that the path holds nothing any more; `connected` if it had been connected."""


class Path:
    """A path of a session, made by the first connection request with its UUID.

    Raises `MemoryError`.
    """

    def __init__(
        self,
        shared: Shared,
        owner: Owner,
        session: Session,
        number: int,
        request: ConnectionRequest,
        connection: int,
        addresses: AddressPair,
        now: float,
    ) -> None:
        timing = shared.settings.timing
        self._shared = shared
        self._owner = owner
        self._heartbeat_interval = timing.heartbeat
        self.session = session
        self.number = number
        self.uuid = request.path
        self.addresses = addresses
        self.state = State.CONNECTING
        self.hca = ""
        self.port = 0
        self.statistics = Statistics()
        self.heartbeat = Heartbeat(timing.missed_heartbeats)
        self._count = request.total
        self._connections: dict[int, EngineConnection] = {}
        """The connections by cid."""
        self._traffic: Traffic | None = None
        self._name = ""
        self._awaited: list[Operation] = []
        """The operations of the session's other paths for whose end INFO_RSP waits."""
        per_region = chunks_per_region(shared.settings)
        self._registrations = Registrations(
            number, shared.memory.map_chunks(number, connection, session.number, per_region)
        )
        shared.alarms.set(number, Alarm.STATE, now + timing.establish)

    def request(self, number: int, request: ConnectionRequest) -> EngineConnection:
        """Accept a connection of this path; raises `Refused`."""
        if self.state is not State.CONNECTING:
            raise Refused(errno.ECONNRESET, f"the path is {self.state.value}")
        if request.total != self._count:
            raise Refused(errno.ECONNRESET, f"{request.total} connections, not {self._count}")
        if request.cid in self._connections:
            raise Refused(errno.ECONNRESET, f"connection {request.cid} is there already")
        shared, cid = self._shared, request.cid
        sizes = limits(cid, shared.settings)
        queue = SendQueue(shared.outbox, number, sizes.send, shared.settings.queue_depth)
        connection = EngineConnection(number, cid, queue)
        self._connections[cid] = connection
        shared.outbox.add(Prepare(number, sizes))
        if not cid:
            shared.outbox.add(PostReceive(number, 1, INFO_REQ.size))
        shared.outbox.add(Accept(number, shared.acceptance))
        return connection

    def close(self, reason: str = "") -> None:
        """Disconnect the path, which is gone once nothing is in progress any more."""
        if self.state not in (State.CONNECTING, State.CONNECTED):
            return
        self._change(State.CLOSING, reason)
        self._shared.waiting.add(self.number)
        self._shared.alarms.cancel(self.number)
        if self._traffic is not None:
            self._traffic.alive = False
        for connection in self._connections.values():
            self._shared.outbox.add(Disconnect(connection.number))
        self._end_if_idle()

    def operations_over(self, now: float) -> None:
        """Go on with INFO_RSP if the operations that it waited for are over."""
        if self.state is State.CLOSING:
            self._end_if_idle()
        elif self._awaited:
            self._begin_if_alone(now)

    # -- events ------------------------------------------------------------------------------

    def established(self, connection: EngineConnection, link: LinkInfo) -> None:
        """Take the event that a connection is up."""
        connection.established = True
        if not connection.cid:
            self.hca, self.port = link.hca, link.port

    def received(self, connection: EngineConnection, received: Received, now: float) -> None:
        """Take the completion of a receive, the first of which is INFO_REQ."""
        try:
            if self.state is State.CONNECTED and self._traffic is not None:
                self._traffic.received(connection, received, now)
            elif self.state is State.CONNECTING:
                self._introduce(connection, received, now)
        except (BadRequest, ValueError) as error:
            self.close(str(error))

    def sent(self, connection: EngineConnection, token: int, now: float) -> None:
        """Take the completion of a signaled work request."""
        try:
            if self.state is State.CONNECTED and self._traffic is not None:
                self._traffic.sent(connection, token)
            elif self.state is State.CONNECTING:
                connection.queue.completed()
                if token == REGISTERED:
                    self._registered(now)
        except BadRequest as error:
            self.close(str(error))

    def drained(self, connection: EngineConnection) -> None:
        """Take the event that a connection uses no memory any more."""
        connection.drained = True
        self._end_if_idle()

    def alarm(self, kind: Alarm, now: float) -> None:
        """Act on an alarm whose time has come."""
        if kind is Alarm.STATE:
            self.close("not connected in time")
            return
        beat = self.heartbeat.interval(now)
        if beat is Beat.DEAD or self._traffic is None:
            self.close("no heartbeat")
            return
        if beat is Beat.SEND:
            self._traffic.beat(MESSAGE)
        self._shared.alarms.set(self.number, Alarm.HEARTBEAT, now + self._heartbeat_interval)

    @property
    def operations(self) -> Collection[Operation]:
        """Return the operations in progress."""
        return self._traffic.operations if self._traffic is not None else ()

    # -- inside ------------------------------------------------------------------------------

    def _end_if_idle(self) -> None:
        """End the closing once all is drained and no operation is in progress."""
        connections = self._connections.values()
        if self.state is not State.CLOSING or not all(one.drained for one in connections):
            return
        if self._traffic is not None:
            self._traffic.drained()
            if self._traffic.operations:
                return
        self._change(State.CLOSED)
        self._shared.memory.unmap_chunks(self.number)
        for connection in connections:
            self._shared.outbox.add(Destroy(connection.number))
            self._owner.connection_gone(connection)
        self._owner.path_closed(self, self._traffic is not None)

    def _introduce(self, connection: EngineConnection, received: Received, now: float) -> None:
        """Check INFO_REQ and register the chunks, of which the client may know then."""
        if received.write or received.immediate is not None or connection.cid:
            raise BadRequest("no info request")
        name = parse_info(received.data)
        if len(self._connections) < self._count:
            raise BadRequest(f"{len(self._connections)} of {self._count} connections")
        if self._owner.name_taken(name, self.session):
            raise BadRequest(f"another session is called {name}")
        self._name = name
        self._registrations.post(self._connections[0].queue)

    def _registered(self, now: float) -> None:
        """Wait for the end of all operations that began before INFO_REQ."""
        self._awaited = self._owner.operations_of(self.session)
        self._shared.waiting.add(self.number)
        self._begin_if_alone(now)

    def _begin_if_alone(self, now: float) -> None:
        self._awaited = [operation for operation in self._awaited if not operation.over]
        if not self._awaited:
            self._shared.waiting.discard(self.number)
            self._begin(now)

    def _begin(self, now: float) -> None:
        """Send INFO_RSP, after which the client may send requests."""
        connections = [self._connections[cid] for cid in range(self._count)]
        for one in connections:
            depth = self._shared.settings.queue_depth if one.cid else SERVICE_QUEUE_DEPTH
            self._shared.outbox.add(PostReceive(one.number, depth))
        self._traffic = Traffic(
            self._shared,
            self.session,
            self.number,
            connections,
            self._registrations.keys,
            self.statistics,
            self.heartbeat,
        )
        self._change(State.CONNECTED)
        self._shared.alarms.cancel(self.number)
        self._shared.alarms.set(self.number, Alarm.HEARTBEAT, now + self._heartbeat_interval)
        self._owner.path_connected(self, self._name)
        response = Send(self._registrations.info_response(), None, SIGNALED)
        connections[0].queue.post([response], True)

    def _change(self, state: State, reason: str = "") -> None:
        self.state = state
        self._shared.outbox.add(PathChanged(self.number, state.value, reason))
