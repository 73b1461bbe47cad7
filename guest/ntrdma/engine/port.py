"""The port: how two ends find each other, agree, watch each other and part (v0.1 ntrdma_port.c).

Up to state 4 the peer's ping word is read from a scratchpad, from state 5 on from memory, so no
scratchpad is touched while a port is ready. A word counts when it has changed since the port began
to look: what a peer left behind that died is not taken for a live one. Unlike version 0.1 a port
begins in state 1 with its memory shut, and opens it when the peer has acknowledged the reset: what
an earlier peer still stores finds nothing.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from bluebridge.device.layout.ntrdma.port import PortState
from bluebridge.guest.ntrdma.engine.blocks import Blocks
from bluebridge.guest.ntrdma.engine.peer import Peer
from bluebridge.guest.ntrdma.engine.transport import Host, Transport

PING_SECONDS = 0.2
POLL_SECONDS = 0.7
MISSES = 10
SILENT_SECONDS = 2.1
"""The seconds without a new word of the peer after which the way to it is looked at."""
EAGER_SECONDS = 0.02
"""The seconds between two looks and pings until the port is ready."""
DRAIN_SECONDS = 1.0
"""The seconds that stores may take when a port quiesces, before they are abandoned."""


class Row(NamedTuple):
    """The states of the peer that advance a state, and those that leave it as it is."""

    advance: frozenset[int]
    tolerate: frozenset[int]


ROWS = {
    PortState.RESET_REQUESTED: Row(frozenset({1, 2}), frozenset(range(7))),
    PortState.RESET_ACKNOWLEDGED: Row(frozenset({2, 3}), frozenset(range(7))),
    PortState.SPADS_READY: Row(frozenset({3, 4}), frozenset({2})),
    PortState.INIT_READY: Row(frozenset({4, 5}), frozenset({3})),
    PortState.CONF_READY: Row(frozenset({5, 6}), frozenset({4})),
    PortState.READY: Row(frozenset({6}), frozenset({5})),
}


class PortOwner(Protocol):
    """The calls that a port makes when its state changes."""

    def restart(self) -> None:
        """Forget everything of the peer and start own rings anew; its stores land no more."""

    def introduced(self) -> None:
        """Begin the rings where the peer's stand, as its init block says."""

    def enabled(self) -> None:
        """Make twins of all resources at the peer, which is ready."""

    def disabled(self) -> None:
        """End what waits for the peer, which is lost; nothing is under way any more."""

    def quiescing(self) -> None:
        """Note that the port begins to disconnect from its peer."""


class Port:
    """The port's state machine, which fills in `peer` as the blocks of the other side come."""

    def __init__(
        self, transport: Transport, peer: Peer, blocks: Blocks, owner: PortOwner, host: Host
    ) -> None:
        self.state = PortState.RESET_REQUESTED
        self.silent = False
        """True while the peer's word has not changed for `SILENT_SECONDS`."""
        self.reason = "it has not been up yet"
        """The reason for which the port was last quiesced."""
        self.up = False
        self._transport, self._peer, self._owner, self._host = transport, peer, owner, host
        self._blocks = blocks
        self.block, self.words = blocks.view, blocks.words
        self._seen = 0
        self._word = 0
        self._last_change = self._next_ping = self._next_poll = 0.0
        self._drain_until = 0.0
        self.ready = False
        """True when both sides are ready."""

    @property
    def deadline(self) -> float:
        """The time at which `advance` has something to do."""
        if self.state is PortState.QUIESCE:
            return self._next_ping
        return min(self._next_ping, self._next_poll) if self.up else float("inf")

    def link(self, up: bool, now: float) -> None:
        """Note that the peer has become reachable, or has ceased to be."""
        if up == self.up:
            return
        self.up = up
        if not up:
            self.quiesce("the link is down", now)
            return
        self._word = self._load()
        self._last_change = now
        self._next_poll = now
        self._ping(now, self.state)
        self._host.entered(self.state)

    def quiesce(self, reason: str, now: float) -> None:
        """Disconnect from the peer and begin anew."""
        if self.state < PortState.SPADS_READY:
            return
        self.reason = reason
        self._owner.quiescing()
        self._transport.shut()
        self._enter(PortState.QUIESCE, now)
        self.ready = False
        self._peer.forget()
        self._drain_until = now + DRAIN_SECONDS
        self._next_ping = now

    def advance(self, now: float) -> None:
        """Do what is due at `now`."""
        if self.state is PortState.QUIESCE:
            self._drain(now)
        if not self.up or self.state is PortState.QUIESCE:
            return
        if now >= self._next_ping:
            self._ping(now, self.state)
        if now >= self._next_poll:
            self._next_poll = now + (POLL_SECONDS if self.ready else EAGER_SECONDS)
            self._poll(now)

    def look(self, now: float) -> None:
        """Look at the peer's state, which may have changed with its signal."""
        if self.state >= PortState.CONF_READY:
            self._poll(now)

    # -- own side -------------------------------------------------------------------------------

    def _drain(self, now: float) -> None:
        """Wait in the quiesced state until the posted stores are carried out."""
        if self._transport.done < self._transport.posted:
            if now < self._drain_until:
                self._next_ping = now + EAGER_SECONDS / 10
                return
            self._transport.abandon()
        self._owner.disabled()
        self._seen = 0
        self._enter(PortState.RESET_REQUESTED, now)
        self._word = 0 if not self.up else self._load()
        self._next_poll = now

    def _enter(self, state: PortState, now: float) -> None:
        """Go to a state and tell the peer, also where the state before told it."""
        before, self.state = self.state, state
        if state is PortState.CONF_READY:
            self._word = 0  # from here on it is the word in memory, which the peer's reset cleared
        if self.up:
            self._ping(now, before)
        self._host.entered(state)

    def _ping(self, now: float, before: PortState) -> None:
        self._next_ping = now + (PING_SECONDS if self.ready else EAGER_SECONDS)
        self._blocks.store_ping(before, self.state)

    # -- the peer's side ------------------------------------------------------------------------

    def _load(self) -> int:
        return self._blocks.load_ping(self.state)

    def _poll(self, now: float) -> None:
        word = self._load()
        self.silent = now - self._last_change >= SILENT_SECONDS and self.ready
        if word != self._word:
            self._word = word
            self._last_change = now
            self.silent = False
            self._event(word >> 16, now)
        elif now - self._last_change >= MISSES * POLL_SECONDS:
            self.quiesce("the peer does not answer", now)

    def _event(self, theirs: int, now: float) -> None:
        while True:
            mine = self.state
            if mine is PortState.QUIESCE:
                return
            row = ROWS[mine]
            lower = mine > PortState.RESET_ACKNOWLEDGED and theirs < self._seen
            self._seen = theirs
            if lower or theirs not in row.advance | row.tolerate:
                self.quiesce(f"the peer went to state {theirs}", now)
                return
            if theirs not in row.advance:
                return
            if mine is PortState.READY:
                if not self.ready:
                    self.ready = self._peer.ready = True
                    self._owner.enabled()
                return
            problem = self._advanced(mine, now)
            if problem:
                self.quiesce(problem, now)
                return

    def _advanced(self, mine: PortState, now: float) -> str:
        """Leave a state for the next; returns the reason if that fails, else ""."""
        match mine:
            case PortState.RESET_REQUESTED:
                self._owner.restart()  # nobody stores into the memory now; then the peer may
                self._blocks.clear()
                self._transport.open()
            case PortState.RESET_ACKNOWLEDGED:
                self._blocks.store_spads()
            case PortState.SPADS_READY:
                if problem := self._blocks.take_spads():
                    return problem
                self._blocks.store_init()
            case PortState.INIT_READY:
                if not self._peer.take_init(bytes(self.block)):
                    return "the peer's init block makes no sense"
                self._owner.introduced()
                self._blocks.store_conf()
            case PortState.CONF_READY:
                if not self._peer.take_conf(bytes(self.block)):
                    return "the peer's conf block makes no sense"
        self._enter(PortState(mine + 1), now)
        return ""
