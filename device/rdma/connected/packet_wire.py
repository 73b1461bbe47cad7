"""A fabric in front of another one that turns messages into RoCE packets and back.

What a port sends leaves as Ethernet frames, byte for byte those of a wire, and the fabric behind
carries nothing else. Frames that arrive wait in an inbox, which a turn of the loop empties for a
bounded time: a connection that fills its window never keeps the loop, and what comes faster than
it is taken is dropped and counted as on a port with full buffers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence, Set
from time import monotonic
from typing import Final

from bluebridge.device.fabric.addresses import is_group
from bluebridge.device.fabric.interface import Fabric, FabricPort, PacketCarrier, PacketPort
from bluebridge.device.fabric.messages import (
    ConnectedPacket,
    Datagram,
    Frames,
    Message,
    Route,
    Train,
)
from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.net.ethernet import HEADER_SIZE, MIN_FRAME
from bluebridge.device.layout.net.ip import (
    CONGESTION_EXPERIENCED,
    ECN_CAPABLE,
    IPV4,
    IPV4_MAPPED,
    UDP,
)
from bluebridge.device.layout.net.roce import (
    CNP_SERVICE_LEVEL,
    CNP_TRAFFIC_CLASS,
    CONGESTION_SERVICE,
    GRH_SIZE,
    RELIABLE_SERVICE,
    SERVICE_MASK,
    UNRELIABLE_SERVICE,
    XRC_SERVICE,
    BthOpcode,
)
from bluebridge.device.packets import crc
from bluebridge.device.packets.carriers import carried, frames_of
from bluebridge.device.packets.message import IMMEDIATE, SOLICITED, PacketError, WireMessage
from bluebridge.device.packets.reader import PacketReader, WirePacket, transport_at
from bluebridge.device.packets.segmentation import Packet
from bluebridge.device.packets.transport import read_transport, write_headers
from bluebridge.device.rdma.ports.datagram_headers import HeaderError, parse_datagram
from bluebridge.device.rdma.ports.port_tables import of_tag

MAC_SIZE: Final = 6
MOST_WAITING: Final = 8 << 20
"""Most bytes of frames that wait for a port."""
TURN_SECONDS: Final = 0.002
"""Time for which a turn of the loop takes frames of one port."""

MOST_HEADS: Final = 1024
"""Most beginnings of frames that are kept."""

Action = Callable[[], None]
Soon = Callable[[Action], None]
"""Function that runs an action before the loop sleeps, for a bounded time in each turn."""

_DATAGRAMS: Final = (BthOpcode.UD_SEND_ONLY, BthOpcode.UD_SEND_ONLY_IMM)
_NO_PAYLOADS: Final[Sequence[memoryview]] = ()
_SERVICES: Final = (RELIABLE_SERVICE, UNRELIABLE_SERVICE, XRC_SERVICE, CONGESTION_SERVICE)


class PacketWire(PacketCarrier):
    """A `Fabric` for one port; `soon` calls an action before the loop sleeps.

    `neighbours` are the wires of all ports of the process, this one included.

    `refused` counts what came and was no packet, by reason, `overrun` what was dropped since too
    much waited, `foreign` packets of services that this network does not carry. `held` is how many
    bytes of packets wait at queue pairs.
    """

    def __init__(self, fabric: Fabric, soon: Soon, neighbours: list[PacketWire]) -> None:
        self._fabric = fabric
        self._soon = soon
        self._neighbours = neighbours
        neighbours.append(self)
        self._port: FabricPort | None = None
        self._own: Set[bytes] = frozenset()
        self._reader = PacketReader()
        self._heads: dict[tuple[int, int, int, int, int], _Head] = {}
        self._inbox: deque[tuple[list[bytes], int, int]] = deque()
        self._waiting = self.held = 0
        self._scheduled = False
        self._came = self._taken = 0  # frames
        self._marks: deque[tuple[int, Action]] = deque()
        self.overrun = 0
        self.foreign = 0

    @property
    def refused(self) -> dict[str, int]:
        """How many frames were refused, by reason; reasons that never came are left out."""
        return {reason.value: count for reason, count in self._reader.refused.items() if count}

    # -- Fabric -------------------------------------------------------------------------------

    def attach(self, port: FabricPort) -> None:
        """Connect a port, whose link is down until it announces another state."""
        self._port = port
        self._fabric.attach(self)

    def detach(self, port: FabricPort) -> None:
        """Disconnect the port; what waits for it is lost."""
        self._fabric.detach(self)
        self._taken = self._came
        self._inbox.clear()
        self._waiting = 0

    def announce(self, port: FabricPort, addresses: Set[bytes], *, up: bool) -> None:
        """Set the port's addresses; frames for those of the link layer are its own."""
        self._own = frozenset(address for address in addresses if len(address) == MAC_SIZE)
        self._fabric.announce(self, addresses, up=up)

    def send(self, source: FabricPort, message: Message) -> int:
        """Send a datagram as a packet, and frames as they are."""
        if isinstance(message, Frames):
            return self._fabric.send(self, message)
        if not isinstance(message, Datagram):
            return 0
        try:
            frame = _datagram_frame(message)
        except PacketError:
            return 0
        return self._leave(message.route.dmac, [frame])

    def send_packets(self, messages: Sequence[ConnectedPacket]) -> None:
        """Send packets of a connection, in a burst."""
        frames: list[bytes] = []
        for message in messages:
            self._add_frames(message, frames)
        self._leave(messages[0].route.dmac, frames)

    def _leave(self, address: bytes, frames: list[bytes]) -> int:
        """Send frames; those for the port itself go no further than its inbox."""
        if address in self._own:
            self._put(frames, 0)
            return 0
        if is_group(address):
            self._put(frames, 0)  # members on this port
        return self._fabric.send(self, Frames(address, [Train(frames)], packets=True))

    def _add_frames(self, message: ConnectedPacket, frames: list[bytes]) -> None:
        """Add the frames of a packet, or of a run of packets."""
        packet, pkey = message.packet, message.route.pkey
        payload = packet.payload
        headers = write_headers(packet, message.target_qpn, pkey)
        head = self._head(message, headers[0])
        for place, each in enumerate(headers):
            if place:
                payload = packet.more[place - 1]
            if head is not None:
                frames.append(head.frame(each, payload))
            else:
                whole = Packet(each, bytes(payload), len(payload))
                frames.append(carried(_addresses(message), whole).data)

    def _head(self, message: ConnectedPacket, headers: bytes) -> _Head | None:
        """Return what is in front of the BTH of packets of one size, which is made once.

        None over IPv6, whose UDP has a check sum of all bytes.
        """
        route, packet = message.route, message.packet
        size = len(packet.payload)
        kind = 2 if packet.service == CONGESTION_SERVICE else int(size > 0)
        length = len(headers) + size + (-size & 3)
        key = (id(route), message.source_qpn, message.target_qpn, length, kind)
        known = self._heads.get(key)
        if known is None and (
            route.roce == 1
            or (route.sgid.startswith(IPV4_MAPPED) and route.dgid.startswith(IPV4_MAPPED))
        ):
            whole = Packet(headers, bytes(packet.payload), size)
            frame = carried(_addresses(message), whole).data
            if len(self._heads) == MOST_HEADS:
                self._heads.clear()
            at = frame.index(headers, HEADER_SIZE)
            known = self._heads[key] = _Head(route, frame[:at])
        return known

    # -- FabricPort ---------------------------------------------------------------------------

    def receive(self, message: Message) -> int:
        """Keep RoCE packets for the next turn of the loop, hand other frames to the port."""
        if not isinstance(message, Frames) or self._port is None:
            return 0
        if message.address not in self._own and not is_group(message.address):
            return self._port.receive(message)
        others = []
        for train in message.trains:
            if train.frames and transport_at(train.frames[0]):
                self._put(train.frames, message.work)
            else:
                others.append(train)
        if len(others) == len(message.trains):
            return self._port.receive(message)
        if not others:
            return 0
        rest = Frames(message.address, others, message.own_qpn, message.mirrored)
        rest.work = message.work
        return self._port.receive(rest)

    def admits(self, size: int, fits: bool) -> bool:
        """Return True if a packet may wait at its queue pair; else count it as lost.

        Half of the room is for what has not been handed over yet: queue pairs that answer slowly
        take none of it from others.
        """
        room = fits and 2 * (self.held + size) <= MOST_WAITING
        if not room:
            self._lose()
        return room

    def _lose(self) -> None:
        self.overrun += 1
        if isinstance(self._port, PacketPort):
            self._port.packet_lost(self.overrun)

    def hold(self, change: int) -> None:
        """Count so many bytes more, or fewer, of packets that wait at the port."""
        self.held += change

    def _put(self, frames: Sequence[bytes], work: int) -> None:
        """Let frames wait, as many as there is room for."""
        kept, size, room = list[bytes](), 0, MOST_WAITING - self._waiting - self.held
        for frame in frames:
            if size + len(frame) > room:
                self._lose()
            else:
                size += len(frame)
                kept.append(bytes(frame))
        if kept:
            self._waiting += size
            self._came += len(kept)
            self._inbox.append((kept, size, work))
            self._take_soon()

    def _take_soon(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._soon(self._take)

    def _take(self) -> None:
        """Hand packets to the port until the time of this turn is over."""
        self._scheduled = False
        end = monotonic() + TURN_SECONDS
        while True:
            while self._marks and self._marks[0][0] <= self._taken:
                self._marks.popleft()[1]()
            if not self._inbox:
                return
            frames, size, work = self._inbox.popleft()
            self._taken += len(frames)
            self._waiting -= size
            self._hand_over(frames, work)
            if self._inbox and monotonic() > end:
                self._take_soon()
                return

    def crowded(self, address: bytes) -> bool:
        """Return True while an inbox of this process that has the address is half full.

        Its room is what queue pairs leave of it.
        """
        for wire in self._neighbours:
            if address in wire._own and 2 * wire._waiting + wire.held > MOST_WAITING:
                return True
        return False

    # -- what is late ---------------------------------------------------------------------------

    def settle(self, action: Action) -> Settling:
        """Call an action when all has arrived that is in the process's inboxes or follows from it.

        First the other ports take the packets that wait for them. Then their queue pairs make the
        answers that are due, and at last this port takes what waits for it.
        """
        return Settling(self._neighbours, self, self._soon, action)

    def mark(self, action: Action) -> None:
        """Call an action when the frames that wait now have been taken."""
        self._marks.append((self._came, action))
        self._take_soon()

    def _hand_over(self, frames: list[bytes], work: int) -> None:
        """Hand the packets in frames to the port, or count what is wrong with them."""
        at = 0
        while at < len(frames):
            packet, port = self._reader.read(frames[at]), self._port
            at += 1
            if packet is not None and port is not None:
                at += len(self._hand_over_packet(packet, port, frames, at, work))

    def _hand_over_packet(
        self, packet: WirePacket, port: FabricPort, frames: list[bytes], at: int, work: int
    ) -> Sequence[memoryview]:
        """Hand a packet to the port; returns the payloads of packets of its run, from `at` on."""
        more: Sequence[memoryview] = _NO_PAYLOADS
        if packet.opcode & SERVICE_MASK in _SERVICES and isinstance(port, PacketPort):
            code = packet.traffic_class & CONGESTION_EXPERIENCED
            marked = code == CONGESTION_EXPERIENCED and packet.form != 1
            if at < len(frames) and not marked:
                more = self._reader.follow(packet, frames, at)
            transport = read_transport(packet)
            transport.more = more
            port.receive_packet(
                ConnectedPacket(_route_of(packet), packet.target_qpn, transport, 0, marked, work)
            )
        elif packet.opcode in _DATAGRAMS:
            try:
                datagram = parse_datagram(packet.frame, 0)
            except HeaderError:
                self.foreign += 1
                return more
            datagram.work = work
            port.receive(datagram)
        else:
            self.foreign += 1
        return more


class Settling:
    """An action that waits for what is late; `cancel` makes it void."""

    def __init__(
        self, wires: Sequence[PacketWire], own: PacketWire, soon: Soon, action: Action
    ) -> None:
        self._own = own
        self._soon = soon
        self._action: Action | None = action
        self._left = len(wires)
        for wire in wires:
            wire.mark(self._passed)

    def cancel(self) -> None:
        """Forget the action."""
        self._action = None

    def _passed(self) -> None:
        self._left -= 1
        if not self._left and self._action is not None:
            self._soon(self._answered)

    def _answered(self) -> None:
        self._own.mark(self._over)

    def _over(self) -> None:
        self._soon(self._act)  # each in a call of its own, which the loop bounds

    def _act(self) -> None:
        action, self._action = self._action, None
        if action is not None:
            action()


class _Head:
    """The bytes of a connection's frames up to the BTH, over IPv4 or of RoCE v1.

    `route` is kept so that no other one gets its place in memory, which is in the key.
    """

    def __init__(self, route: Route, head: bytes) -> None:
        self.route = route
        self._head = head
        if route.roce == 1:
            self._before = crc.before_roce_v1(head[-GRH_SIZE:])
        else:
            udp = len(head) - UDP.size
            self._before = crc.before_roce_v2(head[udp - IPV4.size : udp], head[udp:])

    def frame(self, headers: bytes, payload: bytes | memoryview) -> bytes:
        """Return the frame of a packet, given from its BTH on."""
        if len(payload) & 3:
            payload = bytes(payload) + bytes(-len(payload) & 3)
        icrc = crc.invariant(self._before, headers, payload)
        frame = b"".join((self._head, headers, payload, icrc))
        return frame if len(frame) >= MIN_FRAME else frame.ljust(MIN_FRAME, b"\0")


def _route_of(packet: WirePacket) -> Route:
    """Return the route of a packet; that of a known head is made once."""
    head = packet.head
    if head is None:
        return _route(packet)
    known = head.route
    if isinstance(known, Route) and known.pkey == packet.pkey:
        return known
    head.route = made = _route(packet)
    return made


def _route(packet: WirePacket) -> Route:
    vlan, level = of_tag(packet.tag)
    return Route(
        smac=packet.source,
        dmac=packet.destination,
        sgid=packet.sgid,
        dgid=packet.dgid,
        vlan=vlan,
        traffic_class=packet.traffic_class,
        hop_limit=packet.hop_limit,
        service_level=level,
        pkey=packet.pkey,
        flow_label=packet.flow_label,
        roce=packet.form,
    )


def _datagram_frame(message: Datagram) -> bytes:
    wire = _addressed(What.DATAGRAM, message, message.pkey)
    wire.payload, wire.length = message.payload, len(message.payload)
    wire.psn, wire.key = message.psn, message.qkey
    wire.flags = SOLICITED * message.solicited
    if message.immediate is not None:
        wire.flags |= IMMEDIATE
        wire.immediate = message.immediate
    (frame,) = frames_of(wire)
    return frame.data


def _addresses(message: ConnectedPacket) -> WireMessage:
    """Return the addresses of a packet; data over RoCE v2 may be marked by switches."""
    wire = _addressed(What.REQUEST, message, message.route.pkey)
    if message.packet.service == CONGESTION_SERVICE:
        wire.traffic_class, wire.service_level = CNP_TRAFFIC_CLASS, CNP_SERVICE_LEVEL
    elif len(message.packet.payload) and message.route.roce != 1:
        wire.traffic_class = (wire.traffic_class & ~CONGESTION_EXPERIENCED) | ECN_CAPABLE
    return wire


def _addressed(what: What, message: ConnectedPacket | Datagram, pkey: int) -> WireMessage:
    """Return a message without payload that has the addresses of another one."""
    route = message.route
    return WireMessage(
        what,
        0,
        b"",
        source_qpn=message.source_qpn,
        target_qpn=message.target_qpn,
        source=route.smac,
        destination=route.dmac,
        sgid=route.sgid,
        dgid=route.dgid,
        vlan=route.vlan,
        pkey=pkey,
        flow_label=route.flow_label,
        traffic_class=route.traffic_class,
        hop_limit=route.hop_limit,
        service_level=route.service_level,
        form=route.roce,
        udp_port=route.udp_port,
    )
