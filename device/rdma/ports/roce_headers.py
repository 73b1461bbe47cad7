"""The headers of RoCE packets that software built for QP1 (Linux `ib/qp.c: build_mlx_header`).

RoCE v1 has a GRH behind the Ethernet header, RoCE v2 an IP and a UDP header.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from bluebridge.device.fabric.messages import Datagram, Route
from bluebridge.device.layout.net.ethernet import (
    ETHERTYPE_IPV4,
    ETHERTYPE_IPV6,
    ETHERTYPE_ROCE,
    ETHERTYPE_VLAN,
    HEADER_SIZE,
    NO_VLAN,
)
from bluebridge.device.layout.net.ip import IPV4, IPV4_MAPPED, ROCE_PORT, ROCE_V2, UDP
from bluebridge.device.layout.net.roce import (
    BTH_SIZE,
    DETH_SIZE,
    GRH,
    GRH_SIZE,
    ICRC_SIZE,
)
from bluebridge.device.rdma.ports.datagram_headers import (
    HeaderError,
    Transport,
    datagram,
    parse_transport,
)
from bluebridge.device.rdma.ports.network_headers import IMMEDIATE_SIZE, IPV4_PADDING
from bluebridge.device.rdma.ports.roce_routes import of_tag

VLAN_SIZE: Final = 4


class Network(NamedTuple):
    """The network header of a packet; `header` are the 40 bytes that a receiver finds."""

    header: bytes
    route: Route
    transport: int
    """Offset of the BTH in the packet."""
    length: int
    """Bytes from the BTH to the end of the ICRC, as the network header states them."""


def _ethernet(packet: bytes) -> tuple[int, int, int]:
    """Return the Ethertype, the offset of the network header and the VLAN tag of a packet."""
    position, vlan = HEADER_SIZE, NO_VLAN
    kind = int.from_bytes(packet[12:14], "big")
    if kind == ETHERTYPE_VLAN:
        vlan = int.from_bytes(packet[14:16], "big")
        kind = int.from_bytes(packet[16:18], "big")
        position += VLAN_SIZE
    return kind, position, vlan


def _network(packet: bytes) -> Network:
    """Return the network header of a packet: GRH, IPv4 or IPv6."""
    kind, position, vlan = _ethernet(packet)
    size = IPV4.size if kind == ETHERTYPE_IPV4 else GRH_SIZE
    header = packet[position : position + size]
    transport = position + size + UDP.size * (kind != ETHERTYPE_ROCE)
    if len(packet) < transport + BTH_SIZE + DETH_SIZE:
        raise HeaderError(f"{len(packet)} bytes are too few for the headers")
    if kind == ETHERTYPE_IPV4:
        return _of_ipv4(packet, header, vlan, transport)
    if kind not in (ETHERTYPE_ROCE, ETHERTYPE_IPV6):
        raise HeaderError(f"Ethertype {kind:#06x} is not RoCE")
    _check_udp(packet, transport, kind != ETHERTYPE_ROCE)
    route = _route(
        packet, vlan, GRH.get_raw(header, "sgid"), GRH.get_raw(header, "dgid"),
        GRH.get(header, "traffic_class"), GRH.get(header, "hop_limit"),
        GRH.get(header, "flow_label"), 1 if kind == ETHERTYPE_ROCE else ROCE_V2,
    )  # fmt: skip
    length = GRH.get(header, "payload_length") - UDP.size * (kind != ETHERTYPE_ROCE)
    return Network(header, route, transport, length)


def _of_ipv4(packet: bytes, header: bytes, vlan: int, transport: int) -> Network:
    _check_udp(packet, transport, True)
    get, raw = IPV4.get, IPV4.get_raw
    if get(header, "header_words") * 4 != IPV4.size:
        raise HeaderError("an IPv4 header with options")
    route = _route(
        packet, vlan, IPV4_MAPPED + raw(header, "source"), IPV4_MAPPED + raw(header, "destination"),
        get(header, "tos"), get(header, "ttl"), 0, ROCE_V2,
    )  # fmt: skip
    length = get(header, "total_length") - IPV4.size - UDP.size
    return Network(IPV4_PADDING + header, route, transport, length)


def _check_udp(packet: bytes, transport: int, present: bool) -> None:
    if present and UDP.get(packet, "destination_port", transport - UDP.size) != ROCE_PORT:
        raise HeaderError("a UDP packet for another port than that of RoCE")


def parse_datagram(packet: bytes, own_qkey: int) -> Datagram:
    """Return the datagram in a whole RoCE packet; raises `HeaderError`.

    `own_qkey` is taken for a Q_Key of zero, which software leaves to the adapter.
    """
    network = _network(packet)
    transport = parse_transport(packet, network.transport, own_qkey)
    return datagram(transport, network.route, network.header, _payload(packet, network, transport))


def _payload(packet: bytes, network: Network, transport: Transport) -> bytes:
    """Return the bytes without padding and ICRC; the network header says how many there are."""
    body, pad = packet[transport.end :], transport.pad
    immediate = IMMEDIATE_SIZE * (transport.immediate is not None)
    overhead = BTH_SIZE + DETH_SIZE + immediate + ICRC_SIZE + pad
    length = network.length - overhead
    if not 0 <= length <= len(body):
        length = max(0, len(body) - ICRC_SIZE - pad)
    return body[:length]


def _route(
    packet: bytes,
    vlan: int,
    sgid: bytes,
    dgid: bytes,
    traffic_class: int,
    hop_limit: int,
    flow_label: int,
    roce: int,
) -> Route:
    vlan, level = of_tag(vlan)
    return Route(
        smac=packet[6:12],
        dmac=packet[:6],
        sgid=sgid,
        dgid=dgid,
        vlan=vlan,
        traffic_class=traffic_class,
        hop_limit=hop_limit,
        service_level=level,
        flow_label=flow_label,
        roce=roce,
    )
