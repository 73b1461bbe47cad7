"""The network header of a datagram, in the 40 bytes in front of the payload at a receiver.

RoCE v1 and InfiniBand: a GRH. RoCE v2: an IPv6 header, or an IPv4 header in the last 20 bytes;
Linux `infiniband/core/verbs.c: ib_get_rdma_header_version` tells them apart by the IPv4 checksum.
"""

from __future__ import annotations

from typing import Final

from bluebridge.device.fabric.messages import Route
from bluebridge.device.layout.net.ip import (
    IPV4_MAPPED,
    PROTOCOL_UDP,
    ROCE_V2,
    UDP,
    ones_complement_sum,
)
from bluebridge.device.layout.net.roce import BTH_SIZE, DETH_SIZE, GRH_NEXT_BTH, ICRC_SIZE
from bluebridge.device.packets.forms import GRH, IPV4

IPV4_PADDING: Final = bytes(20)
IP_VERSION: Final = 6
IMMEDIATE_SIZE: Final = 4
_VERSION_AND_WORDS: Final = 0x45
_DONT_FRAGMENT: Final = 0x4000


def build_network_header(route: Route, payload: int, immediate: bool) -> bytes:
    """Return the network header of a datagram of `payload` bytes that takes `route`."""
    length = BTH_SIZE + DETH_SIZE + IMMEDIATE_SIZE * immediate + (payload + 3 & ~3) + ICRC_SIZE
    if route.roce != ROCE_V2:
        return _build_grh(route, length, GRH_NEXT_BTH)
    length += UDP.size
    if route.sgid.startswith(IPV4_MAPPED):
        return IPV4_PADDING + _build_ipv4(route, length + IPV4.size)
    return _build_grh(route, length, PROTOCOL_UDP)


def _build_grh(route: Route, length: int, following: int) -> bytes:
    return GRH.pack(
        IP_VERSION << 28 | route.traffic_class << 20 | route.flow_label,
        length,
        following,
        route.hop_limit,
        route.sgid,
        route.dgid,
    )


def _build_ipv4(route: Route, length: int) -> bytes:
    def pack(checksum: int) -> bytes:
        return IPV4.pack(
            _VERSION_AND_WORDS,
            route.traffic_class,
            length,
            0,
            _DONT_FRAGMENT,
            route.hop_limit,
            PROTOCOL_UDP,
            checksum,
            route.sgid[12:],
            route.dgid[12:],
        )

    return pack(ones_complement_sum(pack(0)))
