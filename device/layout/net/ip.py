"""IP and UDP headers, which precede the BTH in RoCE v2; IPoIB, VXLAN and neighbour discovery.

ICMPv6 messages of neighbour discovery find the MAC address of an IPv6 address.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from bluebridge.device.layout.fields import Struct, bits, raw, u8, u16, u32

PROTOCOL_UDP: Final = 17
IPV4_MAPPED = bytes(10) + b"\xff\xff"
"""The bytes before an IPv4 address in a GID (RFC 4291, 2.5.5.2)."""
ROCE_V2: Final = 2
"""The version of RoCE whose packets are UDP over IPv4 or IPv6 (InfiniBand annex A17)."""
ROCE_PORT: Final = 4791
"""UDP destination port of RoCE v2 (InfiniBand annex A17)."""
FIRST_SOURCE_PORT: Final = 0xC000
"""Lowest UDP source port of RoCE v2; each connection has a port (annex A17.4.4)."""

ECN_CAPABLE: Final = 0b10
"""Low bits of a traffic class: the sender knows of congestion marks, ECT(0) (RFC 3168)."""
CONGESTION_EXPERIENCED: Final = 0b11
"""Low bits of a traffic class, all of those for ECN: a switch met congestion (RFC 3168)."""

IPV4 = Struct(
    "IPv4",
    20,
    bits("version", 0, 1, 7, 4, "4"),
    bits("header_words", 0, 1, 3, 0, "5: no options"),
    u8("tos", 1, "traffic class of the GRH"),
    u16("total_length", 2, "from the start of this header on"),
    u16("identification", 4),
    bits("dont_fragment", 6, 2, 14),
    bits("more_fragments", 6, 2, 13),
    bits("fragment_offset", 6, 2, 12, 0),
    u8("ttl", 8, "hop limit of the GRH"),
    u8("protocol", 9, "17 = UDP"),
    u16("checksum", 10, "of this header"),
    raw("source", 12, 4),
    raw("destination", 16, 4),
    source="RFC 791",
)

IPV6 = Struct(
    "IPv6",
    40,
    bits("version", 0, 4, 31, 28, "6"),
    bits("traffic_class", 0, 4, 27, 20),
    bits("flow_label", 0, 4, 19, 0),
    u16("payload_length", 4, "from the end of this header on"),
    u8("next_header", 6, "17 = UDP"),
    u8("hop_limit", 7),
    raw("source", 8, 16),
    raw("destination", 24, 16),
    source="RFC 8200",
)

UDP = Struct(
    "UDP",
    8,
    u16("source_port", 0),
    u16("destination_port", 2),
    u16("length", 4, "from the start of this header on"),
    u16("checksum", 6, "0 = none"),
    source="RFC 768",
)

IPOIB_HEADER_SIZE: Final = 4
IPOIB = Struct("IPOIB", IPOIB_HEADER_SIZE, u16("ethertype", 0, "protocol"), source="RFC 4391, 6")

VXLAN_PORT: Final = 4789
"""UDP destination port of VXLAN (RFC 7348, section 5)."""
VNI_VALID: Final = 0x08
"""The flags of a frame with a valid VNI; Linux drops what has others (vxlan_core.c: vxlan_rcv)."""
MAX_VNI = (1 << 24) - 1

VXLAN = Struct(
    "VXLAN",
    8,
    u8("flags", 0, "0x08: the VNI is valid"),
    raw("reserved", 1, 3, "0"),
    bits("vni", 4, 4, 31, 8, "network identifier"),
    bits("reserved2", 4, 4, 7, 0, "0"),
    source="RFC 7348",
)

PROTOCOL_ICMPV6: Final = 58
HOP_LIMIT: Final = 255
"""Hop limit of all messages, which shows that no router has forwarded them."""
ALL_NODES = bytes.fromhex("ff020000000000000000000000000001")
SOLICITED, OVERRIDE = 1 << 30, 1 << 29
"""Flags of an advertisement: it answers a solicitation; it replaces what was known before."""

NEIGHBOUR = Struct(
    "NEIGHBOUR",
    24,
    u8("type", 0, "135 solicitation, 136 advertisement"),
    u8("code", 1),
    u16("checksum", 2, "with the pseudo header of IPv6"),
    u32("flags", 4, "of an advertisement: bit 30 solicited, bit 29 override"),
    raw("target", 8, 16, "the address in question"),
    source="RFC 4861, 4.3 and 4.4",
)
LINK_OPTION = Struct(
    "LINK_OPTION",
    8,
    u8("type", 0, "1 of the source, 2 of the target"),
    u8("length", 1, "in 8 bytes: 1"),
    raw("mac", 2, 6),
    source="RFC 4861, 4.6.1",
)


def ones_complement_sum(data: bytes) -> int:
    """Return the Internet checksum of `data` (RFC 1071), complemented as in a checksum field."""
    total = int.from_bytes(data, "big") << 8 * (len(data) & 1)
    # 2^16 is 1 modulo 0xFFFF, of which the sum of anything but zeros is never 0
    return 0xFFFF - (total % 0xFFFF or (0xFFFF if total else 0))


def source_port(qpn: int, peer: int) -> int:
    """Return the UDP source port of a connection's packets in RoCE v2, the same at both ends.

    Linux tells the adapter (mlx4 `qp.c: mlx4_qp_roce_entropy`); packets of QP1, which it builds
    itself, have the first port (`ib/qp.c: MLX4_ROCEV2_QP1_SPORT`).
    """
    return FIRST_SOURCE_PORT | _folded(qpn) ^ (_folded(peer) if peer != qpn else 0)


def _folded(qpn: int) -> int:
    return (qpn ^ qpn >> 16) & 0xFF | qpn & 0xFF00


class NeighbourType(IntEnum):
    """ICMPv6 types of the messages."""

    SOLICITATION = 135
    ADVERTISEMENT = 136


class LinkOption(IntEnum):
    """Types of options that hold a MAC address."""

    SOURCE = 1
    TARGET = 2


def solicited_node(address: bytes) -> bytes:
    """Return the solicited-node group of an IPv6 address (RFC 4291, 2.7.1).

    All addresses with the same last three bytes are in it.
    """
    return bytes.fromhex("ff0200000000000000000001ff") + address[13:]


def group_mac(group: bytes) -> bytes:
    """Return the MAC address of an IPv6 multicast group (RFC 2464, 7)."""
    return b"\x33\x33" + group[12:]
