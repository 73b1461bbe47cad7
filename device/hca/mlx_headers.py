"""Packets whose headers software built: what QP1 sends (Linux `ib/qp.c: build_mlx_header`)."""

from __future__ import annotations

from struct import Struct

from device.fabric.messages import Datagram, Route
from device.hca.wqe import WqeError
from device.layout.net.ethernet import ETHERTYPE_ROCE, ETHERTYPE_VLAN, HEADER_SIZE, NO_VLAN
from device.layout.net.roce import BTH_SIZE, DETH_SIZE, GRH, GRH_SIZE, ICRC_SIZE, BthOpcode

VLAN_SIZE = 4
IMMEDIATE_SIZE = 4
_BTH = Struct(">BBHII")
_DETH = Struct(">II")
_QPN_MASK = 0xFFFFFF


class HeaderError(WqeError):
    """A packet whose headers are not those of RoCE v1."""


def _ethernet(packet: bytes) -> tuple[int, int]:
    """Offset of the GRH and the VLAN tag."""
    position, vlan = HEADER_SIZE, NO_VLAN
    kind = int.from_bytes(packet[12:14], "big")
    if kind == ETHERTYPE_VLAN:
        vlan = int.from_bytes(packet[14:16], "big")
        kind = int.from_bytes(packet[16:18], "big")
        position += VLAN_SIZE
    if kind != ETHERTYPE_ROCE:
        raise HeaderError(f"Ethertype {kind:#06x} is not RoCE v1")
    if len(packet) < position + GRH_SIZE + BTH_SIZE + DETH_SIZE:
        raise HeaderError(f"{len(packet)} bytes are too few for the headers")
    return position, vlan


def parse_datagram(packet: bytes, own_qkey: int) -> Datagram:
    """The datagram in a whole RoCE v1 packet; raises `HeaderError`.

    `own_qkey` is taken for a Q_Key of zero, which software leaves to the adapter.
    """
    position, vlan = _ethernet(packet)
    grh = packet[position : position + GRH_SIZE]
    position += GRH_SIZE
    opcode, flags, pkey, target, psn = _BTH.unpack_from(packet, position)
    qkey, source = _DETH.unpack_from(packet, position + BTH_SIZE)
    position += BTH_SIZE + DETH_SIZE
    immediate = None
    if opcode == BthOpcode.UD_SEND_ONLY_IMM:
        immediate = int.from_bytes(packet[position : position + IMMEDIATE_SIZE], "big")
        position += IMMEDIATE_SIZE
    elif opcode != BthOpcode.UD_SEND_ONLY:
        raise HeaderError(f"BTH opcode {opcode:#x}")
    return Datagram(
        route=_route(packet, grh, vlan),
        source_qpn=source & _QPN_MASK,
        target_qpn=target & _QPN_MASK,
        qkey=qkey or own_qkey,
        psn=psn & _QPN_MASK,
        grh=grh,
        payload=_payload(packet[position:], grh, flags >> 4 & 3, immediate is not None),
        immediate=immediate,
        solicited=bool(flags & 0x80),
        pkey=pkey,
    )


def _payload(body: bytes, grh: bytes, pad: int, immediate: bool) -> bytes:
    """What is left without padding and ICRC; the GRH says how long that is."""
    overhead = BTH_SIZE + DETH_SIZE + IMMEDIATE_SIZE * immediate + ICRC_SIZE + pad
    length = GRH.get(grh, "payload_length") - overhead
    if not 0 <= length <= len(body):
        length = max(0, len(body) - ICRC_SIZE - pad)
    return body[:length]


def _route(packet: bytes, grh: bytes, vlan: int) -> Route:
    return Route(
        smac=packet[6:12],
        dmac=packet[:6],
        sgid=GRH.get_raw(grh, "sgid"),
        dgid=GRH.get_raw(grh, "dgid"),
        vlan=vlan if vlan == NO_VLAN else vlan & 0xFFF,
        traffic_class=GRH.get(grh, "traffic_class"),
        hop_limit=GRH.get(grh, "hop_limit"),
        service_level=0 if vlan == NO_VLAN else vlan >> 13,
    )
