"""Management packets that nodes of the fabric send themselves."""

from __future__ import annotations

from struct import Struct

from bluebridge.device.fabric.addresses import PERMISSIVE
from bluebridge.device.fabric.messages import Datagram, Route
from bluebridge.device.layout.net.roce import (
    DEFAULT_PKEY,
    GRH_NEXT_BTH,
    GSI_QKEY,
    GSI_QPN,
    NO_GID,
    SMI_QPN,
)

_GRH = Struct(">IHBB16s16s")
_HEADERS_AND_MAD = 12 + 8 + 256 + 4  # BTH, DETH, MAD, ICRC


def smp_to(source: bytes, target: bytes, smp: bytes) -> Datagram:
    """Return a subnet management packet between two LIDs."""
    route = Route(source, target, NO_GID, NO_GID)
    return Datagram(route, SMI_QPN, SMI_QPN, 0, 0, b"", smp)


def directed(smp: bytes) -> Datagram:
    """Return a subnet management packet to the port at the other end of the cable."""
    return smp_to(PERMISSIVE, PERMISSIVE, smp)


def answer_to(request: Datagram, mad: bytes) -> Datagram:
    """Return a MAD that goes back to the sender of `request`, to its queue pair."""
    asked = request.route
    route = Route(
        smac=asked.dmac,
        dmac=asked.smac,
        sgid=asked.dgid,
        dgid=asked.sgid,
        hop_limit=asked.hop_limit,
        service_level=asked.service_level,
        pkey=DEFAULT_PKEY,
    )
    qkey = GSI_QKEY if request.target_qpn == GSI_QPN else 0
    grh = _grh(route) if request.grh else b""
    return Datagram(route, request.target_qpn, request.source_qpn, qkey, 0, grh, mad)


def _grh(route: Route) -> bytes:
    version = 6 << 28
    hops = max(route.hop_limit, 1)
    return _GRH.pack(version, _HEADERS_AND_MAD, GRH_NEXT_BTH, hops, route.sgid, route.dgid)
