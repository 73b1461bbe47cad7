"""The link layer: the local route header in front of every InfiniBand packet."""

from __future__ import annotations

from typing import Final

from bluebridge.device.layout.fields import Struct, bits, u16

LRH_SIZE: Final = 8
NEXT_BTH, NEXT_GRH = 2, 3
"""Values that name the header after the LRH: the transport header, or a GRH before it."""

LRH = Struct(
    "LRH",
    LRH_SIZE,
    bits("virtual_lane", 0, 1, 7, 4, "15 = subnet management"),
    bits("link_version", 0, 1, 3, 0),
    bits("service_level", 1, 1, 7, 4),
    bits("next_header", 1, 1, 1, 0, "2 = BTH, 3 = GRH"),
    u16("dlid", 2, "destination LID"),
    bits("length", 4, 2, 10, 0, "4-byte words from the LRH to before the VCRC"),
    u16("slid", 6, "source LID; software leaves all but its path bits to the adapter"),
    source="InfiniBand vol. 1, 7.7; core/ud_header.c: lrh_table",
)

NO_LID: Final = 0
MANAGEMENT_LANE: Final = 15
FIRST_GROUP_LID: Final = 0xC000
LAST_GROUP_LID: Final = 0xFFFE
PERMISSIVE_LID: Final = 0xFFFF

LINK_DOWN, LINK_INIT, LINK_ARMED, LINK_ACTIVE = 1, 2, 3, 4
"""Values of the state of a port's link."""
PHYSICAL_POLLING, PHYSICAL_DISABLED, PHYSICAL_LINK_UP = 2, 3, 5
"""Values of the physical state of a port."""

MTU_2048, MTU_4096 = 4, 5
RATE_40_GBPS: Final = 7
WIDTH_1X, WIDTH_4X = 1, 2
SPEED_QDR: Final = 4
"""Link speed of one lane: 10 Gb/s."""

PKEY_FULL_MEMBER: Final = 0x8000
PKEY_BASE: Final = 0x7FFF
"""Mask of the partition in a P_Key (bits 14:0); bit 15 is set for a full member."""


def partitions_match(one: int, other: int) -> bool:
    """Return whether ports with these P_Keys may communicate.

    They must be in the same partition and not both limited members.
    """
    same = not (one ^ other) & PKEY_BASE and one & PKEY_BASE
    return bool(same and (one | other) & PKEY_FULL_MEMBER)
