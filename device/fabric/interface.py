"""The interface that a network transport implements, and that of the ports it connects.

A `Fabric` carries whole messages (`bluebridge.device.fabric.messages`) between the ports attached
to it. `CapturedFabric` is a decorator: a `Fabric` in front of another one for one port. A network
of a server is a `LocalFabric`: it also lets a `Stage` in front of delivery drop, delay, duplicate
or hold messages (`bluebridge.device.fabric.faults`), since a fault of a link concerns what comes
in, too. A cable that is unplugged needs none: its port announces that its link is down. Which
transport a network has is decided in one place, `bluebridge.device.server.networks`.

Addresses: a fabric never asks a port anything while it delivers. A port announces its unicast
addresses and its link state whenever one of them changes, and the fabric keeps tables of them.
Filters of group addresses are the receiver's own: messages to a group reach every port. An
InfiniBand subnet is the exception: LIDs, link states and group members are those of its port agents
and of the switch's tables, which change with them.

Payload: the views in `Request.payload` and `Response.payload` are the sender's memory. They are
valid, and may change, until the outermost `send` returns; a port that keeps a message or a part of
it beyond `receive` copies those bytes first. A fabric that delivers after `send` has returned owns
a copy from the start. `Datagram.payload`, `Datagram.grh` and the frames of a `Train` are immutable
`bytes`: they may be kept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence, Set
from typing import Protocol

from bluebridge.device.fabric.messages import ConnectedPacket, Message

Later = Callable[[float, Callable[[], None]], object]
"""Function that calls an action after so many seconds, in order if times are equal."""


class FabricPort(Protocol):
    """An end of a cable: the port of an HCA or of a switch."""

    def receive(self, message: Message) -> int:
        """Receive a message; must not raise for anything that a peer may send.

        Returns the copies made for members of a group or of a rule, or for rings that get the same
        frame: 0 for a message to one queue. They are the sender's cost.
        """


class Fabric(Protocol):
    """A network: it connects ports and carries their messages."""

    def attach(self, port: FabricPort) -> None:
        """Connect a port, whose link is down until it announces another state."""

    def detach(self, port: FabricPort) -> None:
        """Disconnect a port; messages for it are lost, those that are queued too."""

    def announce(self, port: FabricPort, addresses: Set[bytes], *, up: bool) -> None:
        """Set a port's unicast addresses and its link state, which replace earlier ones.

        Addresses are those of the link layer, MAC addresses of 6 bytes, and GIDs of 16 bytes. While
        the link is down the port receives nothing, and what it sends is lost.
        """

    def send(self, source: FabricPort, message: Message) -> int:
        """Deliver `message`, in order per pair of ports; lost when no port has its address.

        A message for the sender's own address loops back. Broadcast and multicast frames reach
        every other port. Delivery may happen before `send` returns only when no delivery is
        already running: nested sends are queued, so that there is no recursion.

        Returns the copies that receivers made (`FabricPort.receive`), which the sender is charged
        with; 0 for a message that was queued.
        """


class Cancellable(Protocol):
    """A call to come."""

    def cancel(self) -> None:
        """Forget the call; this has no effect when it has already run."""


class PacketCarrier(ABC):
    """A fabric that carries the packets of connections, too."""

    @abstractmethod
    def send_packets(self, messages: Sequence[ConnectedPacket]) -> None:
        """Deliver packets of one connection in a later turn of the loop, or lose them."""

    @abstractmethod
    def admits(self, size: int, fits: bool) -> bool:
        """Return True if a packet that was delivered may wait at the port; else count it as lost.

        `fits`: the port has room for it, too.
        """

    @abstractmethod
    def crowded(self, address: bytes) -> bool:
        """Return True while much waits for the port with this address: data had better wait."""

    @abstractmethod
    def settle(self, action: Callable[[], None]) -> Cancellable:
        """Call an action when what is under way inside the process has arrived."""

    @abstractmethod
    def hold(self, change: int) -> None:
        """Count so many bytes more, or fewer, of packets that wait at the port."""


class PacketPort(ABC):
    """A port that a `PacketCarrier` hands packets to."""

    @abstractmethod
    def receive_packet(self, message: ConnectedPacket) -> None:
        """Receive a packet; must not raise for anything that a peer may send."""

    @abstractmethod
    def packet_lost(self, count: int) -> None:
        """Take note that a packet was dropped for want of room, and how many in all."""


class Stage(Protocol):
    """A filter in front of delivery while links have faults (`bluebridge.device.fabric.faults`)."""

    def admit(
        self, source: FabricPort, targets: Sequence[FabricPort], message: Message
    ) -> tuple[Sequence[FabricPort], int]:
        """Return the `targets` that get a message now, once for each time, and the copies made."""
