"""Management datagrams: the 24-byte common header and the attributes of subnet management."""

from __future__ import annotations

from enum import IntEnum

from bluebridge.device.layout.fields import Struct, bits, u8, u16, u32, u64

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
    [
        u8("base_version", 0, "1"),
        u8("mgmt_class", 1),
        u8("class_version", 2),
        u8("method", 3),
        u16("status", 4),
        u16("class_specific", 6),
        u64("tid", 8, "transaction id"),
        u16("attr_id", 16),
        u32("attr_mod", 20),
    ],
    source="InfiniBand vol. 1, 13.4.3",
)


class SmpAttribute(IntEnum):
    """Attributes of the subnet management agent."""

    NODE_DESCRIPTION = 0x10
    NODE_INFO = 0x11
    SWITCH_INFO = 0x12
    GUID_INFO = 0x14
    PORT_INFO = 0x15
    PKEY_TABLE = 0x16
    SL2VL_TABLE = 0x17
    VL_ARB_TABLE = 0x18


STATUS_UNSUPPORTED_ATTRIBUTE = 0x000C

NODE_INFO = Struct(
    "NodeInfo",
    40,
    [
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
    ],
    source="ib/main.c: init_node_data",
)

PORT_INFO = Struct(
    "PortInfo",
    64,
    [
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
    ],
    source="ib/main.c: ib_link_query_port",
)

__all__ = [
    "DATA_OFFSET", "MAD", "MAD_SIZE", "NODE_INFO", "PORT_INFO", "SMP_DATA_OFFSET",
    "STATUS_UNSUPPORTED_ATTRIBUTE", "Method", "MgmtClass", "SmpAttribute",
]  # fmt: skip
