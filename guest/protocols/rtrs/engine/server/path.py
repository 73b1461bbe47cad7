"""A path of a server's session, from its first connection over INFO_REQ to its close.

As in the kernel's rtrs-srv.c: create_con, process_info_req, rtrs_srv_close_work.
"""

from __future__ import annotations

import errno
from collections.abc import Collection
from typing import Final, Protocol

from bluebridge.device.layout.net.rtrs import INFO_REQ, SERVICE_QUEUE_DEPTH
from bluebridge.guest.protocols.rtrs.engine.actions import (
    Accept,
    AddressPair,
    Destroy,
    Disconnect,
    LinkInfo,
    PostReceive,
    Prepare,
    Received,
    Register,
    Send,
    WorkRequest,
)
from bluebridge.guest.protocols.rtrs.engine.connection import (
    FIRST_SLOT_TOKEN,
    SIGNALED,
    Alarm,
    EngineConnection,
    SendQueue,
    next_key,
)
from bluebridge.guest.protocols.rtrs.engine.interface import EnginePath, State
from bluebridge.guest.protocols.rtrs.engine.server.messages import (
    ConnectionRequest,
    Refused,
    chunks_per_region,
    info_response,
    limits,
    parse_info,
)
from bluebridge.guest.protocols.rtrs.engine.server.operations import (
    BadRequest,
    Operation,
    Session,
    Shared,
)
from bluebridge.guest.protocols.rtrs.engine.server.traffic import Traffic

REGISTERED: Final = FIRST_SLOT_TOKEN
"""The token of the last registration."""
_AT_ONCE: Final = 128
"""The number of registrations in one chain, which must fit into the send queue."""


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


class Path(EnginePath):
    """A path of a session, made by the first request with its UUID; raises `MemoryError`."""

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
        super().__init__(number, addresses, timing, shared.outbox, shared.alarms)
        self._shared = shared
        self._owner = owner
        self.session = session
        self.uuid = request.path
        self._count = request.total
        self._connections: dict[int, EngineConnection] = {}
        """The connections by cid."""
        self._traffic: Traffic | None = None
        self._name = ""
        self._awaited: list[Operation] = []
        """The operations of the session's other paths for whose end INFO_RSP waits."""
        per_region = chunks_per_region(shared.settings)
        self._regions = shared.memory.map(number, connection, session.number, per_region)
        self._keys = [next_key(region.key) for region in self._regions]
        """The keys by region, which requests change later."""
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
        shared.outbox.append(Prepare(number, sizes))
        if not cid:
            shared.outbox.append(PostReceive(number, 1, INFO_REQ.size))
        shared.outbox.append(Accept(number, shared.acceptance))
        return connection

    def close(self, reason: str = "") -> None:
        """Disconnect the path, which is gone once nothing is in progress any more."""
        if self.state not in (State.CONNECTING, State.CONNECTED):
            return
        self._change(State.CLOSING, reason)
        self._shared.waiting.add(self.number)
        self._alarms.cancel(self.number)
        if self._traffic is not None:
            self._traffic.alive = False
        for connection in self._connections.values():
            self._outbox.append(Disconnect(connection.number))
        self._end_if_idle()

    def operations_over(self, now: float) -> None:
        """Go on with INFO_RSP if the operations that it waited for are over."""
        if self.state is State.CLOSING:
            self._end_if_idle()
        elif self._awaited:
            self._begin_if_alone(now)

    # -- events ------------------------------------------------------------------------------

    def established(
        self, connection: EngineConnection, private_data: bytes, link: LinkInfo, now: float
    ) -> None:
        if not connection.cid:
            self.hca, self.port = link.hca, link.port

    def rejected(self, private_data: bytes, now: float) -> None:
        self.close("rejected")

    def disconnected(self, connection: EngineConnection, now: float) -> None:
        self.close("disconnected")

    def device_removed(self, now: float) -> None:
        self.close("the device is gone")

    def fail(self, error: int, reason: str, now: float) -> None:
        self.close(reason)

    def received(self, connection: EngineConnection, received: Received, now: float) -> None:
        try:
            if self.state is State.CONNECTED and self._traffic is not None:
                self._traffic.received(connection, received, now)
            elif self.state is State.CONNECTING:
                self._introduce(connection, received, now)
        except (BadRequest, ValueError) as error:
            self.close(str(error))

    def sent(self, connection: EngineConnection, token: int, now: float) -> None:
        try:
            if self.state is State.CONNECTED and self._traffic is not None:
                self._traffic.sent(connection, token)
            elif self.state is State.CONNECTING:
                connection.queue.completed()
                if token == REGISTERED:
                    self._registered(now)
        except BadRequest as error:
            self.close(str(error))

    def drained(self, connection: EngineConnection, now: float) -> None:
        connection.drained = True
        self._end_if_idle()

    def alarm(self, kind: Alarm, now: float) -> None:
        if kind is Alarm.STATE:
            self.close("not connected in time")
        else:
            self._beat(self._connections[0], now)

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
        self._shared.memory.unmap(self.number)
        for connection in connections:
            self._outbox.append(Destroy(connection.number))
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
        self._register_all(self._connections[0].queue)

    def _register_all(self, queue: SendQueue) -> None:
        """Register all chunks; the last registration completes with the token REGISTERED."""
        count = len(self._regions)
        for first in range(0, count, _AT_ONCE):
            end = min(count, first + _AT_ONCE)
            chain: list[WorkRequest] = []
            for index in range(first, end):
                token = 0 if index < end - 1 else REGISTERED if end == count else SIGNALED
                key, length = self._keys[index], self._regions[index].length
                chain.append(Register(self.number, index, key, length, True, token))
            queue.post(chain)

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
            self._outbox.append(PostReceive(one.number, depth))
        self._traffic = Traffic(self._shared, self.session, self, connections, self._keys)
        self._change(State.CONNECTED)
        self._alarms.cancel(self.number)
        self._set_heartbeat(now)
        self._owner.path_connected(self, self._name)
        pieces = [
            (region.address, key, region.length)
            for region, key in zip(self._regions, self._keys, strict=True)
        ]
        connections[0].queue.post([Send(info_response(pieces), None, SIGNALED)])
