"""Ethernet and ARP headers, for the guest driver's netif and the fabric."""

from __future__ import annotations

from typing import Final

from bluebridge.device.layout.fields import Struct, raw, u8, u16

ETHERTYPE_IPV4: Final = 0x0800
ETHERTYPE_ARP: Final = 0x0806
ETHERTYPE_VLAN: Final = 0x8100
ETHERTYPE_SERVICE_VLAN: Final = 0x88A8
ETHERTYPE_IPV6: Final = 0x86DD
ETHERTYPE_MAC_CONTROL: Final = 0x8808
ETHERTYPE_ROCE: Final = 0x8915
VLAN_TAG_TYPES = (ETHERTYPE_VLAN.to_bytes(2, "big"), ETHERTYPE_SERVICE_VLAN.to_bytes(2, "big"))
"""Ethertypes that begin a VLAN tag, as they stand in a frame."""
BROADCAST = b"\xff" * 6
HEADER_SIZE: Final = 14
TAG_SIZE: Final = 4
MIN_FRAME: Final = 60
NO_VLAN: Final = 0xFFFF
"""VLAN id that stands for a frame without a tag."""

ETHERNET = Struct(
    "ETH",
    HEADER_SIZE,
    raw("dmac", 0, 6, "destination"),
    raw("smac", 6, 6, "source"),
    u16("ethertype", 12, "protocol"),
    source="IEEE 802.3",
)

PAUSE_ADDRESS = bytes.fromhex("0180c2000001")
PAUSE_OPCODE: Final = 1
PAUSE = Struct(
    "PAUSE",
    MIN_FRAME,
    raw("dmac", 0, 6, "01:80:c2:00:00:01, never forwarded"),
    raw("smac", 6, 6),
    u16("ethertype", 12, "0x8808, MAC control"),
    u16("opcode", 14, "1"),
    u16("quanta", 16, "how long to send nothing, in times of 512 bits; 0 = go on"),
    source="IEEE 802.3 annex 31B",
)

ARP_REQUEST: Final = 1
ARP_REPLY: Final = 2
ARP = Struct(
    "ARP",
    28,
    u16("hardware", 0, "1 = Ethernet"),
    u16("protocol", 2, "0x0800"),
    u8("hardware_size", 4),
    u8("protocol_size", 5),
    u16("operation", 6, "1 request, 2 reply"),
    raw("sender_mac", 8, 6),
    raw("sender_ip", 14, 4),
    raw("target_mac", 18, 6),
    raw("target_ip", 24, 4),
    source="RFC 826",
)
