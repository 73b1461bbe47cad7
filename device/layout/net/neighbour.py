"""Neighbour discovery of IPv6: who has an address, as ICMPv6 messages."""

from __future__ import annotations

from enum import IntEnum

from bluebridge.device.layout.fields import Struct, raw, u8, u16, u32

PROTOCOL_ICMPV6 = 58
HOP_LIMIT = 255
"""Of all messages, so that none comes through a router."""
ALL_NODES = bytes.fromhex("ff020000000000000000000000000001")
SOLICITED, OVERRIDE = 1 << 30, 1 << 29
"""Flags of an advertisement: it answers a question; what was known before is wrong."""


class Kind(IntEnum):
    """Types of messages."""

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
    """The group of all addresses with the same last three bytes (RFC 4291, 2.7.1)."""
    return bytes.fromhex("ff0200000000000000000001ff") + address[13:]


def group_mac(group: bytes) -> bytes:
    """The MAC address of a multicast group (RFC 2464, 7)."""
    return b"\x33\x33" + group[12:]
