"""The fields of a packet that rules can name, as the bits of one number.

A rule is a mask and a value of such numbers: it matches where number & mask == value, and all
rules with one mask are found by one look into a dictionary. Fields are ordered by how far into a
packet they stand, so that the numbers of packets are only as long as the rules of a port need.
Flags say that a header is there: a rule that names a protocol without any field needs its flag.
"""

from __future__ import annotations

from typing import Final

DMAC: Final = 0
SMAC: Final = 48
ETHERTYPE: Final = 96
VLAN: Final = 112
DESTINATION: Final = 128
SOURCE: Final = 160
DESTINATION_PORT: Final = 192
SOURCE_PORT: Final = 208
FLAGS: Final = 224
VNI: Final = 232
INNER: Final = 256
"""Number of bits by which the fields of a frame inside VXLAN lie above the outer ones."""

DGID: Final = 512
QPN: Final = 640
"""Bit offset of the destination queue pair of InfiniBand, in front of which is the GID."""

IPV4: Final = 1 << FLAGS
TCP: Final = 2 << FLAGS
UDP: Final = 4 << FLAGS
VXLAN: Final = 8 << FLAGS
INFINIBAND: Final = 16 << FLAGS

ADDRESS_BITS: Final = (1 << SMAC) - 1
LINK_BITS: Final = (1 << DESTINATION) - 1
OUTER_BITS: Final = VXLAN - 1

BY_ADDRESS, BY_LINK, BY_TRANSPORT, BY_INNER = range(4)


def depth_of(mask: int) -> int:
    """Return how far into a frame the fields of a mask lie.

    `BY_ADDRESS`: its first six bytes, `BY_LINK`: the Ethernet header, `BY_TRANSPORT`: IP and
    transport headers, `BY_INNER`: a frame inside of VXLAN.
    """
    if not mask & ~ADDRESS_BITS:
        return BY_ADDRESS
    if not mask & ~LINK_BITS:
        return BY_LINK
    return BY_INNER if mask & ~OUTER_BITS else BY_TRANSPORT
