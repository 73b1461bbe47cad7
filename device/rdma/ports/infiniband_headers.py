"""Packets whose headers software built for InfiniBand: what QP0 and QP1 send.

The link header comes first, then a GRH if the address has one (Linux `ib/qp.c: build_mlx_header`,
`core/ud_header.c: ib_ud_header_pack`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bluebridge.device.fabric.addresses import PERMISSIVE, lid_bytes, lid_of
from bluebridge.device.fabric.messages import Datagram, Route
from bluebridge.device.layout.ib.link import LRH, LRH_SIZE, MANAGEMENT_LANE, NEXT_BTH, NEXT_GRH
from bluebridge.device.layout.net.roce import (
    BTH_SIZE,
    DETH_SIZE,
    GRH,
    GRH_SIZE,
    ICRC_SIZE,
    NO_GID,
    SMI_QPN,
)
from bluebridge.device.rdma.ports.datagram_headers import (
    HeaderError,
    LostPacketError,
    datagram,
    parse_transport,
)

PATH_BITS: Final = 0x7F

SourceLid = Callable[[int], bytes]


def parse_ib_datagram(packet: bytes, own_qkey: int, source_lid: SourceLid) -> Datagram:
    """Return the datagram in a whole InfiniBand packet.

    Raises `HeaderError`, and `LostPacketError` where the packet would be discarded on its way.

    Hardware does not hold the lane that software wrote against the target: who receives the packet
    does (InfiniBand vol. 1, 9.6.1.3). iPXE `ib_mcast.c: ib_mcast_leave` sends such packets.
    `source_lid` makes the adapter's LID of the source's path bits, so that no packet leaves with
    that of another port; `own_qkey` stands for a Q_Key of zero.
    """
    grh, position = _network(packet)
    transport = parse_transport(packet, position, own_qkey)
    managing = transport.target_qpn == SMI_QPN
    if managing != (LRH.get(packet, "virtual_lane") == MANAGEMENT_LANE):
        raise LostPacketError("virtual lane 15 is for QP0, and only that one: discarded")
    body = packet[transport.end :]
    payload = body[: max(0, len(body) - ICRC_SIZE - transport.pad)]
    route = _route(packet, grh, source_lid, transport.pkey)
    return datagram(transport, route, grh, payload)


def _network(packet: bytes) -> tuple[bytes, int]:
    """Return the GRH, empty if there is none, and the offset of the transport header."""
    if len(packet) < LRH_SIZE:
        raise HeaderError(f"{len(packet)} bytes are too few for the headers")
    following = LRH.get(packet, "next_header")
    if following not in (NEXT_BTH, NEXT_GRH):
        raise HeaderError(f"next header {following} is no InfiniBand transport")
    position = LRH_SIZE + GRH_SIZE * (following == NEXT_GRH)
    if len(packet) < position + BTH_SIZE + DETH_SIZE:
        raise HeaderError(f"{len(packet)} bytes are too few for the headers")
    return packet[LRH_SIZE:position], position


def _route(packet: bytes, grh: bytes, source_lid: SourceLid, pkey: int) -> Route:
    source = LRH.get(packet, "slid")
    target = LRH.get(packet, "dlid")
    own = source == lid_of(PERMISSIVE)
    return Route(
        smac=PERMISSIVE if own else source_lid(source & PATH_BITS),
        dmac=lid_bytes(target),
        sgid=GRH.get_raw(grh, "sgid") if grh else NO_GID,
        dgid=GRH.get_raw(grh, "dgid") if grh else NO_GID,
        traffic_class=GRH.get(grh, "traffic_class") if grh else 0,
        hop_limit=GRH.get(grh, "hop_limit") if grh else 0,
        flow_label=GRH.get(grh, "flow_label") if grh else 0,
        service_level=LRH.get(packet, "service_level"),
        pkey=pkey,
    )
