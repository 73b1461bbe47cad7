"""Rules of device-managed flow steering: a control segment, then one header for each protocol.

Linux `mlx4/mcg.c: mlx4_flow_attach, trans_rule_ctrl_to_hw, parse_trans_rule`.
"""

from __future__ import annotations

from enum import IntEnum

from bluebridge.device.layout.fields import Struct, bits, raw, u8, u16


class RuleMode(IntEnum):
    """Purposes of a steering rule (mlx4/mcg.c: __promisc_mode)."""

    REGULAR = 0
    ALL_DEFAULT = 1
    MULTICAST_DEFAULT = 3
    MIRROR_RECEIVED = 4
    MIRROR_SENT = 5
    UNICAST_SNIFFER = 6
    MULTICAST_SNIFFER = 7


class RuleHeader(IntEnum):
    """Protocols of the headers in a steering rule (mlx4/mcg.c: __sw_id_hw)."""

    ETHERNET = 0xE001
    IPV4 = 0xE002
    IPV6 = 0xE003
    TCP = 0xE004
    INFINIBAND = 0xE005
    UDP = 0xE006
    VXLAN = 0xE008


RULE_CONTROL = Struct(
    "RULE_CONTROL",
    16,
    u16("priority", 0x00, "the lowest of several rules counts; 15:12 are the domain"),
    u8("mode", 0x02, "RuleMode"),
    bits("allow_loopback", 0x03, 1, 3, doc="also what the queue pair sent itself"),
    bits("exclusive", 0x03, 1, 2, doc="no other queue pair may have the same rule"),
    bits("last_first", 0x03, 1, 0, doc="in front of older rules of the same priority"),
    u8("port", 0x07),
    bits("qpn", 0x08, 4, 23, 0, "who gets what the rule matches"),
    source="inc/device.h: struct mlx4_net_trans_rule_hw_ctrl",
)

_SIZE_AND_ID = (u8("size", 0x00, "in 4-byte words"), u16("id", 0x02, "RuleHeader"))

RULE_ETHERNET = Struct(
    "RULE_ETHERNET",
    48,
    *_SIZE_AND_ID,
    raw("dmac", 0x0A, 6),
    raw("dmac_mask", 0x12, 6),
    raw("smac", 0x1A, 6),
    raw("smac_mask", 0x22, 6),
    u8("match_type", 0x29, "1: the Ethertype has to be equal"),
    u16("ethertype", 0x2A),
    u16("vlan_mask", 0x2C),
    u16("vlan", 0x2E, "tag"),
    source="inc/device.h: struct mlx4_net_trans_rule_hw_eth",
)
RULE_INFINIBAND = Struct(
    "RULE_INFINIBAND",
    48,
    *_SIZE_AND_ID,
    bits("qpn", 0x08, 4, 23, 0, "destination; 0 stands for any"),
    bits("qpn_mask", 0x0C, 4, 23, 0),
    raw("dgid", 0x10, 16),
    raw("dgid_mask", 0x20, 16),
    source="inc/device.h: struct mlx4_net_trans_rule_hw_ib",
)
RULE_IPV4 = Struct(
    "RULE_IPV4",
    24,
    *_SIZE_AND_ID,
    raw("destination", 0x08, 4),
    raw("destination_mask", 0x0C, 4),
    raw("source", 0x10, 4),
    raw("source_mask", 0x14, 4),
    source="inc/device.h: struct mlx4_net_trans_rule_hw_ipv4",
)
RULE_PORTS = Struct(
    "RULE_PORTS",
    24,
    *_SIZE_AND_ID,
    u16("destination", 0x0A),
    u16("destination_mask", 0x0E),
    u16("source", 0x12),
    u16("source_mask", 0x16),
    doc="header of TCP or UDP",
    source="inc/device.h: struct mlx4_net_trans_rule_hw_tcp_udp",
)
RULE_VXLAN = Struct(
    "RULE_VXLAN",
    16,
    *_SIZE_AND_ID,
    bits("vni", 0x08, 4, 31, 8),
    bits("vni_mask", 0x0C, 4, 31, 8),
    doc="what follows is matched with the frame inside",
    source="inc/device.h: struct mlx4_net_trans_rule_hw_vxlan",
)

RULE_HEADERS = {
    RuleHeader.ETHERNET: RULE_ETHERNET,
    RuleHeader.INFINIBAND: RULE_INFINIBAND,
    RuleHeader.IPV4: RULE_IPV4,
    RuleHeader.TCP: RULE_PORTS,
    RuleHeader.UDP: RULE_PORTS,
    RuleHeader.VXLAN: RULE_VXLAN,
}
"""The structure of each header that drivers write; none of them writes one of IPv6."""

UD_RANGE = Struct(
    "UD_RANGE",
    8,
    bits("first", 0x00, 4, 23, 0, "first queue pair of UD that rules are looked up for"),
    bits("last", 0x04, 4, 23, 0),
    doc="immediate input of FLOW_STEERING_IB_UC_QP_RANGE",
    source="mlx4/mcg.c: mlx4_FLOW_STEERING_IB_UC_QP_RANGE",
)
