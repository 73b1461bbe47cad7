"""A path of a client's session, which connects, breaks, drains and connects anew."""

from __future__ import annotations

import errno
from enum import IntEnum
from typing import TYPE_CHECKING

from bluebridge.guest.protocols.rtrs.engine.actions import (
    AddressPair,
    Destroy,
    Disconnect,
    LinkInfo,
    Received,
)
from bluebridge.guest.protocols.rtrs.engine.client.handshake import Handshake
from bluebridge.guest.protocols.rtrs.engine.client.shared import (
    DepthChanged,
    MessageError,
    Shared,
    new_uuid,
    refusal,
)
from bluebridge.guest.protocols.rtrs.engine.client.traffic import Broken, Traffic
from bluebridge.guest.protocols.rtrs.engine.connection import Alarm, EngineConnection
from bluebridge.guest.protocols.rtrs.engine.interface import EnginePath, State

if TYPE_CHECKING:
    from bluebridge.guest.protocols.rtrs.engine.client.session import ClientSession


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


class Path(EnginePath):
    """A path of a session, with its connections and its attempts to connect.

    `first` is true during the attempt of `open` or `add_path`, whose failure closes the path.
    `error` is the positive errno of the last failure to connect.
    """

    def __init__(
        self, shared: Shared, owner: ClientSession, number: int, addresses: AddressPair
    ) -> None:
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
        self._handshake: Handshake | None = None
        self._connections: list[EngineConnection] = []
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
        self._handshake = Handshake(
            self._shared, self.number, self._uuid, self.addresses, self._connects, self.may_create
        )
        self._connections = self._handshake.connections
        self._open(self._handshake, now)

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
        handshake = self._handshake
        if self.state is not State.CONNECTING or handshake is None:
            return
        try:
            handshake.established(connection, data)
            if not connection.cid:
                handshake.first = self.may_create = True
                self.hca, self.port = link.hca, link.port
                self.addresses = AddressPair(link.source, self.addresses.destination)
            if handshake.complete:
                handshake.ask()
                self._wait(Phase.INFO, now + self._timing.connect)
            else:
                self._open(handshake, now)
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

    def _open(self, handshake: Handshake, now: float) -> None:
        self._owner.connection_opened(self, handshake.open_next())
        self._wait(Phase.OPENING, now + self._timing.connect)

    def _take_info(self, connection: EngineConnection, received: Received, now: float) -> None:
        handshake = self._handshake
        assert handshake is not None and handshake.response is not None
        self.traffic = Traffic(
            self._shared,
            self,
            handshake.response,
            self._connections,
            handshake.regions or [],
            handshake.buffers(connection, received),
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
        if self._handshake is not None and self._handshake.regions is not None:
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
        self._handshake, self._connections = None, []
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
