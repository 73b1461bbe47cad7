"""The Ethernet device of an engine: frames of a network interface cross the bridge."""

from __future__ import annotations

from typing import Protocol

from bluebridge.device.layout.ntrdma.port import BELL_ETHERNET, ETHERNET_CAPACITY
from bluebridge.guest.protocols.ntrdma.engine.frame_memory import FrameMemory
from bluebridge.guest.protocols.ntrdma.engine.frame_receiver import FrameReceiver
from bluebridge.guest.protocols.ntrdma.engine.frame_sender import FrameSender
from bluebridge.guest.protocols.ntrdma.engine.memory import Words
from bluebridge.guest.protocols.ntrdma.engine.peer import Peer
from bluebridge.guest.protocols.ntrdma.engine.remote_pair import CorruptRing
from bluebridge.guest.protocols.ntrdma.engine.transport import Transport

DELIVERED_AT_ONCE = 64
"""The most frames of the peer that are delivered in one turn."""


class Network(Protocol):
    """The network interface whose frames cross the bridge."""

    @property
    def frame_bytes(self) -> int:
        """The length of the longest frame, its header included."""

    @property
    def frame_count(self) -> int:
        """The number of buffers per direction, a power of two up to `ETHERNET_CAPACITY`."""

    def receive(self, frame: memoryview) -> None:
        """Take a frame that has come; its bytes are valid until this returns."""

    def set_carrier(self, up: bool) -> None:
        """Note that the peer's interface is present, or has gone."""


class Ethernet:
    """The Ethernet device: frames in both directions.

    A frame is sent by `space` and `send`; `tell` ends a burst of them.
    """

    def __init__(
        self,
        transport: Transport,
        words: Words,
        peer: Peer,
        network: Network,
    ) -> None:
        size, count = network.frame_bytes, network.frame_count
        assert count & count - 1 == 0 and 4 <= count <= ETHERNET_CAPACITY
        self.receiver = FrameReceiver(transport, words, peer, FrameMemory(transport, size, count))
        self.sender = FrameSender(transport, words, peer, FrameMemory(transport, size, count))
        self._rung = False
        self._peer = peer
        self._network = network
        self.broken = ""
        """The reason to disconnect from the peer, if there is one."""

    def rang(self) -> None:
        """Note that the peer has sent frames, or given back buffers."""
        self._rung = True

    @property
    def due(self) -> bool:
        """Return True if frames may have come that are not delivered."""
        return self._rung and self.ready

    @property
    def ready(self) -> bool:
        """True if the peer has an interface."""
        return self._peer.ready and self._peer.ethernet.there

    @property
    def wants_frames(self) -> bool:
        """Return True if a frame could be sent now; else wait for a bell, or for stores."""
        return self.ready and self.space() is not None

    def space(self) -> memoryview | None:
        """Return the memory for the next frame; None when it has to wait."""
        if not self.ready:
            return None
        try:
            return self.sender.space()
        except CorruptRing:
            self.broken = "the peer's index of Ethernet buffers cannot be"
            return None

    def send(self, length: int) -> None:
        """Send the frame in `space`."""
        self.sender.send(length)

    def serve(self) -> bool:
        """Deliver frames that came and return buffers; True if there is more to do."""
        if not self.due:
            return False
        try:
            frames = self.receiver.take(DELIVERED_AT_ONCE)
        except CorruptRing:
            self._rung = False
            self.broken = "the peer's index of Ethernet frames cannot be"
            return True
        for frame in frames:
            self._network.receive(frame)
        self.receiver.fill()  # the frames' memory is the peer's again
        self._rung = self.receiver.more
        return self._rung

    def tell(self) -> None:
        """Tell the peer about the frames of a burst."""
        if self.ready:
            self.sender.tell()

    # -- with the port --------------------------------------------------------------------------

    def restart(self) -> None:
        """Begin with empty rings."""
        self._rung, self.broken = False, ""
        self.receiver.restart()
        self.sender.restart()

    def enabled(self) -> None:
        """Note that the peer is ready."""
        if self.ready:
            self._rung = True
            self.receiver.fill()
            self._network.set_carrier(True)

    def quiescing(self) -> None:
        """Switch the carrier off, since the peer is being parted from."""
        self._rung = self.sender.throttled = False
        self._network.set_carrier(False)

    def init_values(self) -> dict[str, int]:
        """Return the fields of the init block that are about Ethernet."""
        return {
            "ethernet_capacity": ETHERNET_CAPACITY,
            "ethernet_completions": self.receiver.lengths.address,
            "ethernet_consumed": self.receiver.consumed.address,
            "ethernet_bell": BELL_ETHERNET,
        }

    def conf_values(self) -> dict[str, int]:
        """Return the fields of the conf block that are about Ethernet."""
        return {
            "ethernet_buffers": self.sender.buffers.address,
            "ethernet_produced": self.sender.produced.address,
            "ethernet_send_bell": BELL_ETHERNET,
        }
