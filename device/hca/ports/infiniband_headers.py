"""Packets whose headers software built for InfiniBand: what QP0 and QP1 send.

The link header comes first, then a GRH if the address has one (Linux `ib/qp.c: build_mlx_header`,
`core/ud_header.c: ib_ud_header_pack`).
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from bluebridge.device.fabric.addresses import PERMISSIVE, lid_bytes, lid_of
from bluebridge.device.fabric.messages import Datagram, Route
from bluebridge.device.hca.ports.roce_headers import HeaderError
from bluebridge.device.layout.ib.link import LRH, LRH_SIZE, NEXT_BTH, NEXT_GRH
from bluebridge.device.layout.net.roce import BTH_SIZE, DETH_SIZE, GRH, GRH_SIZE, BthOpcode

IMMEDIATE_SIZE = 4
ICRC_SIZE = 4
PATH_BITS = 0x7F
NO_GID = bytes(16)
_BTH = Struct(">BBHII")
_DETH = Struct(">II")
_QPN_MASK = 0xFFFFFF

SourceLid = Callable[[int], bytes]


def parse_ib_datagram(packet: bytes, own_qkey: int, source_lid: SourceLid) -> Datagram:
    """The datagram in a whole InfiniBand packet; raises `HeaderError`.

    `source_lid` makes the adapter's LID of the source's path bits, so that nobody speaks with
    another's; `own_qkey` stands for a Q_Key of zero.
    """
    grh, position = _network(packet)
    opcode, flags, pkey, target, psn = _BTH.unpack_from(packet, position)
    qkey, source = _DETH.unpack_from(packet, position + BTH_SIZE)
    position += BTH_SIZE + DETH_SIZE
    immediate = None
    if opcode == BthOpcode.UD_SEND_ONLY_IMM:
        immediate = int.from_bytes(packet[position : position + IMMEDIATE_SIZE], "big")
        position += IMMEDIATE_SIZE
    elif opcode != BthOpcode.UD_SEND_ONLY:
        raise HeaderError(f"BTH opcode {opcode:#x}")
    body = packet[position:]
    return Datagram(
        route=_route(packet, grh, source_lid, pkey),
        source_qpn=source & _QPN_MASK,
        target_qpn=target & _QPN_MASK,
        qkey=qkey or own_qkey,
        psn=psn & _QPN_MASK,
        grh=grh,
        payload=body[: max(0, len(body) - ICRC_SIZE - (flags >> 4 & 3))],
        immediate=immediate,
        solicited=bool(flags & 0x80),
        pkey=pkey,
    )


def _network(packet: bytes) -> tuple[bytes, int]:
    """The GRH, if there is one, and the offset of the transport header."""
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
