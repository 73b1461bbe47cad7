"""Flow tables, groups and entries: the graph that received frames take to a TIR.

Linux `include/linux/mlx5/mlx5_ifc.h`, `core/fs_cmd.c`.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Final

from bluebridge.device.layout.fields import Struct, bits, raw, u8, u16, u32, u64


class TableType(IntEnum):
    """Which frames take the tables (mlx5_ifc.h: FS_FT_*)."""

    NIC_RX = 0
    NIC_TX = 1


class MissAction(IntEnum):
    """The fate of a frame that no entry of a table matches: `miss_action` of the table."""

    DEFAULT = 0
    FORWARD = 1


class Criteria(IntFlag):
    """The parts of the match parameters that the entries of a group look at."""

    OUTER_HEADERS = 1 << 0
    MISC = 1 << 1
    INNER_HEADERS = 1 << 2


class Action(IntFlag):
    """Bits of a flow entry's action (mlx5_ifc.h: MLX5_FLOW_CONTEXT_ACTION_*)."""

    ALLOW = 1 << 0
    DROP = 1 << 1
    FORWARD = 1 << 2
    COUNT = 1 << 3


class Destination(IntEnum):
    """Kinds of a flow entry's destination (mlx5_ifc.h: MLX5_IFC_FLOW_DESTINATION_TYPE_*)."""

    VPORT = 0
    FLOW_TABLE = 1
    TIR = 2


class EntryField(IntFlag):
    """Bits of `modify_enable_mask`: changes to a flow entry (inc/device.h: MLX5_SET_FTE_*)."""

    ACTION = 1 << 0
    FLOW_TAG = 1 << 1
    DESTINATIONS = 1 << 2
    COUNTERS = 1 << 3


CREATE_FLOW_TABLE = Struct(
    "CREATE_FLOW_TABLE",
    0x40,
    u8("type", 0x10, "TableType"),
    bits("miss_action", 0x18, 4, 27, 24, "MissAction"),
    bits("level", 0x18, 4, 23, 16),
    bits("log_size", 0x18, 4, 7, 0, "entries"),
    bits("miss_table", 0x1C, 4, 23, 0),
    source="mlx5_ifc.h: mlx5_ifc_create_flow_table_in_bits, mlx5_ifc_flow_table_context_bits",
)
FLOW_TABLE = Struct(
    "FLOW_TABLE",
    0x40,
    u16("fields", 0x0E, "MODIFY_FLOW_TABLE: 1 = the miss action"),
    u8("type", 0x10, "TableType"),
    bits("table", 0x14, 4, 23, 0),
    u32("group", 0x18, "DESTROY_FLOW_GROUP"),
    u32("index", 0x20, "DELETE_FLOW_TABLE_ENTRY"),
    doc="Commands that name a table, and a group or entry of it.",
    source="mlx5_ifc.h: mlx5_ifc_destroy_flow_group_in_bits, mlx5_ifc_delete_fte_in_bits",
)
MODIFY_FLOW_TABLE = Struct(
    "MODIFY_FLOW_TABLE",
    0x40,
    bits("fields", 0x0C, 4, 15, 0, "1 = the miss action"),
    u8("type", 0x10, "TableType"),
    bits("table", 0x14, 4, 23, 0),
    bits("miss_action", 0x18, 4, 27, 24, "MissAction"),
    bits("miss_table", 0x1C, 4, 23, 0),
    source="mlx5_ifc.h: mlx5_ifc_modify_flow_table_in_bits",
)
MATCH_BYTES: Final = 0x200
"""Bytes of the match parameters, of which the first are those of the outer headers."""
CREATE_FLOW_GROUP = Struct(
    "CREATE_FLOW_GROUP",
    0x400,
    u8("type", 0x10, "TableType"),
    bits("table", 0x14, 4, 23, 0),
    u32("first", 0x1C, "index of its first entry"),
    u32("last", 0x24, "index of its last entry"),
    u8("criteria", 0x3F, "Criteria"),
    raw("mask", 0x40, MATCH_BYTES, "bits that its entries compare"),
    source="mlx5_ifc.h: mlx5_ifc_create_flow_group_in_bits",
)
MODIFY_ENTRY: Final = 1
"""The modifier of SET_FLOW_TABLE_ENTRY for an entry that exists."""
SET_FLOW_ENTRY = Struct(
    "SET_FLOW_ENTRY",
    0x340,
    u8("type", 0x10, "TableType"),
    bits("table", 0x14, 4, 23, 0),
    u8("fields", 0x1B, "EntryField"),
    u32("index", 0x20),
    u32("group", 0x44),
    bits("tag", 0x48, 4, 23, 0, "number that completions tell"),
    bits("action", 0x4C, 4, 15, 0, "Action"),
    bits("destinations", 0x50, 4, 23, 0, "their number"),
    bits("counters", 0x54, 4, 23, 0, "their number"),
    raw("value", 0x80, MATCH_BYTES, "what the entry matches"),
    doc="The destinations follow it, and then the counters, of 8 bytes each.",
    source="mlx5_ifc.h: mlx5_ifc_set_fte_in_bits, mlx5_ifc_flow_context_bits",
)
DESTINATION = Struct(
    "DESTINATION",
    8,
    u8("type", 0x00, "Destination"),
    bits("number", 0x00, 4, 23, 0),
    source="mlx5_ifc.h: mlx5_ifc_dest_format_struct_bits",
)
SET_FLOW_TABLE_ROOT = Struct(
    "SET_FLOW_TABLE_ROOT",
    0x40,
    u8("type", 0x10, "TableType"),
    bits("table", 0x14, 4, 23, 0),
    source="mlx5_ifc.h: mlx5_ifc_set_flow_table_root_in_bits",
)
QUERY_FLOW_COUNTER = Struct(
    "QUERY_FLOW_COUNTER",
    0x20,
    bits("clear", 0x18, 4, 31),
    bits("count", 0x18, 4, 15, 0, "0 or 1 = one"),
    u32("counter", 0x1C),
    source="mlx5_ifc.h: mlx5_ifc_query_flow_counter_in_bits",
)
TRAFFIC_COUNTER = Struct(
    "TRAFFIC_COUNTER",
    0x10,
    u64("packets", 0x00),
    u64("octets", 0x08),
    source="mlx5_ifc.h: mlx5_ifc_traffic_counter_bits",
)

OUTER_HEADERS = Struct(
    "OUTER_HEADERS",
    0x40,
    raw("smac", 0x00, 6),
    u16("ethertype", 0x06, "behind the VLAN tags"),
    raw("dmac", 0x08, 6),
    bits("priority", 0x0E, 2, 15, 13, "of the outermost VLAN tag"),
    bits("cfi", 0x0E, 2, 12),
    bits("vid", 0x0E, 2, 11, 0),
    u8("protocol", 0x10),
    bits("dscp", 0x11, 1, 7, 2),
    bits("ecn", 0x11, 1, 1, 0),
    bits("customer_tag", 0x12, 2, 15, doc="the outermost VLAN tag is one of 802.1Q"),
    bits("service_tag", 0x12, 2, 14, doc="the outermost VLAN tag is one of 802.1ad"),
    bits("fragment", 0x12, 2, 13),
    bits("ip_version", 0x12, 2, 12, 9, "4 or 6"),
    bits("tcp_flags", 0x12, 2, 8, 0),
    u16("tcp_sport", 0x14),
    u16("tcp_dport", 0x16),
    u8("hop_limit", 0x1B),
    u16("udp_sport", 0x1C),
    u16("udp_dport", 0x1E),
    raw("source", 0x20, 16, "IPv4 in the last 4 bytes"),
    raw("destination", 0x30, 16, "IPv4 in the last 4 bytes"),
    doc="What entries match of the headers of a frame.",
    source="mlx5_ifc.h: mlx5_ifc_fte_match_set_lyr_2_4_bits",
)
