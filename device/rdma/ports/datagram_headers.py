"""The headers of datagrams: packets that software built are read, network headers are written.

QP0 and QP1 send whole packets (Linux `ib/qp.c: build_mlx_header`, `core/ud_header.c:
ib_ud_header_pack`). Behind the Ethernet header, RoCE v1 has a GRH, RoCE v2 an IP and a UDP header;
on InfiniBand the link header comes first, then a GRH if the address has one.

A receiver finds 40 bytes of network header in front of the payload: a GRH or IPv6 header, or an
IPv4 header in the last 20 bytes; Linux `infiniband/core/verbs.c: ib_get_rdma_header_version` tells
them apart by the IPv4 checksum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bluebridge.device.fabric.addresses import PERMISSIVE, lid_bytes, lid_of
from bluebridge.device.fabric.messages import Datagram, Route
from bluebridge.device.layout.ib.link import LRH, LRH_SIZE, MANAGEMENT_LANE, NEXT_BTH, NEXT_GRH
from bluebridge.device.layout.net.ethernet import (
    ETHERTYPE_IPV4,
    ETHERTYPE_IPV6,
    ETHERTYPE_ROCE,
    ETHERTYPE_VLAN,
    HEADER_SIZE,
    NO_VLAN,
)
from bluebridge.device.layout.net.ip import IPV4, IPV4_MAPPED, PROTOCOL_UDP, ROCE_PORT, ROCE_V2, UDP
from bluebridge.device.layout.net.roce import (
    BTH,
    BTH_SIZE,
    DETH_SIZE,
    GRH_NEXT_BTH,
    GRH_SIZE,
    ICRC_SIZE,
    NO_GID,
    SMI_QPN,
    BthOpcode,
)
from bluebridge.device.packets import forms
from bluebridge.device.rdma.ports.port_tables import of_tag
from bluebridge.device.rdma.work import WorkError

IPV4_PADDING: Final = bytes(20)
IMMEDIATE_SIZE: Final = 4
PATH_BITS: Final = 0x7F
_VLAN_SIZE: Final = 4
_LOW_24_BITS: Final = 0xFFFFFF

SourceLid = Callable[[int], bytes]


class HeaderError(WorkError):
    """The headers of a packet are not those of a datagram."""


class LostPacketError(Exception):
    """The first switch or adapter would discard the packet; its sender sees it as sent."""


def build_network_header(route: Route, payload: int, immediate: bool) -> bytes:
    """Return the network header of a datagram of `payload` bytes that takes `route`."""
    length = BTH_SIZE + DETH_SIZE + IMMEDIATE_SIZE * immediate + ((payload + 3) & ~3) + ICRC_SIZE
    following = GRH_NEXT_BTH
    if route.roce == ROCE_V2:
        length, following = length + UDP.size, PROTOCOL_UDP
        if route.sgid.startswith(IPV4_MAPPED):
            tos, source, target = route.traffic_class, route.sgid[12:], route.dgid[12:]
            header = forms.ipv4(tos, length + IPV4.size, route.hop_limit, source, target)
            return IPV4_PADDING + header
    return forms.grh(
        route.traffic_class,
        route.flow_label,
        length,
        following,
        route.hop_limit,
        route.sgid,
        route.dgid,
    )


def parse_datagram(packet: bytes, own_qkey: int) -> Datagram:
    """Return the datagram in a whole RoCE packet; raises `HeaderError`.

    `own_qkey` is taken for a Q_Key of zero, which software leaves to the adapter.
    """
    kind, at, tag = int.from_bytes(packet[12:14], "big"), HEADER_SIZE, NO_VLAN
    if kind == ETHERTYPE_VLAN:
        tag = int.from_bytes(packet[14:16], "big")
        kind, at = int.from_bytes(packet[16:18], "big"), at + _VLAN_SIZE
    transport = at + (IPV4.size if kind == ETHERTYPE_IPV4 else GRH_SIZE)
    header = packet[at:transport]
    udp_size = UDP.size if kind != ETHERTYPE_ROCE else 0
    transport += udp_size
    if len(packet) < transport + BTH_SIZE + DETH_SIZE:
        raise HeaderError(f"{len(packet)} bytes are too few for the headers")
    if kind not in (ETHERTYPE_ROCE, ETHERTYPE_IPV4, ETHERTYPE_IPV6):
        raise HeaderError(f"Ethertype {kind:#06x} is not RoCE")
    if udp_size and forms.UDP.unpack_from(packet, transport - udp_size)[1] != ROCE_PORT:
        raise HeaderError("a UDP packet for another port than that of RoCE")
    if kind == ETHERTYPE_IPV4:
        words, traffic_class, length, _, _, hop_limit, _, _, sgid, dgid = forms.IPV4.unpack(header)
        if words & 0xF != forms.PLAIN_IPV4 & 0xF:
            raise HeaderError("an IPv4 header with options")
        flow_label, length = 0, length - IPV4.size
        header, sgid, dgid = IPV4_PADDING + header, IPV4_MAPPED + sgid, IPV4_MAPPED + dgid
    else:
        word, length, _, hop_limit, sgid, dgid = forms.GRH.unpack(header)
        traffic_class, flow_label = word >> 20 & 0xFF, word & 0xFFFFF
    vlan, level = of_tag(tag)
    route = Route(
        smac=packet[6:12],
        dmac=packet[:6],
        sgid=sgid,
        dgid=dgid,
        vlan=vlan,
        traffic_class=traffic_class,
        hop_limit=hop_limit,
        service_level=level,
        flow_label=flow_label,
        roce=1 if kind == ETHERTYPE_ROCE else ROCE_V2,
    )
    return _datagram(packet, transport, own_qkey, route, header, length - udp_size)


def parse_ib_datagram(packet: bytes, own_qkey: int, source_lid: SourceLid) -> Datagram:
    """Return the datagram in a whole InfiniBand packet.

    Raises `HeaderError`, and `LostPacketError` where the packet would be discarded on its way.

    Hardware does not hold the lane that software wrote against the target: who receives the packet
    does (InfiniBand vol. 1, 9.6.1.3). iPXE `ib_mcast.c: ib_mcast_leave` sends such packets.
    `source_lid` makes the adapter's LID of the source's path bits, so that no packet leaves with
    that of another port; `own_qkey` stands for a Q_Key of zero.
    """
    if len(packet) < LRH_SIZE:
        raise HeaderError(f"{len(packet)} bytes are too few for the headers")
    following = LRH.get(packet, "next_header")
    if following not in (NEXT_BTH, NEXT_GRH):
        raise HeaderError(f"next header {following} is no InfiniBand transport")
    position = LRH_SIZE + GRH_SIZE * (following == NEXT_GRH)
    if len(packet) < position + BTH_SIZE + DETH_SIZE:
        raise HeaderError(f"{len(packet)} bytes are too few for the headers")
    grh = packet[LRH_SIZE:position]
    word, hop_limit, sgid, dgid = 0, 0, NO_GID, NO_GID
    if grh:
        word, _, _, hop_limit, sgid, dgid = forms.GRH.unpack(grh)
    source = LRH.get(packet, "slid")
    route = Route(
        smac=PERMISSIVE if source == lid_of(PERMISSIVE) else source_lid(source & PATH_BITS),
        dmac=lid_bytes(LRH.get(packet, "dlid")),
        sgid=sgid,
        dgid=dgid,
        traffic_class=word >> 20 & 0xFF,
        hop_limit=hop_limit,
        flow_label=word & 0xFFFFF,
        service_level=LRH.get(packet, "service_level"),
        pkey=BTH.get(packet, "pkey", position),
    )
    message = _datagram(packet, position, own_qkey, route, grh, -1)
    managing = message.target_qpn == SMI_QPN
    if managing != (LRH.get(packet, "virtual_lane") == MANAGEMENT_LANE):
        raise LostPacketError("virtual lane 15 is for QP0, and only that one: discarded")
    return message


def _datagram(
    packet: bytes, position: int, own_qkey: int, route: Route, header: bytes, length: int
) -> Datagram:
    """Return the datagram of a packet that holds at least a BTH, which is at `position`, and DETH.

    `header` is its network header, which states `length` bytes from the BTH to the ICRC's end. A
    length that cannot be true does not count.
    """
    opcode, flags, pkey, target, psn = forms.BTH.unpack_from(packet, position)
    qkey, source = forms.DETH.unpack_from(packet, position + BTH_SIZE)
    start = position + BTH_SIZE + DETH_SIZE
    immediate = None
    if opcode == BthOpcode.UD_SEND_ONLY_IMM:
        immediate = int.from_bytes(packet[start : start + IMMEDIATE_SIZE], "big")
        start += IMMEDIATE_SIZE
    elif opcode != BthOpcode.UD_SEND_ONLY:
        raise HeaderError(f"BTH opcode {opcode:#x}")
    trailer = (flags >> 4 & 3) + ICRC_SIZE
    size = length - (start - position) - trailer
    if not 0 <= size <= len(packet) - start:
        size = max(0, len(packet) - start - trailer)
    return Datagram(
        route=route,
        source_qpn=source & _LOW_24_BITS,
        target_qpn=target & _LOW_24_BITS,
        qkey=qkey or own_qkey,
        psn=psn & _LOW_24_BITS,
        grh=header,
        payload=packet[start : start + size],
        immediate=immediate,
        solicited=bool(flags & 0x80),
        pkey=pkey,
    )
