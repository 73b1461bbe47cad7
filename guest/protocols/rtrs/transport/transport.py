"""The transport of an engine: carries out its actions and reports events to it."""

from __future__ import annotations

import contextlib
import itertools
import random
import select
import threading
from collections.abc import Callable

from bluebridge.guest.cm import CmEvent, CmId, ConnParam, EventType
from bluebridge.guest.errors import DeviceError
from bluebridge.guest.protocols.rtrs.engine.actions import (
    SLOTS,
    Accept,
    Action,
    AddressPair,
    Destroy,
    Disconnect,
    Finished,
    LinkInfo,
    Open,
    PostReceive,
    PostSend,
    Prepare,
    Reject,
    Serve,
    WorkRequest,
)
from bluebridge.guest.protocols.rtrs.engine.client.session import ClientSession
from bluebridge.guest.protocols.rtrs.engine.interface import Engine
from bluebridge.guest.protocols.rtrs.engine.server.server import Server
from bluebridge.guest.protocols.rtrs.engine.settings import ClientSettings, ServerSettings
from bluebridge.guest.protocols.rtrs.transport.connection import (
    Completions,
    VerbsConnection,
    WorkRequests,
)
from bluebridge.guest.protocols.rtrs.transport.interfaces import AddressError, Interface, Interfaces
from bluebridge.guest.protocols.rtrs.transport.loop import Loop, Timer
from bluebridge.guest.protocols.rtrs.transport.memory import Chunks, Slots

RESOLVE_SECONDS = 5.0
CANNOT_REACH, NO_ANSWER, BROKEN = 113, 110, 5
"""The errnos EHOSTUNREACH, ETIMEDOUT and EIO by their meaning in this module."""
_FAILURES = (OSError, DeviceError, MemoryError, ValueError)
"""The errors that verbs and CM raise for a connection that cannot be made or used."""


Upper = Callable[[Action], None]
"""The layer above the transport, which gets all actions that are not the transport's."""


class Transport:
    """Runs one engine in `loop`; `work_requests` knows its memory.

    `interface_of` answers for the engine's memory which interface a connection uses. After
    `call` and after every event the engine's actions are carried out; those that are not about
    connections go to `upper`.
    """

    def __init__(
        self,
        engine: Engine,
        interfaces: Interfaces,
        loop: Loop,
        work_requests: WorkRequests,
        upper: Upper,
    ) -> None:
        self.engine = engine
        self._interfaces = interfaces
        self._loop = loop
        self._work_requests = work_requests
        self.upper = upper
        self._connections: dict[int, VerbsConnection] = {}
        self._numbers: dict[CmId, int] = {}
        self._opening: dict[int, Open] = {}
        self._completions = Completions(engine, self.perform, interfaces, loop)
        self._requested: Callable[[CmEvent], None] | None = None
        self._timer: Timer | None = None
        self._performing = False
        self._sends: dict[int, list[WorkRequest]] = {}
        self._receives: dict[tuple[int, int], int] = {}
        """The number of receives to post, by connection and length."""
        loop.add(self._completions)
        for interface in interfaces.all:
            self._watch(interface)

    def listen(self, port: int, requested: Callable[[CmEvent], None]) -> None:
        """Take connection requests on every address; `requested` calls `adopt`."""
        self._requested = requested
        for interface in self._interfaces.all:
            listener = interface.manager.create_id(interface.events)
            listener.bind_addr(interface.address, port)
            listener.listen()

    def adopt(self, event: CmEvent, number: int) -> AddressPair:
        """Give the number `number` to the connection that `event` asks for; returns its addresses.

        Their source is the client's.
        """
        interface = self._interfaces.towards(event.id.address, "")
        self._connections[number] = VerbsConnection(number, interface, event.id)
        self._numbers[event.id] = number
        return AddressPair(event.id.peer_address, event.id.address)

    def interface_of(self, connection: int) -> Interface:
        """Return the interface of a connection that exists."""
        return self._connections[connection].interface

    def call(self, event: Callable[[float], object]) -> None:
        """Call `event` with the time, then carry out the engine's actions."""
        event(self._loop.now())
        self.perform()

    def perform(self) -> None:
        """Carry out all actions that wait in the engine.

        A call from within an action does nothing: the outer call goes on until no action is left.
        """
        if self._performing:
            return
        self._performing = True
        try:
            while actions := self.engine.take_actions():
                for action in actions:
                    self._perform(action)
                self._post_all()
        finally:
            self._performing = False
        self._set_timer()

    def close(self) -> None:
        """Free the connections that are left, without telling the engine."""
        self._loop.remove(self._completions)
        if self._timer is not None:
            self._timer.cancel()
        for interface in self._interfaces.all:
            self._loop.unregister(interface.events.fileno())
            self._loop.unregister(interface.channel.fileno())
        for number in list(self._connections):
            self._destroy(number)

    # -- actions -----------------------------------------------------------------------------

    def _perform(self, action: Action) -> None:
        if isinstance(action, PostSend):
            self._sends.setdefault(action.connection, []).extend(action.requests)
        elif isinstance(action, PostReceive):
            key = action.connection, action.length
            self._receives[key] = self._receives.get(key, 0) + action.count
        elif isinstance(action, Finished | Serve):
            self.upper(action)
        else:
            self._post_all()
            self._perform_seldom(action)

    def _perform_seldom(self, action: Action) -> None:
        match action:
            case Open():
                self._open(action)
            case Prepare():
                self._prepare(action)
            case Accept():
                self._accept(action)
            case Reject():
                self._reject(action)
            case Disconnect():
                self._disconnect(action.connection)
            case Destroy():
                self._destroy(action.connection)
            case _:
                self.upper(action)

    def _post_all(self) -> None:
        """Post the collected work requests, receives first, with one doorbell per connection."""
        if self._receives:
            receives, self._receives = self._receives, {}
            for (number, length), count in receives.items():
                self._post_receives(number, count, length)
        if self._sends:
            sends, self._sends = self._sends, {}
            for number, requests in sends.items():
                self._post_sends(number, requests)

    def _post_receives(self, number: int, count: int, length: int) -> None:
        connection = self._connections.get(number)
        if connection is None or connection.closing:
            return
        try:
            connection.post_receives(count, length)
        except _FAILURES as error:
            self.engine.failed(number, str(error), self._loop.now())

    def _post_sends(self, number: int, requests: list[WorkRequest]) -> None:
        connection = self._connections.get(number)
        if connection is None or connection.closing:
            return
        try:
            connection.post_sends(requests, self._work_requests)
        except _FAILURES as error:
            self.engine.failed(number, str(error), self._loop.now())

    def _open(self, action: Open) -> None:
        number = action.connection
        try:
            interface = self._interfaces.towards(*action.addresses)
        except AddressError as error:
            print(f"rtrs: {error}", flush=True)
            self.engine.connect_failed(number, CANNOT_REACH, self._loop.now())
            return
        cm_id = interface.manager.create_id(interface.events)
        self._connections[number] = VerbsConnection(number, interface, cm_id)
        self._numbers[cm_id] = number
        self._opening[number] = action
        # In a thread, since it waits for the neighbour's answer; the event says how it ended.
        way = action.addresses.destination, action.port, RESOLVE_SECONDS
        threading.Thread(target=cm_id.resolve_addr, args=way, daemon=True).start()

    def _prepare(self, action: Prepare) -> None:
        connection = self._connections[action.connection]
        try:
            connection.open(action.limits)
        except _FAILURES as error:
            print(f"rtrs: a connection cannot be made: {error}", flush=True)
            connection.closing = True
            self.engine.connect_failed(action.connection, BROKEN, self._loop.now())

    def _accept(self, action: Accept) -> None:
        connection = self._connections.get(action.connection)
        if connection is None or connection.closing:
            return
        try:
            connection.cm_id.accept(ConnParam(private_data=action.private_data))
            self._completions.add(connection)
        except _FAILURES as error:
            print(f"rtrs: a connection cannot be accepted: {error}", flush=True)
            self.engine.connect_failed(action.connection, BROKEN, self._loop.now())

    def _reject(self, action: Reject) -> None:
        connection = self._connections.get(action.connection)
        if connection is None:
            return
        with contextlib.suppress(*_FAILURES):
            connection.cm_id.reject(action.private_data)
        self._destroy(action.connection)

    def _disconnect(self, number: int) -> None:
        connection = self._connections.get(number)
        if connection is not None and not connection.closing:
            self._completions.take(connection)
            connection.closing = True
            self._opening.pop(number, None)
            with contextlib.suppress(*_FAILURES):
                connection.cm_id.disconnect()
            connection.stop()
        self.engine.drained(number, self._loop.now())

    def _destroy(self, number: int) -> None:
        connection = self._connections.pop(number, None)
        if connection is not None:
            self._completions.remove(connection)
            self._numbers.pop(connection.cm_id, None)
            self._opening.pop(number, None)
            connection.close()

    # -- events ------------------------------------------------------------------------------

    def _watch(self, interface: Interface) -> None:
        def arrived(_events: int) -> None:
            while (event := interface.events.get_nowait()) is not None:
                self._cm_event(event)
                self.perform()

        self._loop.register(interface.events.fileno(), select.EPOLLIN, arrived)

    def _cm_event(self, event: CmEvent) -> None:
        if event.type is EventType.CONNECT_REQUEST:
            if self._requested is not None:
                self._requested(event)
            return
        number = self._numbers.get(event.id)
        if number is None:
            return
        now, kind, engine = self._loop.now(), event.type, self.engine
        if kind is EventType.ADDR_RESOLVED:
            self._connect(number)
        elif kind is EventType.ESTABLISHED:
            self._established(number, event)
        elif kind is EventType.REJECTED:
            engine.rejected(number, event.private_data, now)
        elif kind in (EventType.DISCONNECTED, EventType.TIMEWAIT_EXIT):
            engine.disconnected(number, now)
        elif kind in (EventType.ADDR_ERROR, EventType.ROUTE_ERROR):
            engine.connect_failed(number, CANNOT_REACH, now)
        elif kind in (EventType.UNREACHABLE, EventType.CONNECT_ERROR):
            engine.connect_failed(number, NO_ANSWER, now)
        elif kind is EventType.DEVICE_REMOVAL:
            engine.device_removed(number, now)

    def _connect(self, number: int) -> None:
        action, connection = self._opening.get(number), self._connections[number]
        if action is None:
            return
        try:
            connection.open(action.limits)
            self._completions.add(connection)
            connection.cm_id.connect(ConnParam(private_data=action.private_data))
        except _FAILURES as error:
            print(f"rtrs: a connection cannot be made: {error}", flush=True)
            self.engine.connect_failed(number, BROKEN, self._loop.now())

    def _established(self, number: int, event: CmEvent) -> None:
        connection = self._connections[number]
        if connection.closing:
            return
        self._opening.pop(number, None)
        interface, cm_id = connection.interface, connection.cm_id
        link = LinkInfo(interface.hca, interface.port, cm_id.address, cm_id.peer_address)
        self.engine.established(number, event.private_data, link, self._loop.now())

    def _set_timer(self) -> None:
        deadline, timer = self.engine.deadline, self._timer
        if timer is not None:
            if timer.action is not None and timer.when == deadline:
                return
            timer.cancel()
            self._timer = None
        if deadline is not None:
            self._timer = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        self.call(self.engine.expire)


class ClientSide:
    """A client's session with its transport; the data of requests is in `slots`."""

    def __init__(
        self,
        interfaces: Interfaces,
        loop: Loop,
        upper: Upper,
        name: str,
        source: random.Random,
        settings: ClientSettings,
    ) -> None:
        self.slots = Slots(interfaces)
        self.engine = ClientSession(name, self.slots, source, settings)
        self.transport = Transport(self.engine, interfaces, loop, WorkRequests(self.slots), upper)
        self.slots.interface_of = self.transport.interface_of

    def close(self) -> None:
        """Free everything; the session should be closed before."""
        self.transport.close()
        self.slots.free(SLOTS)


class ServerSide:
    """A server that listens on every address; the data of requests is in `chunks`."""

    def __init__(
        self, interfaces: Interfaces, loop: Loop, upper: Upper, settings: ServerSettings, port: int
    ) -> None:
        self.chunks = Chunks(interfaces)
        self.engine = Server(self.chunks, settings)
        self.transport = Transport(self.engine, interfaces, loop, WorkRequests(self.chunks), upper)
        self.chunks.interface_of = self.transport.interface_of
        self._loop = loop
        self._numbers = itertools.count(1)
        self.transport.listen(port, self._requested)

    def close(self) -> None:
        """Free everything; the sessions should be closed before."""
        self.transport.close()
        for session in self.engine.sessions:
            self.chunks.free(session.session)

    def _requested(self, event: CmEvent) -> None:
        number = next(self._numbers)
        addresses = self.transport.adopt(event, number)
        self.engine.requested(number, event.private_data, addresses, self._loop.now())
