"""The Ethernet device of the peer as its blocks describe it."""

from __future__ import annotations

from bluebridge.device.layout.ntrdma.ethernet import FRAME_BUFFER, FRAME_COMPLETION
from bluebridge.device.layout.ntrdma.port import ETHERNET_CAPACITY, PEER_INFO
from bluebridge.guest.protocols.ntrdma.engine.transport import Transport

_BUFFER_BYTES = ETHERNET_CAPACITY * FRAME_BUFFER.size
_COMPLETION_BYTES = ETHERNET_CAPACITY * FRAME_COMPLETION.size


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
        """Return True if a ring and its index can be stored to."""
        reaches = self._transport.reaches
        return not (ring | index) & 3 and reaches(ring, length) and reaches(index, 4)
