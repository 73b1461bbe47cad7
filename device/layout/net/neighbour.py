"""ICMPv6 messages of IPv6 neighbour discovery, which find the MAC address of an IP address."""

from __future__ import annotations

from enum import IntEnum

from bluebridge.device.layout.fields import Struct, raw, u8, u16, u32

PROTOCOL_ICMPV6 = 58
HOP_LIMIT = 255
"""Hop limit of all messages, which shows that no router has forwarded them."""
ALL_NODES = bytes.fromhex("ff020000000000000000000000000001")
SOLICITED, OVERRIDE = 1 << 30, 1 << 29
"""Flags of an advertisement: it answers a solicitation; it replaces what was known before."""


class Kind(IntEnum):
    """ICMPv6 types of the messages."""

    SOLICITATION = 135
    ADVERTISEMENT = 136


class LinkOption(IntEnum):
    """Types of options that hold a MAC address."""

    SOURCE = 1
    TARGET = 2


NEIGHBOUR = Struct(
    "NEIGHBOUR",
    24,
    [
        u8("type", 0, "135 solicitation, 136 advertisement"),
        u8("code", 1),
        u16("checksum", 2, "with the pseudo header of IPv6"),
        u32("flags", 4, "of an advertisement: bit 30 solicited, bit 29 override"),
        raw("target", 8, 16, "the address in question"),
    ],
    source="RFC 4861, 4.3 and 4.4",
)
LINK_OPTION = Struct(
    "LINK_OPTION",
    8,
    [
        u8("type", 0, "1 of the source, 2 of the target"),
        u8("length", 1, "in 8 bytes: 1"),
        raw("mac", 2, 6),
    ],
    source="RFC 4861, 4.6.1",
)


def solicited_node(address: bytes) -> bytes:
    """Return the solicited-node group of an IPv6 address (RFC 4291, 2.7.1).

    All addresses with the same last three bytes are in it.
    """
    return bytes.fromhex("ff0200000000000000000001ff") + address[13:]


def group_mac(group: bytes) -> bytes:
    """Return the MAC address of an IPv6 multicast group (RFC 2464, 7)."""
    return b"\x33\x33" + group[12:]
