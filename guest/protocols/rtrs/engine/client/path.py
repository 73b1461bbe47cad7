"""A path of a client's session, which connects, breaks, drains and connects anew.

As in the kernel's rtrs-clt.c: init_conns, rtrs_rdma_conn_established, rtrs_send_path_info.
"""

from __future__ import annotations

import errno
from enum import IntEnum
from typing import Protocol

from bluebridge.device.layout.net.rtrs import INFO_RSP, MAX_QUEUE_DEPTH, SG_DESC
from bluebridge.guest.protocols.rtrs.engine.actions import (
    SLOTS,
    AddressPair,
    Destroy,
    Disconnect,
    LinkInfo,
    Open,
    PostReceive,
    Received,
    Region,
    Send,
)
from bluebridge.guest.protocols.rtrs.engine.client.shared import (
    DepthChanged,
    MessageError,
    Response,
    Shared,
    connection_request,
    info_request,
    limits,
    new_uuid,
    parse_info,
    parse_response,
    refusal,
)
from bluebridge.guest.protocols.rtrs.engine.client.traffic import Broken, Traffic
from bluebridge.guest.protocols.rtrs.engine.connection import (
    SIGNALED,
    Alarm,
    EngineConnection,
    SendQueue,
)
from bluebridge.guest.protocols.rtrs.engine.interface import EnginePath, State


class Phase(IntEnum):
    """The step that a path is at while it connects or drains."""

    IDLE = 0
    OPENING = 1
    """The path's next connection is being made."""
    INFO = 2
    """INFO_REQ is sent and INFO_RSP has not come yet."""
    RUNNING = 3
    DRAINING = 4
    GRACE = 5
    """All connections are drained; the path waits for the peer to know it."""
    DELAY = 6
    BACKOFF = 7


class Owner(Protocol):
    """The calls that paths make to their session."""

    def connection_opened(self, path: EnginePath, connection: EngineConnection) -> None:
        """Deliver the connection's events to the path from now on."""

    def connection_gone(self, connection: EngineConnection) -> None:
        """Drop all later events of the connection."""

    def path_connected(self, path: Path, now: float) -> None:
        """Note that the path takes requests."""

    def path_failed(self) -> None:
        """Note that a path that was asking has not become connected."""

    def path_drained(self, path: Path, traffic: Traffic) -> None:
        """Note that a connected path has drained: requests on it will not be answered."""

    def path_closed(self, path: Path, now: float) -> None:
        """Note that the path is closed for good and holds nothing any more."""


class Path(EnginePath):
    """A path of a session, with its connections and its attempts to connect.

    `first` is true during the attempt of `open` or `add_path`, whose failure closes the path.
    `error` is the positive errno of the last failure to connect.
    """

    def __init__(self, shared: Shared, owner: Owner, number: int, addresses: AddressPair) -> None:
        super().__init__(number, addresses, shared.settings.timing, shared.outbox, shared.alarms)
        self._shared = shared
        self._owner = owner
        self.first = True
        self.may_create = False
        """True if CONN_REQ lets the server make a new session."""
        self.removing = False
        self.error = 0
        self.statistics.reconnects = -1
        self.traffic: Traffic | None = None
        self._uuid = new_uuid(shared.random)
        self._connections: list[EngineConnection] = []
        self._asked = addresses
        """The addresses with which the present attempt began, those of all its connections."""
        self._response: Response | None = None
        self._regions: list[Region] | None = None
        self._phase = Phase.IDLE
        self._connects = 0
        """The number of attempts to connect in the path's life."""
        self._attempts = 0
        """The number of attempts since the path was connected, or somebody asked for it."""
        self._at_once = False
        self._refused = False
        """True if the server is not the one that it was: no attempts until somebody asks."""

    @property
    def connected(self) -> bool:
        """True when the path can take requests."""
        return self.state is State.CONNECTED

    @property
    def asking(self) -> bool:
        """True while the path waits for INFO_RSP, the last step before it can take requests."""
        return self._phase is Phase.INFO

    # -- what the session asks for ---------------------------------------------------------

    def connect(self, now: float) -> None:
        """Begin to connect with connection 0."""
        self._change(State.CONNECTING)
        self.error = 0
        self._connects += 1
        self._asked = self.addresses
        self._open(now)

    def fail(self, error: int, reason: str, now: float) -> None:
        if self.state is State.CONNECTED:
            self._change(State.RECONNECTING, reason)
            self._stop(now)
        elif self.state is State.CONNECTING:
            self.error = error
            self._change(State.CONNECTING_ERR, reason)
            self._stop(now)

    def close(self, now: float) -> None:
        """Give everything back and stay closed; `path_closed` follows unless closed already."""
        if self.state in (State.CLOSING, State.CLOSED, State.DEAD):
            return
        self.error = self.error or errno.ECONNABORTED
        self._change(State.CLOSING)
        if self._phase not in (Phase.DRAINING, Phase.GRACE):
            self._stop(now)

    def device_removed(self, now: float) -> None:
        self.close(now)

    def reconnect(self, now: float) -> None:
        """Connect anew, without delay and with all attempts."""
        if self.first or self.removing or self.state is State.CONNECTING:
            return
        self._attempts, self._at_once, self._refused = 0, True, False
        running = self.state is State.CONNECTED
        if self.state is not State.RECONNECTING:
            self._change(State.RECONNECTING)
        if running:
            self._stop(now)
        elif self._phase in (Phase.IDLE, Phase.DELAY):
            self._attempt(now)

    def removed(self) -> None:
        """Note that the session has removed the path."""
        self._change(State.DEAD)

    # -- events ------------------------------------------------------------------------------

    def established(
        self, connection: EngineConnection, data: bytes, link: LinkInfo, now: float
    ) -> None:
        """Take one more connection; after the last one, INFO_REQ is sent."""
        if self.state is not State.CONNECTING:
            return
        try:
            response = parse_response(data)
            connection.established = True
            if not connection.cid:
                self._take_sizes(connection, response)
                self.may_create = True
                self.hca, self.port = link.hca, link.port
                self.addresses = AddressPair(link.source, self.addresses.destination)
            last = self._connections[-1]
            if last.established and last.cid == self._shared.settings.cpus:
                self._ask(now)
            else:
                self._open(now)
        except MessageError as error:
            self._refused = isinstance(error, DepthChanged)
            self.fail(errno.ECONNRESET, str(error), now)
        except MemoryError:
            self.fail(errno.ENOMEM, "no memory", now)

    def rejected(self, data: bytes, now: float) -> None:
        """Fail with the server's error, or with ECONNRESET if it gave none."""
        error = refusal(data) or errno.ECONNRESET
        self.fail(error, f"refused: {errno.errorcode.get(error, error)}", now)

    def disconnected(self, connection: EngineConnection, now: float) -> None:
        connection.disconnected = True
        if self._phase is Phase.GRACE:
            self._await_peer(now)
        else:
            self.fail(errno.ECONNRESET, "disconnected", now)

    def received(self, connection: EngineConnection, received: Received, now: float) -> None:
        try:
            if self.traffic is not None:
                self.traffic.received(connection, received, now)
            elif self._phase is Phase.INFO:
                self._take_info(connection, received, now)
        except (Broken, MessageError) as error:
            self.fail(errno.ECONNRESET, str(error), now)

    def sent(self, connection: EngineConnection, token: int, now: float) -> None:
        if self.traffic is not None:
            self.traffic.sent(connection, token)
        elif self._phase is Phase.INFO:
            connection.queue.completed()

    def drained(self, connection: EngineConnection, now: float) -> None:
        connection.drained = True
        if self._phase is Phase.DRAINING and all(one.drained for one in self._connections):
            self._drained(now)

    def alarm(self, kind: Alarm, now: float) -> None:
        if kind is Alarm.HEARTBEAT:
            self._beat(self._connections[0], now)
        elif self._phase is Phase.GRACE:
            self._destroy(now)
        elif self._phase is Phase.DELAY:
            self._attempt(now)
        elif self._phase is Phase.BACKOFF:
            self.connect(now)
        else:
            self.fail(errno.ETIMEDOUT, "no answer", now)

    # -- up ------------------------------------------------------------------------------------

    def _open(self, now: float) -> None:
        """Ask for one more connection."""
        shared, cid = self._shared, len(self._connections)
        settings, depth = shared.settings, max(1, shared.queue_depth)
        sizes = limits(cid, depth, settings.max_work_requests)
        number = shared.new_connection()
        queue = SendQueue(shared.outbox, number, sizes.send, depth)
        connection = EngineConnection(number, cid, queue)
        self._connections.append(connection)
        request = connection_request(
            cid, settings.cpus + 1, self._connects, self._uuid, shared.uuid, self.may_create
        )
        shared.outbox.append(Open(number, self._asked, settings.port, request, sizes))
        self._owner.connection_opened(self, connection)
        self._wait(Phase.OPENING, now + self._timing.connect)

    def _take_sizes(self, connection: EngineConnection, response: Response) -> None:
        """Take the session's sizes; raises `MessageError`, `DepthChanged`, `MemoryError`."""
        depth = response.queue_depth
        if self._shared.queue_depth not in (0, depth):
            raise DepthChanged(f"queue depth {depth} instead of {self._shared.queue_depth}")
        if not 0 < depth <= MAX_QUEUE_DEPTH or not response.max_io_size:
            raise MessageError(f"{depth} chunks of {response.max_io_size} bytes")
        self._shared.adopt(response)
        connection.queue.set_depth(depth)
        self._response = response

    def _ask(self, now: float) -> None:
        """Map the slots and send INFO_REQ for the server's chunks; raises `MemoryError`."""
        shared, first = self._shared, self._connections[0]
        self._regions = shared.memory.map(self.number, first.number, SLOTS, 1)
        length = INFO_RSP.size + shared.queue_depth * SG_DESC.size
        shared.outbox.append(PostReceive(first.number, 1, length))
        first.queue.post([Send(info_request(shared.name), None, SIGNALED)])
        self._wait(Phase.INFO, now + self._timing.connect)

    def _take_info(self, connection: EngineConnection, received: Received, now: float) -> None:
        """Take INFO_RSP, after which requests may be sent; raises `MessageError`."""
        response = self._response
        plain = not received.write and received.immediate is None and received.invalidated is None
        if response is None or connection.cid or not plain:
            raise MessageError("no info response")
        buffers = parse_info(received.data, response.queue_depth, response.chunk_size)
        self.traffic = Traffic(
            self._shared, self, response, self._connections, self._regions or [], buffers
        )
        self._phase = Phase.RUNNING
        self._attempts = 0
        self.statistics.reconnects += 1
        self._alarms.cancel(self.number)
        self.heartbeat.heard()
        self._set_heartbeat(now)
        self._change(State.CONNECTED)
        self._owner.path_connected(self, now)
        self.first = False

    # -- down ------------------------------------------------------------------------------------

    def _stop(self, now: float) -> None:
        """Disconnect all connections; without any the path has drained at once."""
        self._alarms.cancel(self.number)
        asking, self._phase = self.asking, Phase.DRAINING
        if asking:
            self._owner.path_failed()
        if self.traffic is not None:
            self.traffic.closing = True
        for connection in self._connections:
            self._outbox.append(Disconnect(connection.number))
        if not self._connections:
            self._drained(now)

    def _drained(self, now: float) -> None:
        """Move the requests elsewhere, and give the peer time to hear of the end."""
        connected, self.traffic = self.traffic, None
        if connected is not None:
            self._owner.path_drained(self, connected)
        if self._regions is not None:
            self._shared.memory.unmap(self.number)
        if connected is None:
            self._destroy(now)
        else:
            self._wait(Phase.GRACE, now + self._timing.connect)
            self._await_peer(now)

    def _await_peer(self, now: float) -> None:
        if all(one.disconnected for one in self._connections):
            self._destroy(now)

    def _destroy(self, now: float) -> None:
        for connection in self._connections:
            self._outbox.append(Destroy(connection.number))
            self._owner.connection_gone(connection)
        self._connections, self._response, self._regions = [], None, None
        self._alarms.cancel(self.number)
        self._phase = Phase.IDLE
        self._go_on(now)

    def _go_on(self, now: float) -> None:
        if self.state is State.CONNECTING_ERR:
            if self.first:
                self._change(State.CLOSING)
            else:
                self.statistics.failed_reconnects += 1
                self._change(State.RECONNECTING)
        if self.state is State.CLOSING:
            self._change(State.CLOSED)
            self._owner.path_closed(self, now)
        elif self.state is State.RECONNECTING:
            self._schedule(now)

    def _schedule(self, now: float) -> None:
        if self._at_once:
            self._attempt(now)
            return
        jitter = self._shared.random.random() * self._timing.jitter
        self._wait(Phase.DELAY, now + self._shared.settings.reconnect_delay + jitter)

    def _attempt(self, now: float) -> None:
        """Make the next attempt after a pause, or none if there were too many."""
        self._at_once = False
        if self._refused or 0 <= self._shared.max_reconnect_attempts <= self._attempts:
            self.close(now)
            return
        self._attempts += 1
        self._wait(Phase.BACKOFF, now + self._timing.backoff)

    def _wait(self, phase: Phase, until: float) -> None:
        self._phase = phase
        self._alarms.set(self.number, Alarm.STATE, until)
