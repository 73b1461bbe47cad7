"""One end of NTRDMA: its parts are joined here and served in turns."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from bluebridge.device.layout.ntrdma import port as port_layout
from bluebridge.device.layout.ntrdma.commands import (
    CM_MESSAGE,
    CONNECTIONS,
    EXTENSIONS,
    EXTENSIONS_TAG,
    NONE,
    RESOLVE,
    RESPONSE,
    CommandCode,
)
from bluebridge.device.layout.ntrdma.port import BELL_COMMAND, BELL_RESPONSE, PortState
from bluebridge.guest.protocols.ntrdma.engine.bells import Bells, Observer
from bluebridge.guest.protocols.ntrdma.engine.command_ring import (
    CommandExecution,
    CommandRequests,
)
from bluebridge.guest.protocols.ntrdma.engine.command_ring import Done as Answered
from bluebridge.guest.protocols.ntrdma.engine.completions import CompletionQueue
from bluebridge.guest.protocols.ntrdma.engine.ethernet import Ethernet, Network
from bluebridge.guest.protocols.ntrdma.engine.local import Done, Event, LocalResources
from bluebridge.guest.protocols.ntrdma.engine.memory import Words
from bluebridge.guest.protocols.ntrdma.engine.peer import Peer
from bluebridge.guest.protocols.ntrdma.engine.port import Port
from bluebridge.guest.protocols.ntrdma.engine.queue_pair import Domain, QueuePair, Sizes
from bluebridge.guest.protocols.ntrdma.engine.remote import RemoteResources
from bluebridge.guest.protocols.ntrdma.engine.remote_pair import RemotePair
from bluebridge.guest.protocols.ntrdma.engine.requester import Requester
from bluebridge.guest.protocols.ntrdma.engine.responder import Responder
from bluebridge.guest.protocols.ntrdma.engine.transport import Transport
from bluebridge.guest.verbs.requests import SendWr
from bluebridge.guest.verbs.values import RecvWr

TURNS = 8
"""The most rounds over all queues in one call."""


class EngineOwner(Protocol):
    """The listener to which an engine reports events."""

    def event(self, event: Event, key: int) -> None:
        """Take an asynchronous event; `key` is the number of the queue pair that failed."""

    def entered(self, state: PortState) -> None:
        """Note that the port is in another state."""

    def cm_message(self, mad: bytes, ip: int) -> None:
        """Take a CM message of the peer at `ip`, without its first 8 bytes."""

    def has_address(self, ip: int) -> bool:
        """Return True if an IPv4 address is this side's."""


class Engine:
    """One end of NTRDMA: own resources in `local`, the peer's twins in `remote`, state in `port`.

    With a `network` it has an Ethernet device, `ethernet`.
    """

    def __init__(
        self, transport: Transport, owner: EngineOwner, network: Network | None = None
    ) -> None:
        self._transport, self._owner = transport, owner
        self.words = Words(transport)
        self.bells = Bells(transport)
        self.peer = Peer(transport)
        self._runnable: deque[QueuePair] = deque()
        self._stalled: set[QueuePair] = set()
        self._rung: deque[RemotePair] = deque()
        self._broken = ""
        self._held: deque[tuple[bytes, Answered]] = deque()
        """Commands of extensions, and who waits for them, until the peer has said what it knows."""
        self.requests = CommandRequests(transport, self.words, self.peer)
        self.bells.observe(self._commands_came, BELL_COMMAND)
        self.bells.observe(self._responses_came, BELL_RESPONSE)
        self.remote = RemoteResources(transport, self.words, self.bells, self.peer, self)
        self.execution = CommandExecution(transport, self.words, self.peer, self.remote.execute)
        self.local = LocalResources(
            transport, self.peer, self.requests, owner.event, self.make_runnable
        )
        self._requester = Requester(transport, self.peer, self.remote, self.local)
        self._responder = Responder(transport, self.peer, self.local)
        self.ethernet: Ethernet | None = None
        if network is not None:
            parts = transport, self.words, self.bells, self.peer
            self.ethernet = Ethernet(*parts, network, self._break)
        self.port = Port(transport, self.peer, self)
        self._observers: dict[int, Observer] = {}

    # -- what makes it go -----------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """True when the peer is present and has sent its addresses."""
        return self.port.ready

    @property
    def deadline(self) -> float:
        """The time at which `advance` has something to do; one in the past means at once."""
        if self._rung or self._broken or (self.ethernet is not None and self.ethernet.due):
            return 0.0
        at = min(self.port.deadline, self.requests.deadline)
        if self._stalled:
            at = min(at, *(pair.resume_at for pair in self._stalled))
        return at

    @property
    def throttled(self) -> bool:
        """True if queue pairs or frames wait only for stores to be carried out."""
        return bool(self._runnable) or (
            self.ethernet is not None and self.ethernet.sender.throttled
        )

    def link(self, up: bool, now: float) -> None:
        """Note that the peer has become reachable, or has ceased to be."""
        self.port.link(up, now)
        self.run(now)

    def advance(self, now: float) -> None:
        """Do what is due at `now`."""
        self.port.advance(now)
        if now >= self.requests.deadline:
            self.port.quiesce("the peer does not answer a command", now)
        self.run(now)

    def interrupt(self, now: float) -> None:
        """Take the peer's signal."""
        self.port.look(now)
        self.run(now)

    def stores_failed(self, now: float) -> None:
        """Begin anew with the peer, since stores were not carried out."""
        self.port.quiesce("stores into the peer's memory have failed", now)
        self.run(now)

    def run(self, now: float) -> None:
        """Serve queues and bells until there is nothing to do, or for some turns.

        Own requests leave first, before it takes the time to answer the peer's.
        """
        if self._stalled:
            self._resume_stalled(now)
        for _ in range(TURNS):
            busy = self._serve_pairs(now) if self._runnable else False
            rang = self.peer.known and self.bells.rung
            if rang:
                self._transport.flush()
                self.bells.serve()
            if self._broken:
                reason, self._broken = self._broken, ""
                self.port.quiesce(reason, now)
            if self._rung:
                busy |= self._serve_twins()
            if self.ethernet is not None:
                busy |= self.ethernet.serve()
            if self.peer.ready:
                self.requests.flush(now)
            if not busy and not (rang and self._runnable):
                break
        if self.ethernet is not None:
            self.ethernet.tell()
        self.peer.signal()
        self._transport.flush()

    def _resume_stalled(self, now: float) -> None:
        for pair in [pair for pair in self._stalled if pair.resume_at <= now]:
            self._stalled.discard(pair)
            self.make_runnable(pair)

    def make_runnable(self, pair: QueuePair) -> None:
        """Note that a queue pair may have something to send."""
        if pair not in self._runnable:
            self._runnable.append(pair)

    def _serve_twins(self) -> bool:
        for _ in range(len(self._rung)):
            twin = self._rung.popleft()
            produced = twin.send_produced.get()
            self._commands_came()  # those that were stored before these sends
            if self.remote.pair(twin.key) is twin and self._responder.serve(twin, produced):
                self._rung.append(twin)
        return bool(self._rung)

    def _serve_pairs(self, now: float) -> bool:
        """Serve each queue pair once; returns True if another round makes sense."""
        more = False
        for _ in range(len(self._runnable)):
            if self._requester.throttled():
                return False
            pair = self._runnable.popleft()
            if self._requester.work(pair, now):
                self._runnable.append(pair)
                more = True
            elif pair.resume_at > now and pair.sends.queue:
                self._stalled.add(pair)
        return more

    def _break(self, reason: str) -> None:
        """Disconnect from the peer in the next turn."""
        self._broken = reason

    # -- bells ----------------------------------------------------------------------------------

    def _commands_came(self) -> None:
        if not self.execution.serve():
            self._broken = "the peer's command index cannot be"

    def _responses_came(self) -> None:
        if not self.requests.take_responses():
            self._broken = "the peer's response index cannot be"

    def twin_rang(self, twin: RemotePair) -> None:
        """Note that the peer has sent to a twin."""
        if twin not in self._rung:
            self._rung.append(twin)

    # -- the port's owner -----------------------------------------------------------------------

    def restart(self) -> None:
        """Forget everything of the peer, and begin anew with own rings."""
        self.remote.clear()
        self._rung.clear()
        self.bells.restart()
        self.requests.restart()
        self.execution.restart()
        if self.ethernet is not None:
            self.ethernet.restart()

    def init_block(self) -> bytes:
        """Return the init block, which the peer needs of this side first."""
        message = self._transport.message
        values = {
            "version_tag": port_layout.VERSION_TAG,
            "msi_address": message.address,
            "msi_data": message.data,
            "msi_count": 1,
            "bells": self.bells.address,
            "bell_count": port_layout.DOORBELLS,
            "command_capacity": port_layout.COMMAND_CAPACITY,
            "responses": self.requests.responses.address,
            "response_index": self.requests.index.address,
            "bell_response": BELL_RESPONSE,
            "bell_command": BELL_COMMAND,
            "init_tag": port_layout.VERSION_TAG,
        }
        if self.ethernet is not None:
            values |= self.ethernet.init_values()
        return bytes(port_layout.PEER_INFO.pack(values))

    def introduced(self) -> None:
        """Begin the rings where the peer's stand: those of version 0.1 run on at a new meeting."""
        self.execution.restart(self.peer.command_index)
        if self.ethernet is not None:
            self.ethernet.sender.restart(self.peer.ethernet.index)

    def conf_block(self) -> bytes:
        """Return the conf block, which the peer needs of this side after the init block."""
        values = {
            "commands": self.execution.commands.address,
            "command_produced": self.execution.index.address,
            "conf_tag": port_layout.VERSION_TAG,
        }
        if self.ethernet is not None:
            values |= self.ethernet.conf_values()
        return bytes(port_layout.PEER_INFO.pack(values))

    def enabled(self) -> None:
        """Ask the peer for its extensions, and make twins there: it is ready now."""
        known = NONE.pack(op=CommandCode.NONE, tag=EXTENSIONS_TAG, extensions=EXTENSIONS)
        self.requests.post(known, self._take_extensions)
        self.local.enabled()
        if self.ethernet is not None:
            self.ethernet.enabled()
        self._owner.event(Event.PORT_UP, 0)

    def quiescing(self) -> None:
        """Note that the port begins to disconnect from its peer."""
        was_ready = self.peer.ready
        self.peer.ready = False
        self._rung.clear()
        self.local.quiescing()
        if self.ethernet is not None:
            self.ethernet.quiescing()
        if was_ready:
            self._owner.event(Event.PORT_DOWN, 0)

    def entered(self, state: PortState) -> None:
        """Note that the port is in a state and has told the peer."""
        self._owner.entered(state)

    def disabled(self) -> None:
        """Note that the peer is gone and nothing is under way."""
        self.local.disabled()

    # -- what users do ----------------------------------------------------------------------------

    def create_queue(self, notify: Callable[[], None]) -> CompletionQueue:
        """Make a completion queue; `notify` is called for its events. Raises `MemoryError`."""
        observer = self.bells.observe(lambda: queue.collect())
        queue = CompletionQueue(observer.index, notify)
        self._observers[observer.index] = observer
        return queue

    def destroy_queue(self, queue: CompletionQueue) -> None:
        """Free a completion queue whose queue pairs are gone."""
        observer = self._observers.pop(queue.bell, None)
        if observer is not None:
            self.bells.forget(observer)

    def create_pair(
        self,
        domain: Domain,
        sizes: Sizes,
        queues: tuple[CompletionQueue, CompletionQueue],
        done: Done,
    ) -> QueuePair:
        """Make a queue pair with queues for send and receive completions; `MemoryError`."""
        number = self.local.new_pair_number()
        pair = QueuePair(self._transport, self.words, number, domain, sizes, queues)
        self.local.add_pair(pair, done)
        return pair

    def post_send(self, pair: QueuePair, request: SendWr) -> None:
        """Take a request; it leaves with the next `run`. Raises `VerbsError`."""
        pair.sends.post(request, pair.sizes.signal_all)
        if pair.flushed:
            pair.sends.flush()
        else:
            self.make_runnable(pair)

    def post_receive(self, pair: QueuePair, request: RecvWr) -> None:
        """Take a receive. Raises `VerbsError`."""
        pair.receives.post(request)
        if pair.flushed:
            pair.receives.flush()

    def push_receives(self, pair: QueuePair) -> None:
        """Let posted receives reach the peer."""
        pair.push_receives(self.peer)

    def send_cm(self, mad: bytes, ip: int) -> bool:
        """Send a CM message to the peer at `ip`; returns False if there is no peer."""
        if not self.peer.ready or self.peer_connects is False:
            return False
        command = CM_MESSAGE.pack(op=CommandCode.CM_MESSAGE, pd_key=ip, mad=mad)
        self._ask_extension(command, lambda response: None)
        return True

    def resolve(self, ip: int, done: Done) -> None:
        """Ask the peer whether an IPv4 address is its own."""
        if not self.peer.ready:
            done(False)
            return
        self._ask_extension(
            RESOLVE.pack(op=CommandCode.RESOLVE, ip=ip),
            lambda response: done(response is not None and response[8:12] == bytes(4)),
        )

    @property
    def peer_connects(self) -> bool | None:
        """Whether the peer has a connection manager; None until it has said so."""
        known = self.peer.extensions
        return None if known is None else bool(known & CONNECTIONS)

    def _ask_extension(self, command: bytearray, done: Answered) -> None:
        """Send a command that version 0.1 does not know, to a peer that knows it."""
        if self.peer_connects is None:
            self._held.append((bytes(command), done))
        elif self.peer_connects:
            self.requests.post(command, done)
        else:
            done(None)

    def _take_extensions(self, response: bytes | None) -> None:
        """Learn what the peer knows beyond version 0.1, which sends the command back."""
        if response is not None:
            tagged = RESPONSE.get(response, "tag") == EXTENSIONS_TAG
            self.peer.extensions = RESPONSE.get(response, "extensions") if tagged else 0
        held, self._held = self._held, deque()
        for command, done in held:
            if self.peer_connects:
                self.requests.post(command, done)
            else:
                done(None)

    def cm_message(self, mad: bytes, ip: int) -> None:
        """Take a message of the peer's connection manager."""
        self._owner.cm_message(mad, ip)

    def has_address(self, ip: int) -> bool:
        """Return True if an IPv4 address is this side's."""
        return self._owner.has_address(ip)

    def part(self, now: float) -> None:
        """Disconnect from the peer for good; `close` follows when all stores are carried out."""
        self.port.quiesce("this side has closed", now)
        self._transport.shut()
        self.local.quiescing()

    def close(self) -> None:
        """Flush what is posted and forget the peer's objects; nothing may be under way any more."""
        self.disabled()
        self.remote.clear()
