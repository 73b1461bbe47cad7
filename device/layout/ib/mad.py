"""Management datagrams: their common header, subnet management and performance management."""

from __future__ import annotations

from enum import IntEnum, IntFlag

from bluebridge.device.layout.fields import Struct, bits, raw, u8, u16, u24, u32, u64

MAD_SIZE = 256
DATA_OFFSET = 24
SMP_DATA_OFFSET = 64


class MgmtClass(IntEnum):
    """Management classes."""

    SUBN_LID = 0x01
    SUBN_ADM = 0x03
    PERF = 0x04
    CM = 0x07
    SUBN_DIRECTED = 0x81


class Method(IntEnum):
    """Methods of management datagrams."""

    GET = 0x01
    SET = 0x02
    SEND = 0x03
    TRAP = 0x05
    TRAP_REPRESS = 0x07
    GET_RESP = 0x81


MAD = Struct(
    "MAD",
    24,
    u8("base_version", 0, "1"),
    u8("mgmt_class", 1),
    u8("class_version", 2),
    u8("method", 3),
    u16("status", 4),
    u16("class_specific", 6),
    u64("tid", 8, "transaction id"),
    u16("attr_id", 16),
    u32("attr_mod", 20),
    source="InfiniBand vol. 1, 13.4.3",
)


class SmpAttribute(IntEnum):
    """Attributes of the subnet management agent."""

    NOTICE = 0x02
    NODE_DESCRIPTION = 0x10
    NODE_INFO = 0x11
    SWITCH_INFO = 0x12
    GUID_INFO = 0x14
    PORT_INFO = 0x15
    PKEY_TABLE = 0x16
    SL2VL_TABLE = 0x17
    VL_ARB_TABLE = 0x18
    LINEAR_FORWARDING = 0x19
    MULTICAST_FORWARDING = 0x1B
    SM_INFO = 0x20
    MLNX_EXTENDED_PORT_INFO = 0xFF90


NODE_INFO = Struct(
    "NodeInfo",
    40,
    u8("base_version", 0),
    u8("class_version", 1),
    u8("node_type", 2, "1 = channel adapter"),
    u8("ports", 3),
    u64("system_image_guid", 4),
    u64("node_guid", 12),
    u64("port_guid", 20),
    u16("partition_cap", 28),
    u16("device_id", 30),
    u32("revision", 32),
    bits("local_port", 36, 4, 31, 24),
    bits("vendor_id", 36, 4, 23, 0),
    source="ib/main.c: init_node_data",
)

PORT_INFO = Struct(
    "PortInfo",
    64,
    u64("mkey", 0),
    u64("gid_prefix", 8),
    u16("lid", 16),
    u16("sm_lid", 18),
    u32("capabilities", 20),
    u16("diagnostic_code", 24),
    u16("mkey_lease", 26, "seconds"),
    u8("local_port", 28),
    u8("width_enabled", 29),
    u8("width_supported", 30),
    u8("width_active", 31),
    bits("speed_supported", 32, 1, 7, 4),
    bits("state", 32, 1, 3, 0, "1 down, 2 init, 3 armed, 4 active"),
    bits("physical_state", 33, 1, 7, 4, "2 polling, 3 disabled, 5 link up"),
    bits("link_down_default", 33, 1, 3, 0),
    bits("mkey_protect", 34, 1, 7, 6),
    bits("lmc", 34, 1, 2, 0),
    bits("speed_active", 35, 1, 7, 4),
    bits("speed_enabled", 35, 1, 3, 0),
    bits("neighbour_mtu", 36, 1, 7, 4),
    bits("sm_sl", 36, 1, 3, 0),
    bits("vl_cap", 37, 1, 7, 4),
    bits("init_type", 37, 1, 3, 0),
    u8("vl_high_limit", 38),
    u8("vl_arb_high_cap", 39),
    u8("vl_arb_low_cap", 40),
    bits("init_type_reply", 41, 1, 7, 4),
    bits("mtu_cap", 41, 1, 3, 0),
    bits("vl_stall_count", 42, 1, 7, 5),
    bits("hoq_life", 42, 1, 4, 0),
    bits("operational_vls", 43, 1, 7, 4),
    bits("enforcement", 43, 1, 3, 0),
    u16("mkey_violations", 44),
    u16("pkey_violations", 46),
    u16("qkey_violations", 48),
    u8("guid_cap", 50),
    bits("client_reregister", 51, 1, 7),
    bits("subnet_timeout", 51, 1, 4, 0),
    bits("resp_time", 52, 1, 4, 0),
    bits("local_phy_errors", 53, 1, 7, 4),
    bits("overrun_errors", 53, 1, 3, 0),
    bits("speed_ext_active", 62, 1, 7, 4),
    source="ib/main.c: ib_link_query_port",
)


SMP_SIZE = 256
SMP_DATA_SIZE = 64
MAX_HOPS = 64
DIRECTION = 0x8000
"""D bit in the status of a directed-route SMP: it is a response on its return path."""

SMP = Struct(
    "SMP",
    SMP_SIZE,
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
    source="InfiniBand vol. 1, 14.2.5.4",
)

SM_INFO_SIZE = 24
SM_MASTER = 3
SM_INFO = Struct(
    "SMInfo",
    SM_INFO_SIZE,
    u64("guid", 0, "port GUID of the subnet manager"),
    u64("sm_key", 8),
    u32("activity", 16, "grows while the subnet manager lives"),
    bits("priority", 20, 1, 7, 4),
    bits("state", 20, 1, 3, 0, "3 = master"),
    source="InfiniBand vol. 1, 14.2.5.13",
)

TRAP_LINK_STATE = 128
TRAP_CAPABILITY = 144
NOTICE_SIZE = 64
NOTICE = Struct(
    "Notice",
    NOTICE_SIZE,
    bits("generic", 0, 1, 7),
    bits("type", 0, 1, 6, 0, "1 urgent, 4 informational"),
    u24("producer", 1, "1 channel adapter, 2 switch, 4 subnet manager"),
    u16("trap", 4),
    u16("issuer_lid", 6),
    bits("toggle", 8, 2, 15),
    bits("count", 8, 2, 14, 0),
    raw("details", 10, 54),
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
    source="InfiniBand vol. 1, 13.4.8.1",
)

PORT_COUNTERS = Struct(
    "PortCounters",
    44,
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
    source="InfiniBand vol. 1, 16.1.3.5",
)

PORT_COUNTERS_EXTENDED = Struct(
    "PortCountersExtended",
    72,
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
    source="InfiniBand vol. 1, 16.1.4.11",
)
