"""The header of VXLAN, between UDP and the Ethernet frame that it carries."""

from __future__ import annotations

from bluebridge.device.layout.fields import Struct, bits, raw, u8

VXLAN_PORT = 4789
"""UDP destination port of VXLAN (RFC 7348, section 5)."""
VNI_VALID = 0x08
"""The flags of a frame with a valid VNI; Linux drops what has others (vxlan_core.c: vxlan_rcv)."""
MAX_VNI = (1 << 24) - 1

VXLAN = Struct(
    "VXLAN",
    8,
    [
        u8("flags", 0, "0x08: the VNI is valid"),
        raw("reserved", 1, 3, "0"),
        bits("vni", 4, 4, 31, 8, "network identifier"),
        bits("reserved2", 4, 4, 7, 0, "0"),
    ],
    source="RFC 7348",
)
