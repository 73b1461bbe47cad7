"""The ping word, by which each end tells the other its state and that it lives."""

from __future__ import annotations

from bluebridge.device.layout.ntrdma import port as layout
from bluebridge.device.layout.ntrdma.port import PortState, Spad
from bluebridge.guest.protocols.ntrdma.engine.blocks import Blocks
from bluebridge.guest.protocols.ntrdma.engine.peer import Peer
from bluebridge.guest.protocols.ntrdma.engine.transport import Transport

_OFFSET = layout.PEER_INFO.field("ping").offset


class PingWord:
    """The ping words of both ends: in a scratchpad up to state 4, from state 5 on in memory."""

    def __init__(self, transport: Transport, peer: Peer, blocks: Blocks) -> None:
        self._transport, self._peer, self._blocks = transport, peer, blocks
        self._sequence = 0
        self._told = 0
        """Stores up to the one that told the peer of the state."""

    def load(self, state: PortState) -> int:
        """Return the peer's word, as a port in `state` reads it."""
        if state <= PortState.INIT_READY:
            return self._transport.load_spad(Spad.PING)
        word: int = self._blocks.words[_OFFSET // 4]
        return word

    def store(self, before: PortState, state: PortState) -> None:
        """Write this side's word where the peer reads it; `before` was the state until now."""
        self._sequence = self._sequence + 1 & 0xFFFF
        word = state << 16 | self._sequence
        if self._blocks.peer and max(before, state) >= PortState.INIT_READY:
            at = self._blocks.peer + _OFFSET
            if before is state and self._transport.done >= self._told:
                self._transport.word(at, word)  # the peer has all that the state promises
            else:
                self._transport.fence()
                self._transport.imm32(at, word)
            if before is not state:
                self._told = self._transport.posted
                self._peer.interrupt()
        if min(before, state) <= PortState.CONF_READY:
            self._transport.store_spad(Spad.PING, word)
