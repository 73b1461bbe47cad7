"""The peer as its blocks describe it: addresses are checked once, then stored to."""

from __future__ import annotations

from bluebridge.device.layout.ntrdma import port as layout
from bluebridge.device.layout.ntrdma.commands import ORDERED
from bluebridge.device.layout.ntrdma.port import ETHERNET_CAPACITY, PEER_INFO
from bluebridge.device.layout.ntrdma.work import FRAME_BUFFER, FRAME_COMPLETION
from bluebridge.guest.ntrdma.engine.transport import Message, Transport

_BUFFER_BYTES = ETHERNET_CAPACITY * FRAME_BUFFER.size
_COMPLETION_BYTES = ETHERNET_CAPACITY * FRAME_COMPLETION.size

_BASE = layout.FIRST_DYNAMIC_BELL


class PeerEthernet:
    """The addresses at the peer for lengths of sent frames and empty buffers, and both bells."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.there = False
        """True if the peer has an Ethernet device; all other attributes need it."""
        self.completions = self.consumed = self.bell = 0
        self.index = 0
        """The index at which the peer's ring of buffers stands."""
        self.buffers = self.produced = self.send_bell = 0

    def take_init(self, block: bytes, bell_count: int) -> bool:
        """Take the Ethernet part of the init block; returns False if it is invalid."""
        get = PEER_INFO.get
        capacity = get(block, "ethernet_capacity")
        self.there = bool(capacity)
        self.completions = get(block, "ethernet_completions")
        self.consumed = get(block, "ethernet_consumed")
        self.bell = get(block, "ethernet_bell")
        self.index = get(block, "ethernet_index")
        return not self.there or (
            capacity == ETHERNET_CAPACITY
            and self.index < 2 * ETHERNET_CAPACITY
            and self.bell < bell_count
            and self._holds(self.completions, _COMPLETION_BYTES, self.consumed)
        )

    def take_conf(self, block: bytes, bell_count: int) -> bool:
        """Take the Ethernet part of the conf block; returns False if it is invalid."""
        get = PEER_INFO.get
        self.buffers = get(block, "ethernet_buffers")
        self.produced = get(block, "ethernet_produced")
        self.send_bell = get(block, "ethernet_send_bell")
        return not self.there or (
            self.send_bell < bell_count and self._holds(self.buffers, _BUFFER_BYTES, self.produced)
        )

    def _holds(self, ring: int, length: int, index: int) -> bool:
        reaches = self._transport.reaches
        return not (ring | index) & 3 and reaches(ring, length) and reaches(index, 4)


class Peer:
    """The addresses at the peer, known once its blocks are taken, and the counters of its bells."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.ready = False
        self.ethernet = PeerEthernet(transport)
        self.commands = self.command_produced = 0
        self.responses = self.response_index = 0
        self.command_capacity = self.command_index = 0
        self.extensions: int | None = None
        """The extensions of version 0.1 that it knows; None until it has answered."""
        self.bell_command = self.bell_response = 0
        self._bells = self._bell_count = 0
        self._message = Message(0, 0)
        self._rings: dict[int, int] = {}
        """Counts of the peer's bells, which go on at a new meeting.

        A peer of version 0.1 remembers the last one, and takes the same count for no ring.
        """
        self.known = False
        """True once the peer's init block was taken, so that it can be answered."""
        self._signal_due = False

    @property
    def ordered(self) -> bool:
        """True if it carries out a command before the sends that are stored behind it."""
        return bool((self.extensions or 0) & ORDERED)

    def take_init(self, block: bytes) -> bool:
        """Take the init block out of a PEER_INFO; returns False if it is invalid."""
        get = layout.PEER_INFO.get
        self._message = Message(get(block, "msi_address"), get(block, "msi_data"))
        self._bells, self._bell_count = get(block, "bells"), get(block, "bell_count")
        self.command_capacity = get(block, "command_capacity")
        self.command_index = get(block, "command_index")
        self.responses = get(block, "responses")
        self.response_index = get(block, "response_index")
        self.bell_command = get(block, "bell_command")
        self.bell_response = get(block, "bell_response")
        reaches = self.transport.reaches
        self.known = (
            get(block, "version_tag") == get(block, "init_tag") == layout.VERSION_TAG
            and self.command_capacity == layout.COMMAND_CAPACITY
            and self.command_index < 2 * self.command_capacity
            and self._bell_count >= _BASE
            and max(self.bell_command, self.bell_response) < self._bell_count
            and not (self._message.address | self._bells | self.response_index) & 3
            and (not self._message.address or reaches(self._message.address, 4))
            and reaches(self._bells, 4 * self._bell_count)
            and reaches(self.responses, self.command_capacity * 64)
            and reaches(self.response_index, 4)
            and self.ethernet.take_init(block, self._bell_count)
        )
        return self.known

    def take_conf(self, block: bytes) -> bool:
        """Take the conf block out of a PEER_INFO; returns False if it is invalid."""
        get = layout.PEER_INFO.get
        self.commands = get(block, "commands")
        self.command_produced = get(block, "command_produced")
        reaches = self.transport.reaches
        return (
            get(block, "conf_tag") == layout.VERSION_TAG
            and not self.command_produced & 3
            and reaches(self.commands, layout.COMMAND_CAPACITY * 256)
            and reaches(self.command_produced, 4)
            and self.ethernet.take_conf(block, self._bell_count)
        )

    def has_bell(self, bell: int) -> bool:
        """Return True if the peer has a bell of this number."""
        return bell < self._bell_count

    def publish(self, index_address: int, index: int, bell: int) -> None:
        """Store the ring's index, then the bell, behind all entries copied so far; signal later.

        The order is copies, fence, index, bell, fence, interrupt.
        """
        self.publish_quietly(index_address, index)
        count = (self._rings.get(bell, 0) + 1) & 0xFFFFFFFF
        self._rings[bell] = count
        self.transport.imm32(self._bells + 4 * bell, count)
        self._signal_due = True

    def publish_quietly(self, index_address: int, index: int) -> None:
        """Store the ring's index alone, behind all entries copied so far."""
        self.transport.fence()
        self.transport.imm32(index_address, index)

    def interrupt(self) -> None:
        """Interrupt the peer behind all stores so far, if its interrupt address is known."""
        self._signal_due = self.known
        self.signal()

    def signal(self) -> None:
        """Interrupt once for everything published since the last time."""
        if self._signal_due:
            self._signal_due = False
            self.transport.fence()
            self.transport.signal(self._message)

    def forget(self) -> None:
        """Forget the addresses of a peer that is gone or begins anew."""
        self.ready = self._signal_due = self.known = False
        self.extensions = None
