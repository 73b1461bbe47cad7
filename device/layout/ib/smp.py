"""Subnet and performance management: packets, and attributes that `net.mad` does not define."""

from __future__ import annotations

from enum import IntEnum, IntFlag

from bluebridge.device.layout.fields import Struct, bits, raw, u8, u16, u24, u32, u64

SMP_SIZE = 256
SMP_DATA_OFFSET = 64
SMP_DATA_SIZE = 64
MAX_HOPS = 64
DIRECTION = 0x8000
"""D bit in the status of a directed-route SMP: it is a response on its return path."""

SMP = Struct(
    "SMP",
    SMP_SIZE,
    [
        u8("base_version", 0, "1"),
        u8("mgmt_class", 1, "0x01 LID-routed, 0x81 directed-route"),
        u8("class_version", 2, "1"),
        u8("method", 3),
        u16("status", 4, "directed-route: bit 15 is the direction"),
        u8("hop_pointer", 6),
        u8("hop_count", 7),
        u64("tid", 8),
        u16("attr_id", 16),
        u32("attr_mod", 20),
        u64("mkey", 24),
        u16("dr_slid", 32, "0xFFFF: the route starts at the sender"),
        u16("dr_dlid", 34, "0xFFFF: the route ends at the receiver"),
        raw("data", SMP_DATA_OFFSET, SMP_DATA_SIZE),
        raw("initial_path", 128, MAX_HOPS, "egress ports, from index 1"),
        raw("return_path", 192, MAX_HOPS, "ingress ports, from index 1"),
    ],
    source="InfiniBand vol. 1, 14.2.1; core/smi.c",
)


class SmpStatus(IntEnum):
    """Status values of an SMP or any other MAD (13.4.7)."""

    OK = 0x0000
    BUSY = 0x0001
    BAD_VERSION = 0x0004
    BAD_METHOD = 0x0008
    BAD_ATTRIBUTE = 0x000C
    BAD_FIELD = 0x001C


class SwitchAttribute(IntEnum):
    """Attributes of the subnet management agent that `net.mad.SmpAttribute` does not define."""

    NOTICE = 0x02
    LINEAR_FORWARDING = 0x19
    MULTICAST_FORWARDING = 0x1B
    SM_INFO = 0x20
    MLNX_EXTENDED_PORT_INFO = 0xFF90


class PortCapability(IntFlag):
    """Bits of CapabilityMask in PortInfo."""

    IS_SM = 1 << 1
    TRAPS = 1 << 3
    SL_MAPPING = 1 << 6
    SYSTEM_GUID = 1 << 11
    CM = 1 << 16
    SNMP_TUNNEL = 1 << 17
    DEVICE_MANAGEMENT = 1 << 19
    VENDOR_CLASS = 1 << 20
    CAP_MASK_NOTICE = 1 << 22
    CLIENT_REREGISTER = 1 << 25


SWITCH_INFO = Struct(
    "SwitchInfo",
    20,
    [
        u16("linear_capacity", 0, "LIDs the unicast forwarding table holds"),
        u16("random_capacity", 2),
        u16("multicast_capacity", 4, "LIDs the multicast forwarding table holds"),
        u16("linear_top", 6, "highest LID in use"),
        u8("default_port", 8),
        u8("default_multicast_primary", 9),
        u8("default_multicast_other", 10),
        bits("life_time", 11, 1, 7, 3, "4.096 us * 2^n a packet may stay"),
        bits("port_state_change", 11, 1, 2, doc="a port changed its state; writing 1 clears"),
        u16("lids_per_port", 12),
        u16("partition_enforcement", 14),
        bits("inbound_enforcement", 16, 1, 7),
        bits("outbound_enforcement", 16, 1, 6),
        bits("enhanced_port0", 16, 1, 3),
        u16("multicast_top", 18),
    ],
    source="InfiniBand vol. 1, 14.2.5.4",
)

SM_INFO_SIZE = 24
SM_MASTER = 3
SM_INFO = Struct(
    "SMInfo",
    SM_INFO_SIZE,
    [
        u64("guid", 0, "port GUID of the subnet manager"),
        u64("sm_key", 8),
        u32("activity", 16, "grows while the subnet manager lives"),
        bits("priority", 20, 1, 7, 4),
        bits("state", 20, 1, 3, 0, "3 = master"),
    ],
    source="InfiniBand vol. 1, 14.2.5.13",
)

TRAP_LINK_STATE = 128
TRAP_CAPABILITY = 144
NOTICE_SIZE = 64
NOTICE = Struct(
    "Notice",
    NOTICE_SIZE,
    [
        bits("generic", 0, 1, 7),
        bits("type", 0, 1, 6, 0, "1 urgent, 4 informational"),
        u24("producer", 1, "1 channel adapter, 2 switch, 4 subnet manager"),
        u16("trap", 4),
        u16("issuer_lid", 6),
        bits("toggle", 8, 2, 15),
        bits("count", 8, 2, 14, 0),
        raw("details", 10, 54),
    ],
    source="InfiniBand vol. 1, 13.4.8.2",
)
NOTICE_128_LID = 10
NOTICE_144_LID = 12
NOTICE_144_CAPABILITIES = 16
NOTICE_URGENT, NOTICE_INFO = 1, 4

FORWARDING_BLOCK = 64
"""LIDs in one block of the unicast forwarding table."""
MULTICAST_BLOCK = 32
"""LIDs in one block of the multicast forwarding table; each entry is a mask of 16 ports."""
NO_PORT = 255
PKEY_BLOCK = 32
GUID_BLOCK = 8


PERF_DATA_OFFSET = 64


class PerfAttribute(IntEnum):
    """Attributes of the performance management agent."""

    CLASS_PORT_INFO = 0x01
    PORT_COUNTERS = 0x12
    PORT_COUNTERS_EXTENDED = 0x1D


ALL_PORTS = 0xFF
CAP_ALL_PORT_SELECT = 1 << 8
CAP_EXTENDED_WIDTH = 1 << 9

CLASS_PORT_INFO = Struct(
    "ClassPortInfo",
    72,
    [
        u8("base_version", 0, "1"),
        u8("class_version", 1),
        u16("capabilities", 2, "by class"),
        bits("capabilities2", 4, 4, 31, 5),
        bits("response_time", 4, 4, 4, 0, "4.096 us * 2^n"),
        raw("redirect_gid", 8, 16),
        u32("redirect_class", 24),
        u16("redirect_lid", 28),
        u16("redirect_pkey", 30),
        u32("redirect_qp", 32),
        u32("redirect_qkey", 36),
        raw("trap_gid", 40, 16),
        u32("trap_class", 56),
        u16("trap_lid", 60),
        u16("trap_pkey", 62),
        u32("trap_qp", 64),
        u32("trap_qkey", 68),
    ],
    source="InfiniBand vol. 1, 13.4.8.1",
)

PORT_COUNTERS = Struct(
    "PortCounters",
    44,
    [
        u8("port", 1, "0xFF = the sum of all"),
        u16("select", 2, "counters a Set zeroes"),
        u16("symbol_errors", 4),
        u8("link_recoveries", 6),
        u8("link_downed", 7),
        u16("rcv_errors", 8),
        u16("rcv_remote_physical_errors", 10),
        u16("rcv_switch_relay_errors", 12),
        u16("xmit_discards", 14),
        u8("xmit_constraint_errors", 16),
        u8("rcv_constraint_errors", 17),
        u8("select2", 18),
        u16("vl15_dropped", 22),
        u32("xmit_data", 24, "4-byte words"),
        u32("rcv_data", 28, "4-byte words"),
        u32("xmit_packets", 32),
        u32("rcv_packets", 36),
        u32("xmit_wait", 40),
    ],
    source="InfiniBand vol. 1, 16.1.3.5",
)

PORT_COUNTERS_EXTENDED = Struct(
    "PortCountersExtended",
    72,
    [
        u8("port", 1),
        u16("select", 2),
        u64("xmit_data", 8, "4-byte words"),
        u64("rcv_data", 16, "4-byte words"),
        u64("xmit_packets", 24),
        u64("rcv_packets", 32),
        u64("unicast_xmit_packets", 40),
        u64("unicast_rcv_packets", 48),
        u64("multicast_xmit_packets", 56),
        u64("multicast_rcv_packets", 64),
    ],
    source="InfiniBand vol. 1, 16.1.4.11",
)
