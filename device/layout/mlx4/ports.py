"""Answers of commands and MADs about ports: tables, statistics, diagnostics, a cable's memory."""

from __future__ import annotations

from enum import IntEnum, IntFlag

from bluebridge.device.layout.fields import Field, Struct, bits, raw, u8, u16, u32, u64

STAT_CLASSES = 9  # eight priorities, then frames without a VLAN tag

FLOW_STATS_PRIORITIES = 8
FLOW_STATS = Struct(
    "FLOW_STATS",
    0x40,
    u64("rx_pause", 0x00, "pause frames received"),
    u64("rx_pause_duration", 0x08, "microseconds"),
    u64("rx_pause_transition", 0x10, "how often sending stopped"),
    u64("tx_pause", 0x18, "pause frames sent"),
    u64("tx_pause_duration", 0x20, "microseconds"),
    u64("tx_pause_transition", 0x28, "how often the peer was asked to stop"),
    doc="one of eight priorities in the answer to DUMP_ETH_STATS with bit 12",
    source="core/mlx4_stats.h: struct mlx4_en_stat_out_flow_control_mbox",
)

ROCE_ADDRESS_SIZE = 32
ROCE_ADDRESS = Struct(
    "ROCE_ADDRESS",
    ROCE_ADDRESS_SIZE,
    raw("gid", 0x00, 16),
    u8("type", 0x1A, "1 = IPv6, 0 = IPv4-mapped"),
    u8("version", 0x1B, "0 = RoCE v1, 2 = RoCE v2"),
    source="ib/main.c: mlx4_ib_update_gids_v1_v2",
)

CONFIG_DEV_ROCE_PORT = 1 << 3
CONFIG_DEV = Struct(
    "CONFIG_DEV",
    0x84,
    u32("update_flags", 0x00, "bit 3: the UDP port of RoCE v2 is to be set"),
    u16("roce_port", 0x16, "UDP destination port of RoCE v2"),
    u8("rx_checksum", 0x83, "mode of port 1 in 2:0, of port 2 in 6:4"),
    source="core/fw.c: struct mlx4_config_dev, mlx4_config_roce_v2_port",
)

IF_COUNTER = Struct(
    "IF_COUNTER",
    0x30,
    u8("mode", 0x03, "0: as follows"),
    u32("interfaces", 0x04),
    u64("rx_frames", 0x10),
    u64("rx_bytes", 0x18),
    u64("tx_frames", 0x20),
    u64("tx_bytes", 0x28),
    source="inc/device.h: struct mlx4_counter; core/cmd.c: mlx4_get_counter_stats",
)

MCG_QPN_OFFSET = 0x20
MCG = Struct(
    "MCG",
    0x20,
    bits("next_index", 0x00, 4, 31, 6, "record that follows in the hash chain, 0 = last"),
    bits("protocol", 0x04, 4, 31, 30, "0 InfiniBand and RoCE v1, 1 Ethernet, 2 RoCE v2"),
    bits("members", 0x04, 4, 23, 0, "QP numbers that follow the header, 4 bytes each"),
    raw("gid", 0x10, 16),
    doc="header of a multicast group record",
    source="core/mlx4.h: struct mlx4_mgm; core/mcg.c: find_entry",
)
MCG_BLOCK_LOOPBACK = 1 << 30

SET_PORT_IB = Struct(
    "SET_PORT_IB",
    0x30,
    bits("change_mtu", 0x00, 4, 22),
    bits("change_vl", 0x00, 4, 21),
    bits("mtu", 0x00, 4, 15, 12),
    bits("vl_count", 0x00, 4, 7, 4),
    bits("reset_qkey_violations", 0x00, 4, 0),
    u32("capabilities", 0x04),
    source="core/port.c: mlx4_SET_PORT",
)

ACCESS_REG = Struct(
    "ACCESS_REG",
    0x14,
    u16("constant", 0x00),
    bits("status", 0x02, 1, 6, 0),
    u16("register", 0x04, "0x5004 is PTYS"),
    bits("method", 0x06, 1, 6, 0, "1 query, 2 write"),
    bits("length", 0x10, 2, 10, 0, "of the register in 4-byte words, plus one"),
    doc="in front of the register's bytes",
    source="core/fw.c: struct mlx4_access_reg",
)
PTYS_ID = 0x5004
PTYS_ETHERNET = 1 << 2
PTYS = Struct(
    "PTYS",
    0x34,
    u8("flags", 0x00, "bit 6 autonegotiation off, bit 5 may be switched off"),
    u8("port", 0x01),
    bits("protocol", 0x03, 1, 2, 0, "bit 2 Ethernet"),
    u32("eth_capability", 0x0C, "link modes, LinkMode"),
    u32("eth_admin", 0x18, "those that may be used"),
    u32("eth_operational", 0x24, "the one in use"),
    u32("eth_partner", 0x30, "those of the other end"),
    doc="port type and speed",
    source="inc/device.h: struct mlx4_ptys_reg; core/en_ethtool.c",
)

CABLE_INFO_ATTRIBUTE = 0xFF60
"""Vendor attribute of the subnet management agent whose data is CABLE_INFO."""

MAX_CABLE_READ = 48
CABLE_I2C_ADDRESS = 0x50
MAX_CABLE_PAGE = 15

CABLE_INFO = Struct(
    "CABLE_INFO",
    64,
    u8("i2c_address", 0, "0x50"),
    u8("page", 1, "what bytes 128 to 255 show"),
    u16("address", 2, "first byte, of 256"),
    u16("size", 6, "bytes, at most 48"),
    raw("data", 16, MAX_CABLE_READ),
    doc="data of a MAD of attribute 0xFF60",
    source="core/port.c: struct mlx4_cable_info",
)

DIAGNOSTICS = Struct(
    "DIAGNOSTICS",
    0x200,
    u32("rq_num_lle", 0x00, "receives that were too short"),
    u32("sq_num_lle", 0x04, "messages that may not be so long"),
    u32("rq_num_lqpoe", 0x08),
    u32("sq_num_lqpoe", 0x0C, "work requests that made no sense"),
    u32("rq_num_lpe", 0x18, "receives whose memory is not accessible"),
    u32("sq_num_lpe", 0x1C),
    u32("rq_num_wrfe", 0x20, "receives that were flushed"),
    u32("sq_num_wrfe", 0x24),
    u32("sq_num_mwbe", 0x2C),
    u32("sq_num_bre", 0x34, "answers that made no sense"),
    u32("sq_num_rire", 0x44, "requests that the peer found invalid"),
    u32("rq_num_rire", 0x48),
    u32("sq_num_rae", 0x4C, "requests whose remote memory is not accessible"),
    u32("rq_num_rae", 0x50),
    u32("sq_num_roe", 0x54),
    u32("sq_num_tree", 0x5C, "retries that were used up"),
    u32("sq_num_rree", 0x64, "the same for a receiver that is not ready"),
    u32("rq_num_rnr", 0x68, "RNR NAKs sent"),
    u32("sq_num_rnr", 0x6C, "RNR NAKs received"),
    u32("rq_num_oos", 0x100, "gaps in the sequence: NAKs sent"),
    u32("sq_num_oos", 0x104, "sequence NAKs received"),
    u32("rq_num_dup", 0x130, "requests that came again"),
    u32("sq_num_to", 0x134, "acknowledge time-outs"),
    source="Linux ib/main.c: diag_basic, diag_ext",
)


def _by_class(name: str, offset: int, stride: int, doc: str) -> list[Field]:
    return [
        u64(f"{name}_{number}", offset + stride * number, doc if not number else "")
        for number in range(STAT_CLASSES)
    ]


ETH_STATS = Struct(
    "ETH_STATS",
    2992,
    *_by_class("rx_broadcast", 0x2D0, 8, "by priority, 8 = without VLAN tag"),
    *_by_class("rx_multicast", 0x318, 8, "by priority"),
    *_by_class("rx_unicast", 0x360, 8, "by priority"),
    *_by_class("rx_octets", 0x3B8, 24, "by priority"),
    *_by_class("rx_frames", 0x480, 24, "by priority"),
    *_by_class("tx_broadcast", 0x8B8, 8, "by priority"),
    *_by_class("tx_multicast", 0x908, 8, "by priority"),
    *_by_class("tx_unicast", 0x958, 8, "by priority"),
    *_by_class("tx_octets", 0x9B8, 24, "by priority"),
    *_by_class("tx_frames", 0xA98, 24, "by priority"),
    u32("rx_dropped", 0xB98),
    u32("rx_no_buffer", 0xB9C, "frames for which no receive was posted"),
    u32("rx_total_frames", 0xBA4, "low word of the frames received"),
    u32("tx_dropped", 0xBA8),
    source="core/mlx4_en.h: struct mlx4_en_stat_out_mbox; core/en_port.c",
)


class LinkMode(IntFlag):
    """Ethernet link modes that this adapter has (inc/device.h: enum mlx4_link_mode)."""

    CR4_40G = 1 << 6
    CR_10G = 1 << 12


class CableStatus(IntEnum):
    """Status of a response with CABLE_INFO (core/port.c: enum cable_info_err)."""

    NOT_CONNECTED = 0x0300
    BAD_PAGE = 0x0500
    BAD_ADDRESS = 0x0600
    BAD_I2C_ADDRESS = 0x0700
