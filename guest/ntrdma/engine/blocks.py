"""The blocks and ping words by which both ends introduce themselves and tell that they live."""

from __future__ import annotations

from bluebridge.device.layout.ntrdma import port as layout
from bluebridge.device.layout.ntrdma.port import (
    BELL_COMMAND,
    BELL_ETHERNET,
    BELL_RESPONSE,
    PortState,
    Spad,
)
from bluebridge.guest.ntrdma.engine.ethernet import Ethernet
from bluebridge.guest.ntrdma.engine.memory import Bells
from bluebridge.guest.ntrdma.engine.own_commands import CommandExecution, OwnCommands
from bluebridge.guest.ntrdma.engine.peer import Peer
from bluebridge.guest.ntrdma.engine.transport import Transport

_OFFSET = layout.PEER_INFO.field("ping").offset


class Blocks:
    """This side's PEER_INFO, into which the peer stores, and what is stored into the peer's."""

    def __init__(
        self,
        transport: Transport,
        peer: Peer,
        bells: Bells,
        commands: OwnCommands,
        execution: CommandExecution,
        ethernet: Ethernet | None,
    ) -> None:
        self._transport, self._addresses, self._bells = transport, peer, bells
        self._commands, self._execution, self._ethernet = commands, execution, ethernet
        self._memory = transport.map(layout.PEER_INFO.size, 64)
        self.view = self._memory.view
        self.words = self._memory.view.cast("I")
        self.peer = 0
        """The address of the peer's PEER_INFO; 0 until it is known."""
        self._sequence = 0
        self._told = 0
        """Stores up to the one that told the peer of the state."""

    def clear(self) -> None:
        """Forget the peer's address and what it has stored."""
        self.peer = 0
        self.view[:] = bytes(len(self.view))

    def store_spads(self) -> None:
        """Store versions and address of this side into the peer's scratchpads."""
        address = self._memory.address
        self._transport.store_spad(Spad.VERSION, layout.VERSION | layout.VERSION << 16)
        self._transport.store_spad(Spad.ADDRESS_LOW, address & 0xFFFFFFFF)
        self._transport.store_spad(Spad.ADDRESS_HIGH, address >> 32)

    def take_spads(self) -> str:
        """Take the peer's versions and block address; returns the reason if invalid, else ""."""
        load = self._transport.load_spad
        versions = load(Spad.VERSION)
        highest, lowest = versions & 0xFFFF, versions >> 16
        if not lowest <= layout.VERSION <= highest:
            return f"the peer speaks versions {lowest} to {highest}, not {layout.VERSION}"
        address = load(Spad.ADDRESS_LOW) | load(Spad.ADDRESS_HIGH) << 32
        if address & 7 or not address or not self._transport.reaches(address, len(self.view)):
            return f"the peer's block cannot be at {address:#x}"
        self.peer = address
        return ""

    def store_init(self) -> None:
        """Store the init block, which the peer needs of this side first, and then its tag."""
        message, commands = self._transport.message, self._commands
        values = {
            "version_tag": layout.VERSION_TAG,
            "msi_address": message.address,
            "msi_data": message.data,
            "msi_count": 1,
            "bells": self._bells.address,
            "bell_count": layout.DOORBELLS,
            "command_capacity": layout.COMMAND_CAPACITY,
            "responses": commands.responses.address,
            "response_index": commands.index.address,
            "bell_response": BELL_RESPONSE,
            "bell_command": BELL_COMMAND,
            "init_tag": layout.VERSION_TAG,
        }
        if self._ethernet is not None:
            receiver = self._ethernet.receiver
            values |= {
                "ethernet_capacity": layout.ETHERNET_CAPACITY,
                "ethernet_completions": receiver.lengths.address,
                "ethernet_consumed": receiver.consumed.address,
                "ethernet_bell": BELL_ETHERNET,
            }
        self._store(layout.INIT_BLOCK, values)
        self._transport.write(self.peer, layout.VERSION_TAG.to_bytes(4, "little"))
        self._transport.fence()

    def store_conf(self) -> None:
        """Store the conf block, which the peer needs of this side after the init block."""
        values = {
            "commands": self._execution.commands.address,
            "command_produced": self._execution.index.address,
            "conf_tag": layout.VERSION_TAG,
        }
        if self._ethernet is not None:
            sender = self._ethernet.sender
            values |= {
                "ethernet_buffers": sender.buffers.address,
                "ethernet_produced": sender.produced.address,
                "ethernet_send_bell": BELL_ETHERNET,
            }
        self._store(layout.CONF_BLOCK, values)
        self._transport.fence()

    def _store(self, part: slice, values: dict[str, int]) -> None:
        block = bytes(layout.PEER_INFO.pack(values))
        self._transport.write(self.peer + part.start, block[part])

    def load_ping(self, state: PortState) -> int:
        """Return the peer's ping word: a scratchpad up to state 4, from state 5 on in memory."""
        if state <= PortState.INIT_READY:
            return self._transport.load_spad(Spad.PING)
        word: int = self.words[_OFFSET // 4]
        return word

    def store_ping(self, before: PortState, state: PortState) -> None:
        """Write this side's word where the peer reads it; `before` was the state until now."""
        self._sequence = (self._sequence + 1) & 0xFFFF
        word = state << 16 | self._sequence
        if self.peer and max(before, state) >= PortState.INIT_READY:
            at = self.peer + _OFFSET
            if before is state and self._transport.done >= self._told:
                self._transport.word(at, word)  # the peer has all that the state promises
            else:
                self._transport.fence()
                self._transport.imm32(at, word)
            if before is not state:
                self._told = self._transport.posted
                self._addresses.interrupt()
        if min(before, state) <= PortState.CONF_READY:
            self._transport.store_spad(Spad.PING, word)
