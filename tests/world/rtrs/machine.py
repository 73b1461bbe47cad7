"""Machines: an engine with memory and connections, and CM between them."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable

from bluebridge.guest.protocols.rtrs.engine.actions import (
    Accept,
    Action,
    AddressPair,
    Destroy,
    Disconnect,
    Limits,
    LinkInfo,
    Open,
    PostReceive,
    PostSend,
    Prepare,
    Reject,
    Send,
    WriteChunk,
    WriteRequest,
)
from bluebridge.guest.protocols.rtrs.engine.client.session import ClientSession
from bluebridge.guest.protocols.rtrs.engine.interface import Engine
from bluebridge.guest.protocols.rtrs.engine.server.server import Server
from bluebridge.guest.protocols.rtrs.engine.settings import ClientSettings, ServerSettings
from tests.world.clock import Clock
from tests.world.rtrs.connection import End, Wire
from tests.world.rtrs.memory import Chunks, Keys, Slots

CM_RETRY = 1.0
CM_ATTEMPTS = 8
TIMED_OUT, UNREACHABLE = 110, 113
LINGERS = (0.0, 0.002, 2.0)
"""Bounds of the time, in seconds, for which a connection goes on after `Disconnect`."""


class Network:
    """Wires by their addresses, and the server that listens at their other ends."""

    def __init__(self, clock: Clock, source: random.Random) -> None:
        self.clock = clock
        self.random = source
        self.wires: dict[AddressPair, Wire] = {}
        self.server: ServerMachine | None = None

    def try_until(self, attempt: Callable[[], bool], given_up: Callable[[], None]) -> None:
        """A message of CM: `attempt` until it is through, `CM_ATTEMPTS` times."""
        left = CM_ATTEMPTS

        def once() -> None:
            nonlocal left
            left -= 1
            if attempt():
                return
            if left:
                self.clock.after(CM_RETRY, once)
            else:
                given_up()

        self.clock.after(self.random.random() * 0.01, once)


class Machine(ABC):
    """The common part of client and server. `upper` gets the actions for the layer above."""

    engine: Engine

    def __init__(self, network: Network, upper: Callable[[Action], None], keys: Keys) -> None:
        self.network = network
        self.keys = keys
        self.clock = network.clock
        self.alive = True
        self.ends: dict[int, End] = {}
        self.hangs_since: float | None = None
        """From then on connections acknowledge messages, but the program does not run."""
        self._missed: list[Callable[[float], object]] = []
        """Events that the program is told of once it runs again."""
        self._upper = upper
        self._performing = False
        self._looking = False
        self._timer: float | None = None
        self._left = 0
        self._die: Callable[[], None] = self.die
        self._slow = network.random.choice((0.0, 0.0, 0.002, 0.05))

    def perform(self) -> None:
        if self._performing or not self.alive:
            return
        self._performing = True
        while actions := self.engine.take_actions():
            for action in actions:
                self._perform(action)
                if self._is_last():
                    return
        self._performing = False
        self._set_timer()

    def tell(self, event: Callable[[float], object]) -> None:
        """An event for the engine, unless the machine is dead; later if its program hangs."""
        if self.hangs:
            self._missed.append(event)
        elif self.alive:
            event(self.clock.now)
            self.perform()

    @property
    def hangs(self) -> bool:
        return self.hangs_since is not None

    def go_on(self) -> None:
        """Let a program that hangs run again."""
        self.hangs_since = None
        missed, self._missed = self._missed, []
        for event in missed:
            self.tell(event)
        self._look()

    def die(self) -> None:
        """Power off: nobody is told."""
        self.alive = False
        for end in self.ends.values():
            end.kill()
            end.over = True

    def die_after(self, count: int, die: Callable[[], None]) -> None:
        """Call `die` when so many actions are carried out."""
        self._left = count
        self._die = die
        self.perform()

    def _is_last(self) -> bool:
        if self._left:
            self._left -= 1
            if not self._left:
                self._die()
        return not self.alive

    def _set_timer(self) -> None:
        engine = self.engine
        deadline = engine.deadline
        if deadline is not None and deadline != self._timer:
            self._timer = deadline

            def expire() -> None:
                if self._timer == deadline:
                    self._timer = None
                    self.tell(engine.expire)

            self.clock.after(max(0.0, deadline - self.clock.now), expire)

    def _perform(self, action: Action) -> None:
        if isinstance(action, PostSend):
            self.ends[action.connection].post(list(action.requests))
        elif isinstance(action, PostReceive):
            self.ends[action.connection].post_receives(action.count, action.length)
        elif isinstance(action, Disconnect):
            self._disconnect(self.ends[action.connection])
        elif isinstance(action, Destroy):
            assert self.ends[action.connection].over, "destroyed before it was drained"
            del self.ends[action.connection]
        else:
            self._other(action)

    def _other(self, action: Action) -> None:
        self._upper(action)

    def new_end(self, number: int, wire: Wire, way: int, limits: Limits) -> End:
        assert number not in self.ends
        end = End(self.clock, self.network.random, self, number, wire, way)
        end.limit_sends, end.limit_receives = limits.send, limits.receive
        self.ends[number] = end
        return end

    def completed(self) -> None:
        """A connection has a completion: look at all of them some time later."""
        if not self._looking:
            self._looking = True
            self.clock.after(self.network.random.random() * 0.001 + self._slow, self._look)

    def _look(self) -> None:
        """Every connection has its turn, in any order."""
        if self.hangs:
            return
        self._looking = False
        ends = [end for end in self.ends.values() if end.waits]
        self.network.random.shuffle(ends)
        for end in ends:
            end.look()
        if any(end.waits for end in self.ends.values()):
            self.completed()

    def peer_ended(self, number: int) -> None:
        if number in self.ends:
            self.tell(lambda now: self.engine.disconnected(number, now))

    @abstractmethod
    def source(self, request: WriteRequest | WriteChunk) -> bytes:
        """The bytes that a request writes."""

    def _disconnect(self, end: End) -> None:
        """A connection that works may still deliver and take some messages before it ends."""
        linger = self.network.random.choice(LINGERS) * self.network.random.random()
        if end.dead or not linger:
            self._end_connection(end)
        else:
            self.clock.after(linger, lambda: self._end_connection(end))

    def _end_connection(self, end: End) -> None:
        end.kill()
        number, peer = end.number, end.peer

        def drained() -> None:
            if self.alive:
                end.drain()
                self.tell(lambda now: self.engine.drained(number, now))

        def known() -> None:
            if number in self.ends:
                self.tell(lambda now: self.engine.disconnected(number, now))

        def attempt() -> bool:
            if number not in self.ends or not self.alive:
                return True
            if not end.wire.passes[end.way]:
                return False
            if peer is not None:
                peer.host.peer_ended(peer.number)
            if not end.wire.passes[1 - end.way]:
                return False
            self.clock.after(0.001, known)
            return True

        self.clock.after(self.network.random.random() * 0.002, drained)
        self.network.try_until(attempt, known)


class ClientMachine(Machine):
    """A client with one session."""

    def __init__(
        self, network: Network, upper: Callable[[Action], None], name: str, settings: ClientSettings
    ) -> None:
        self.slots = Slots()
        super().__init__(network, upper, self.slots.keys)
        self.engine = self.session = ClientSession(name, self.slots, network.random, settings)
        self.sends: Counter[bytes] = Counter()
        """How often each request was sent, by the first 4 bytes of its user message."""
        self.before_info: Callable[[End], None] | None = None
        """Called once, in front of the next INFO_REQ, with its connection."""

    def source(self, request: WriteRequest | WriteChunk) -> bytes:
        assert isinstance(request, WriteRequest)
        return (
            bytes(self.slots.data[request.slot][: request.length])
            + self.slots.headers[request.slot]
        )

    def _perform(self, action: Action) -> None:
        if isinstance(action, PostSend):
            for request in action.requests:
                if isinstance(request, WriteRequest):
                    self.slots.headers[request.slot] = request.header
                    self.sends[request.header[:4]] += 1
                elif isinstance(request, Send) and self.before_info is not None:
                    before_info, self.before_info = self.before_info, None
                    before_info(self.ends[action.connection])
        super()._perform(action)

    def _other(self, action: Action) -> None:
        if isinstance(action, Open):
            Connecting(self, action)
        else:
            self._upper(action)


class ServerMachine(Machine):
    """A server, which listens on the addresses of all wires."""

    def __init__(
        self, network: Network, upper: Callable[[Action], None], settings: ServerSettings
    ) -> None:
        self.chunks = Chunks()
        super().__init__(network, upper, self.chunks.keys)
        self.engine = self.server = Server(self.chunks, settings)
        self.asking: dict[int, Connecting] = {}
        self._last = 0
        network.server = self

    def source(self, request: WriteRequest | WriteChunk) -> bytes:
        assert isinstance(request, WriteChunk)
        return bytes(self.chunks.chunk(request.session, request.chunk)[: request.length])

    def ask(self, asking: Connecting) -> None:
        self._last += 1
        number = self._last
        self.asking[number] = asking
        asking.number = number
        data, addresses = asking.action.private_data, asking.addresses
        self.tell(lambda now: self.server.requested(number, data, addresses, now))

    def _other(self, action: Action) -> None:
        if isinstance(action, Prepare):
            self.asking[action.connection].prepare(self, action.limits)
        elif isinstance(action, Accept):
            self.asking.pop(action.connection).accept(self, action)
        elif isinstance(action, Reject):
            self.asking.pop(action.connection).reject(action.private_data)
        else:
            self._upper(action)


class Connecting:
    """A connection from the client's `Open` until both sides know how it ended."""

    def __init__(self, client: ClientMachine, action: Open) -> None:
        self.client = client
        self.action = action
        self.network = client.network
        self.number = 0
        wire = self.network.wires.get(action.addresses)
        self.addresses = action.addresses
        self.wire = wire or Wire()
        self.end = client.new_end(action.connection, self.wire, 0, action.limits)
        self.over = False
        self._asked: ServerMachine | None = None
        if wire is None:
            client.clock.after(0.001, lambda: self._fail(UNREACHABLE))
        else:
            self.network.try_until(self._request, lambda: self._fail(TIMED_OUT))

    def prepare(self, server: ServerMachine, limits: Limits) -> None:
        peer = server.new_end(self.number, self.wire, 1, limits)
        peer.peer, self.end.peer = self.end, peer

    def accept(self, server: ServerMachine, action: Accept) -> None:
        """REP, until the client's answer is there."""
        number = self.number

        def attempt() -> bool:
            if not server.alive or number not in server.ends or server.ends[number].dead:
                return True
            if not self.wire.passes[1]:
                return False
            if not self.client.alive:
                return False
            if self.end.dead:
                server.tell(lambda now: server.server.rejected(number, b"", now))
                return True
            self._established(action.private_data)
            if not self.wire.passes[0]:
                return False
            link = LinkInfo("mlx4_0", 1, self.addresses.destination, self.addresses.source)
            server.tell(lambda now: server.server.established(number, b"", link, now))
            return True

        def given_up() -> None:
            if server.alive and number in server.ends:
                server.tell(lambda now: server.server.connect_failed(number, TIMED_OUT, now))

        self.network.try_until(attempt, given_up)

    def reject(self, data: bytes) -> None:
        """REJ, as often as the request arrives."""

        def attempt() -> bool:
            if not self.wire.passes[1]:
                return False
            if not self.over and not self.end.dead:
                self.over = True
                number = self.action.connection
                self.client.tell(lambda now: self.client.session.rejected(number, data, now))
            return True

        self.network.try_until(attempt, lambda: None)

    def _request(self) -> bool:
        if self.over or self.end.dead or not self.client.alive:
            return True
        server = self.network.server
        if not self.wire.passes[0]:
            return False
        if server is None or not server.alive:
            if self.wire.passes[1]:
                self.reject(b"")
            return False
        if self._asked is not server:
            self._asked = server
            server.ask(self)
        return False

    def _established(self, data: bytes) -> None:
        if self.over:
            return
        self.over = True
        number = self.action.connection
        link = LinkInfo("mlx4_0", 1, self.addresses.source, self.addresses.destination)
        self.client.tell(lambda now: self.client.session.established(number, data, link, now))

    def _fail(self, errno: int) -> None:
        if self.over or self.end.dead:
            return
        self.over = True
        number = self.action.connection
        self.client.tell(lambda now: self.client.session.connect_failed(number, errno, now))
