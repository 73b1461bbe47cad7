"""A port of an adapter: link, sources, counters, connection to a fabric."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from bluebridge.device.fabric.addresses import LinkLayer
from bluebridge.device.fabric.interface import Cancellable, Fabric, PacketCarrier, PacketPort
from bluebridge.device.fabric.messages import ConnectedPacket, Datagram, Frames, Message, Route
from bluebridge.device.layout.events import Fact
from bluebridge.device.pci.bus import HostBus
from bluebridge.device.rdma.ports.counters import Diagnostics, FrameCounters
from bluebridge.device.rdma.ports.datagram_headers import parse_datagram
from bluebridge.device.rdma.ports.face import PortEvents
from bluebridge.device.rdma.ports.flow_control import FlowControl
from bluebridge.device.rdma.ports.port_tables import Path, Sources, Tables, roce_route
from bluebridge.device.throttle import Throttle

MAX_ROUTES: Final = 1024
"""Most routes of datagrams that a port remembers."""


Deliver = Callable[["Port", Message | ConnectedPacket], int]
"""Function that takes a message a port received and returns the number of copies made of it."""


def _drop(port: Port, message: Message | ConnectedPacket) -> int:
    """Drop a message, for a port that is not attached."""
    return 0


class Port(PacketPort):
    """Port `number` (from 1 on) of an adapter on Ethernet: a `FabricPort`.

    `cable` says whether the fabric is plugged in; the rest comes from the guest. `burned_in` is
    the MAC address of the port until its `sources` are others. `rerouted` is called when addresses
    that connections send from have changed. With `mirrors`, sent frames are shown to the
    steering of the face, too. `not_ready` counts the queue pairs that wait for receivers.
    """

    link: ClassVar[LinkLayer] = LinkLayer.ETHERNET

    def __init__(
        self,
        number: int,
        fabric: Fabric,
        burned_in: bytes,
        bus: HostBus,
        events: PortEvents,
        sources: Sources,
    ) -> None:
        self._fabric = fabric
        self._packets = fabric if isinstance(fabric, PacketCarrier) else None
        self._bus = bus
        self._events = events
        self._deliver: Deliver = _drop
        self.rerouted: list[Callable[[Port], None]] = []
        self.number = number
        self.burned_in = burned_in
        self.cable = True
        self.tables = Tables()
        self.sources = sources
        self.flow = FlowControl(bus, self)
        self.not_ready = 0
        self._routes: dict[tuple[bytes, int], Route] = {}
        self.diagnostics = Diagnostics()
        self.mirrors = False
        self._own = sources.macs_in_use()
        self._noted = (True, False)  # cable and link, as the log has them
        self._overrun = Throttle()

    def attach(self, deliver: Deliver) -> None:
        """Connect to the fabric, whose messages go to `deliver` from now on."""
        self._deliver = deliver
        self._fabric.attach(self)
        self._announce()

    def reset(self) -> None:
        """Empty the tables and take the link down; the cable stays plugged in or out."""
        self.tables = Tables()
        self.sources.reset()
        self._routes.clear()
        self.mirrors = False
        self.flow.reset()
        self.diagnostics.clear()
        self._own = self.sources.macs_in_use()
        self._announce()

    def leave(self) -> None:
        """Disconnect from the fabric for good."""
        self._fabric.detach(self)

    # -- traffic --------------------------------------------------------------------------

    def send(self, message: Message) -> int:
        """Hand a message to the fabric; returns the copies that receivers made."""
        return self._fabric.send(self, message)

    def send_packets(self, messages: Sequence[ConnectedPacket]) -> None:
        """Hand packets of a connection to the fabric, if that carries any."""
        if self._packets is not None:
            self._packets.send_packets(messages)

    def receive_packet(self, message: ConnectedPacket) -> None:
        """Deliver a packet from the fabric, unless the link is down."""
        if self.link_up:
            self._bus.resume(message.work)
            self._deliver(self, message)

    def admits_packet(self, size: int, fits: bool) -> bool:
        """Return True if a packet that came may wait at its queue pair, else count it as lost.

        `fits`: the queue pair has room for it.
        """
        return self._packets is not None and self._packets.admits(size, fits)

    def packet_lost(self, count: int) -> None:
        """Log that a packet was dropped since too much waited for the port; of many only some."""
        if self._overrun.admits():
            self._bus.tell(Fact.PACKET_LOST, port=self.number, count=count)

    def crowded(self, address: bytes) -> bool:
        """Return True while much waits for the port with this address."""
        return self._packets is not None and self._packets.crowded(address)

    def settle(self, action: Callable[[], None]) -> Cancellable | None:
        """Call an action when the packets under way inside the process have arrived."""
        return None if self._packets is None else self._packets.settle(action)

    def hold(self, change: int) -> None:
        """Count the bytes of packets that wait at queue pairs as waiting for the port."""
        if self._packets is not None:
            self._packets.hold(change)

    def send_frames(self, message: Frames, *, loop: bool) -> int:
        """Send Ethernet frames to the wire or, with `loop`, back to this port; both are counted.

        Returns the copies that receivers made.
        """
        sent = self.tables.counters.tx
        for train in message.trains:
            if self.link_up or loop:
                sent.count(train.frames)
            else:
                sent.dropped += len(train.frames)
        copies = 0
        if self.mirrors:
            copies = self._deliver(self, Frames(message.address, message.trains, mirrored=True))
        if loop:
            return copies + self._deliver(self, message)
        return copies + self._fabric.send(self, message)

    def return_frames(self, message: Frames) -> int:
        """Deliver frames sent to a group to the members on this port; returns the copies made."""
        return self._deliver(self, message)

    def receive(self, message: Message) -> int:
        """Deliver a message from the fabric; returns the copies made, 0 while the link is down."""
        if not (self.tables.open and self.cable):
            return 0
        self._bus.resume(message.work)
        return self._deliver(self, message)

    # -- link -----------------------------------------------------------------------------

    @property
    def link_up(self) -> bool:
        """True while software has opened the port and the cable is in."""
        return self.tables.open and self.cable

    def open(self) -> None:
        """Bring the link up. Idempotent, but the event is sent each time: drivers wait for it."""
        self.tables.open = True
        self._announce()
        if self.cable:
            self._events.link_changed(self.number, active=True)

    def close(self) -> None:
        """Take the link down."""
        was_up = self.link_up
        self.tables.open = False
        self._announce()
        if was_up:
            self._events.link_changed(self.number, active=False)

    def plug(self, cable: bool) -> None:
        """Put the cable in or pull it out."""
        was_up = self.link_up
        self.cable = cable
        self._announce()
        if self.link_up != was_up:
            self._events.link_changed(self.number, active=cable)

    def _announce(self) -> None:
        """Tell the fabric which addresses the port has and whether its link is up."""
        self._note_link()
        addresses = self._own | self.sources.gids_in_use()
        self._fabric.announce(self, addresses, up=self.link_up)

    def _note_link(self) -> None:
        """Log changes of cable and link."""
        state = (self.cable, self.link_up)
        if state != self._noted:
            self._noted = state
            self._bus.tell(Fact.LINK, port=self.number, cable=self.cable, link=self.link_up)

    # -- addresses ------------------------------------------------------------------------

    @property
    def mac_addresses(self) -> frozenset[bytes]:
        """The unicast addresses that the port answers to."""
        return self._own

    @property
    def counters(self) -> FrameCounters:
        """The frame and octet counters since the last reset."""
        return self.tables.counters

    def sources_changed(self) -> None:
        """Send from the sources that there are now, and answer to their addresses."""
        self._routes.clear()
        self._own = self.sources.macs_in_use()
        self._announce()

    # -- paths ------------------------------------------------------------------------------

    def connected_route(self, path: Path, pkey_index: int) -> Route:
        """Return the route of a connection; `pkey_index` is the place of its P_Key in the table."""
        return roce_route(self.sources.of(path), path)

    def _datagram_route(self, path: Path, pkey_index: int) -> Route:
        return roce_route(self.sources.of(path), path)

    def known_route(self, address: bytes, pkey_index: int) -> Route | None:
        """Return the route of datagrams to an address if it is remembered, else None."""
        return self._routes.get((address, pkey_index))

    def learn_route(self, address: bytes, path: Path, pkey_index: int) -> Route:
        """Return the route of datagrams to an address with this `path`, and remember it."""
        if len(self._routes) >= MAX_ROUTES:
            self._routes.clear()
        route = self._routes[address, pkey_index] = self._datagram_route(path, pkey_index)
        return route

    def path_bits(self, message: Datagram) -> int:
        """Return the path bits of the own LID that a datagram was sent to: 0 on Ethernet."""
        return 0

    def pkey_index(self, own: int, message: Datagram) -> int | None:
        """Return the place of a datagram's P_Key in the table: always 0, as RoCE has one P_Key.

        On other ports, `own` is the place of the P_Key of the receiving queue pair, and None means
        that it must not get the datagram.
        """
        return 0

    def parse_packet(self, packet: bytes, own_qkey: int) -> Datagram:
        """Return the datagram in a packet that software built.

        Raises `HeaderError`, `LostPacketError`.
        """
        return parse_datagram(packet, own_qkey)
