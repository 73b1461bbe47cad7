"""Messages that travel between two HCAs.

Messages are whole InfiniBand messages, not packets: PSNs advance by the number of packets the
path MTU would have made of them, so that a capture can cut them up again. Very long ones travel in
parts (`Part`). `work` of each says for the bus log which work request it is for
(`bluebridge.device.buslog.record`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bluebridge.device.layout.net.ethernet import NO_VLAN
from bluebridge.device.layout.net.roce import DEFAULT_PKEY, Op
from bluebridge.device.packets.transport import TransportPacket

Payload = Sequence[memoryview]
"""The bytes of a message in order, as views of the sender's memory.

`fabric.interface` says for how long they are valid.
"""


@dataclass(slots=True)
class Route:
    """The route of a message: link-layer addresses, and GIDs (zeros on InfiniBand without GRH)."""

    smac: bytes
    dmac: bytes
    sgid: bytes
    dgid: bytes
    vlan: int = NO_VLAN
    traffic_class: int = 0
    hop_limit: int = 64
    service_level: int = 0
    pkey: int = DEFAULT_PKEY
    flow_label: int = 0
    roce: int = 1  # version: 1 is Ethertype 0x8915, 2 is UDP
    udp_port: int = 0  # source port of version 2; 0: computed from the numbers of the queue pairs
    image: bytes = field(default=b"", compare=False, repr=False)  # what the capture makes of it
    overhead: int = field(default=0, compare=False, repr=False)  # `sizes`: bytes before the BTH


@dataclass(slots=True)
class Part:
    """A part of a message that is too long for one turn of the loop, and moves in several requests.

    The request's `psn`, `packets`, `length`, `remote_address` and `payload` are those of the part,
    all else of it is the message's. `offset` is where the part begins in the message of `total`
    bytes, `packets` how many there are from its beginning to the end of the message. `begins`: the
    parts that follow are sent after this one without a gap, `last`: none follows.
    """

    offset: int
    total: int
    packets: int
    begins: bool
    last: bool


@dataclass(slots=True, init=False)
class Request:
    """A request of an RC, UC or XRC queue pair; `srqn` is the SRQ it names on XRC, else None.

    It is a whole message unless it has a `part`. `ahead` counts the reads and atomics of its sender
    that are under way in front of it. Without `ack` no acknowledgement is asked for. `on_wire` are
    the packets and bytes it takes (`fabric.sizes`), if somebody has computed them.
    """

    op: Op
    route: Route
    source_qpn: int
    target_qpn: int
    psn: int
    packets: int
    length: int
    payload: Payload
    remote_address: int
    rkey: int
    immediate: int  # or the rkey to invalidate
    solicited: bool
    reliable: bool
    atomic: tuple[int, int, int, int]  # swap/add, compare, swap mask, compare mask
    srqn: int | None
    part: Part | None
    ahead: int
    ack: bool = field(init=False, compare=False)
    work: int = field(init=False, compare=False)
    on_wire: tuple[int, int] | None = field(init=False, compare=False)

    # Written out: what dataclass would make is not compiled.
    def __init__(
        self,
        op: Op,
        route: Route,
        source_qpn: int,
        target_qpn: int,
        psn: int,
        packets: int,
        length: int,
        payload: Payload = (),
        remote_address: int = 0,
        rkey: int = 0,
        immediate: int = 0,
        solicited: bool = False,
        reliable: bool = True,
        atomic: tuple[int, int, int, int] = (0, 0, 0, 0),
        srqn: int | None = None,
        part: Part | None = None,
        ahead: int = 0,
    ) -> None:
        self.op = op
        self.route = route
        self.source_qpn = source_qpn
        self.target_qpn = target_qpn
        self.psn = psn
        self.packets = packets
        self.length = length
        self.payload = payload
        self.remote_address = remote_address
        self.rkey = rkey
        self.immediate = immediate
        self.solicited = solicited
        self.reliable = reliable
        self.atomic = atomic
        self.srqn = srqn
        self.part = part
        self.ahead = ahead
        self.ack = True
        self.work = 0
        self.on_wire = None


@dataclass(slots=True, init=False)
class Response:
    """The answer of a responder, `source_qpn`, to an RC request, with the same `psn`.

    `packets` is how many the request took (a read: its answer), `read` says that `payload` is
    what a read asked for, even if that is nothing. `xrc`: it comes from an XRC queue pair. `part`
    is that of the request that was carried out, `on_wire` as of a request.
    """

    route: Route
    target_qpn: int
    psn: int
    syndrome: int
    msn: int
    payload: Payload
    atomic_original: int | None
    packets: int
    read: bool
    xrc: bool
    part: Part | None
    source_qpn: int
    work: int = field(init=False, compare=False)
    on_wire: tuple[int, int] | None = field(init=False, compare=False)

    def __init__(
        self,
        route: Route,
        target_qpn: int,
        psn: int,
        syndrome: int,
        msn: int = 0,
        payload: Payload = (),
        atomic_original: int | None = None,
        packets: int = 1,
        read: bool = False,
        xrc: bool = False,
        part: Part | None = None,
        source_qpn: int = 0,
    ) -> None:
        self.route = route
        self.target_qpn = target_qpn
        self.psn = psn
        self.source_qpn = source_qpn
        self.syndrome = syndrome
        self.msn = msn
        self.payload = payload
        self.atomic_original = atomic_original
        self.packets = packets
        self.read = read
        self.xrc = xrc
        self.part = part
        self.work = 0
        self.on_wire = None


@dataclass(slots=True)
class Datagram:
    """A UD message or a MAD.

    `grh` are the 40 bytes the receiver finds before the payload; empty on InfiniBand without.
    `good`: the sending adapter computed the checksums of the IP packet in it itself.
    """

    route: Route
    source_qpn: int
    target_qpn: int
    qkey: int
    psn: int
    grh: bytes
    payload: bytes
    immediate: int | None = None
    solicited: bool = False
    pkey: int = 0xFFFF
    good: bool = False
    work: int = field(default=0, compare=False)


@dataclass(slots=True, init=False)
class Train:
    """Ethernet frames of one flow in order, without FCS: the segments of a large send, or one.

    `good`: the sending adapter computed the checksums itself.
    """

    frames: list[bytes]
    good: bool

    def __init__(self, frames: list[bytes], good: bool = False) -> None:
        self.frames = frames
        self.good = good


@dataclass(slots=True, init=False)
class Frames:
    """A burst of Ethernet frames to one address.

    `own_qpn` is the queue pair that sent them if they come back to its port, else -1. `mirrored`:
    they are what the port sent, for those that want to see it. `packets`: each frame is a packet of
    its own, which a fault may concern.
    """

    address: bytes
    trains: list[Train]
    own_qpn: int
    mirrored: bool
    packets: bool
    work: int = field(init=False, compare=False)

    def __init__(
        self,
        address: bytes,
        trains: list[Train],
        own_qpn: int = -1,
        mirrored: bool = False,
        packets: bool = False,
    ) -> None:
        self.address = address
        self.trains = trains
        self.own_qpn = own_qpn
        self.mirrored = mirrored
        self.packets = packets
        self.work = 0


@dataclass(slots=True, init=False)
class ConnectedPacket:
    """One packet of a connection, on a network that carries packets (`rdma.connected`).

    It travels between a port and its `PacketCarrier` only: behind that are frames. `source_qpn` is
    known to its sender only: a packet names no more than its target. One that arrives is `marked`
    if a switch on its way met congestion.
    """

    route: Route
    target_qpn: int
    packet: TransportPacket
    source_qpn: int
    marked: bool
    work: int = field(compare=False)

    def __init__(
        self,
        route: Route,
        target_qpn: int,
        packet: TransportPacket,
        source_qpn: int = 0,
        marked: bool = False,
        work: int = 0,
    ) -> None:
        self.route = route
        self.target_qpn = target_qpn
        self.packet = packet
        self.source_qpn = source_qpn
        self.marked = marked
        self.work = work


Message = Request | Response | Datagram | Frames
