"""One end of NTRDMA: its parts are joined here and served in turns."""

from __future__ import annotations

from collections import deque

from bluebridge.device.layout.ntrdma.port import BELL_COMMAND, BELL_ETHERNET, BELL_RESPONSE
from bluebridge.guest.ntrdma.engine.blocks import Blocks
from bluebridge.guest.ntrdma.engine.ethernet import Ethernet, Network
from bluebridge.guest.ntrdma.engine.memory import Bells, Words
from bluebridge.guest.ntrdma.engine.own_commands import CommandExecution
from bluebridge.guest.ntrdma.engine.own_side import OwnSide
from bluebridge.guest.ntrdma.engine.peer import Peer
from bluebridge.guest.ntrdma.engine.port import Port
from bluebridge.guest.ntrdma.engine.remote import RemoteResources
from bluebridge.guest.ntrdma.engine.requester import Requester
from bluebridge.guest.ntrdma.engine.responder import PeerSide
from bluebridge.guest.ntrdma.engine.transport import Action, Event, Happened, Host, Transport

TURNS = 8
"""The most rounds over all queues in one call."""


class Engine:
    """One end of NTRDMA: `own` for its users, twins of the peer's resources, the port between.

    After each call the owner carries out `actions`. With a `network` there is an Ethernet device,
    `ethernet`.
    """

    def __init__(self, transport: Transport, host: Host, network: Network | None = None) -> None:
        self._transport = transport
        self.actions: deque[Action] = deque()
        self.words = words = Words(transport)
        self.bells = Bells(transport)
        self.peer = Peer(transport)
        self.bells.observe(BELL_COMMAND)
        self.bells.observe(BELL_RESPONSE)
        self.own = own = OwnSide(words, self.bells, self.peer, self.actions)
        self.remote = RemoteResources(transport, words, self.bells, self.peer, host, self.actions)
        execution = CommandExecution(transport, words, self.peer)
        self.theirs = PeerSide(execution, self.remote, self.peer, own.resources)
        self._requester = Requester(self.peer, self.remote, own.resources, own.schedule)
        self.ethernet: Ethernet | None = None
        if network is not None:
            self.bells.observe(BELL_ETHERNET)
            self.ethernet = Ethernet(transport, words, self.peer, network)
        blocks = Blocks(transport, self.peer, self.bells, own.commands, execution, self.ethernet)
        self.port = Port(transport, self.peer, blocks, self, host)
        self._broken = ""

    # -- events ---------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """True when the peer is present and has sent its addresses."""
        return self.port.ready

    @property
    def deadline(self) -> float:
        """The time at which `advance` has something to do; one in the past means at once."""
        if self.theirs.rung or self._reason or (self.ethernet and self.ethernet.due):
            return 0.0
        return min(self.port.deadline, self.own.deadline)

    @property
    def throttled(self) -> bool:
        """True if queue pairs or frames wait only for stores to be carried out."""
        frames = self.ethernet is not None and self.ethernet.sender.throttled
        return frames or bool(self.own.schedule.runnable)

    @property
    def due(self) -> bool:
        """True if there is something to do for this side's users: `run`, or actions."""
        return bool(self.actions) or self.throttled or self.own.deadline == 0.0

    def link(self, up: bool, now: float) -> None:
        """Note that the peer has become reachable, or has ceased to be."""
        self.own.settle()
        self.port.link(up, now)
        self.run(now)

    def advance(self, now: float) -> None:
        """Do what is due at `now`."""
        self.own.settle()
        self.port.advance(now)
        if now >= self.own.commands.deadline:
            self.port.quiesce("the peer does not answer a command", now)
        self.run(now)

    def interrupt(self, now: float) -> None:
        """Take the peer's signal."""
        self.own.settle()
        self.port.look(now)
        self.run(now)

    def stores_failed(self, now: float) -> None:
        """Begin anew with the peer, since stores were not carried out."""
        self.own.settle()
        self.port.quiesce("stores into the peer's memory have failed", now)
        self.run(now)

    def run(self, now: float) -> None:
        """Serve queues and bells until there is nothing to do, or for some turns.

        Own requests leave first, before it takes the time to answer the peer's.
        """
        self.own.settle()
        self.own.schedule.resume(now)
        for _ in range(TURNS):
            busy = self._requester.serve(now) if self.own.schedule.runnable else False
            rang = self.peer.known and self.bells.rung
            if rang:
                self._transport.flush()
                self._serve_bells()
            if self._reason:
                self.port.quiesce(self._reason, now)
                self._broken = self.theirs.broken = ""
                if self.ethernet is not None:
                    self.ethernet.broken = ""
            if self.theirs.rung:
                busy |= self.theirs.serve()
            if self.ethernet is not None:
                busy |= self.ethernet.serve()
            self.own.settle()
            if self.peer.ready:
                self.own.commands.flush(now)
            if not busy and not (rang and self.own.schedule.runnable):
                break
        if self.ethernet is not None:
            self.ethernet.tell()
        self.peer.signal()
        self._transport.flush()

    @property
    def _reason(self) -> str:
        return self._broken or self.theirs.broken or (self.ethernet and self.ethernet.broken) or ""

    def _serve_bells(self) -> None:
        for bell in self.bells.take():
            if bell == BELL_COMMAND:
                self.theirs.execute()
            elif bell == BELL_RESPONSE:
                if not self.own.take_responses():
                    self._broken = "the peer's response index cannot be"
            elif bell == BELL_ETHERNET and self.ethernet is not None:
                self.ethernet.rang()
            elif bell in self.own.queues:
                self.own.queues[bell].collect()
            elif bell in self.remote.by_bell:
                self.theirs.rang(self.remote.by_bell[bell])

    # -- the port's owner -----------------------------------------------------------------------

    def restart(self) -> None:
        self.theirs.clear()
        self.bells.restart()
        self.own.commands.restart()
        if self.ethernet is not None:
            self.ethernet.restart()

    def introduced(self) -> None:
        self.theirs.execution.restart(self.peer.command_index)
        if self.ethernet is not None:
            self.ethernet.sender.restart(self.peer.ethernet.index)

    def enabled(self) -> None:
        self.own.enabled()
        if self.ethernet is not None:
            self.ethernet.enabled()
        self.actions.append(Happened(Event.PORT_UP, 0))

    def quiescing(self) -> None:
        was_ready, self.peer.ready = self.peer.ready, False
        self.theirs.rung.clear()
        self.own.quiescing()
        if self.ethernet is not None:
            self.ethernet.quiescing()
        if was_ready:
            self.actions.append(Happened(Event.PORT_DOWN, 0))

    def disabled(self) -> None:
        self.own.disabled()

    def part(self, now: float) -> None:
        """Disconnect from the peer for good; `close` follows when all stores are carried out."""
        self.own.settle()
        self.port.quiesce("this side has closed", now)
        self._transport.shut()
        self.own.quiescing()

    def close(self) -> None:
        """Flush what is posted and forget the peer's objects; nothing may be under way any more."""
        self.own.disabled()
        self.remote.clear()
