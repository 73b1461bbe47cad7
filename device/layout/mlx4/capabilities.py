"""Mailboxes that describe the device: QUERY_FW, QUERY_DEV_CAP, QUERY_PORT, INIT_HCA (core/fw.c)."""

from __future__ import annotations

from enum import IntFlag

from bluebridge.device.layout.fields import Struct, bits, raw, u8, u16, u32, u64

QUERY_FW = Struct(
    "QUERY_FW",
    0x60,
    u16("fw_pages", 0x00, "4 KiB pages of host memory lent to the firmware"),
    u16("fw_major", 0x02),
    u16("fw_subminor", 0x04),
    u16("fw_minor", 0x06),
    u16("cmd_interface_rev", 0x0A, "2..3"),
    u8("log_max_commands", 0x0F),
    u64("clr_int_offset", 0x20),
    u64("catas_offset", 0x30),
    u32("catas_dwords", 0x38),
    u8("catas_bar", 0x3C),
    u64("clock_offset", 0x50),
    source="core/fw.c: mlx4_QUERY_FW",
)


class DevFlag(IntFlag):
    """Flags of QUERY_DEV_CAP that the adapter has (inc/device.h: MLX4_DEV_CAP_FLAG_*)."""

    RC = 1 << 0
    UC = 1 << 1
    UD = 1 << 2
    XRC = 1 << 3
    SRQ = 1 << 6
    IPOIB_CSUM = 1 << 7
    BAD_PKEY_CNTR = 1 << 8
    BAD_QKEY_CNTR = 1 << 9
    BLH = 1 << 15
    MEM_WINDOW = 1 << 16
    ATOMIC = 1 << 18
    UD_AV_PORT = 1 << 20
    UD_MCAST = 1 << 21
    IBOE = 1 << 30
    UC_LOOPBACK = 1 << 32
    FCS_KEEP = 1 << 34
    UDP_RSS = 1 << 40
    VEP_UC_STEER = 1 << 41
    VEP_MC_STEER = 1 << 42
    COUNTERS = 1 << 48
    PORT_MNG_CHG_EV = 1 << 59
    CQE_64B = 1 << 62


class BmmeFlag(IntFlag):
    """Flags of base memory management extensions in QUERY_DEV_CAP that the adapter has."""

    WIN_TYPE_2B = 1 << 1
    LOCAL_INV = 1 << 6
    REMOTE_INV = 1 << 7
    TYPE_2_WIN = 1 << 9
    RESERVED_LKEY = 1 << 10
    FAST_REG_WR = 1 << 11
    ROCE_V1_V2 = 1 << 19
    CONFIG_DEV = 1 << 29


QUERY_DEV_CAP = Struct(
    "QUERY_DEV_CAP",
    0x100,
    u8("log_max_srq_wqes", 0x10),
    u8("log_max_qp_wqes", 0x11),
    bits("log_reserved_qps", 0x12, 1, 3, 0),
    bits("log_max_qps", 0x13, 1, 4, 0),
    bits("log_reserved_srqs", 0x14, 1, 7, 4),
    bits("log_max_srqs", 0x15, 1, 4, 0),
    u8("log_max_cqes", 0x19),
    bits("log_reserved_cqs", 0x1A, 1, 3, 0),
    bits("log_max_cqs", 0x1B, 1, 4, 0),
    bits("log_max_mpts", 0x1D, 1, 5, 0),
    bits("log_reserved_eqs", 0x1E, 1, 3, 0),
    bits("log_max_eqs", 0x1F, 1, 3, 0),
    bits("log_reserved_mtts", 0x20, 1, 7, 4),
    bits("log_reserved_mrws", 0x22, 1, 3, 0),
    bits("num_sys_eqs", 0x26, 2, 11, 0),
    bits("log_max_requester_depth", 0x29, 1, 5, 0),
    bits("log_max_responder_depth", 0x2B, 1, 5, 0),
    bits("log_max_gso", 0x2D, 1, 4, 0),
    u8("rss", 0x2E, "bit 5 XOR, bit 4 Toeplitz, 3:0 log2 of the largest table"),
    bits("ack_delay", 0x35, 1, 4, 0),
    u8("vl_port_width", 0x36),
    bits("num_ports", 0x37, 1, 3, 0),
    bits("log_max_msg", 0x38, 1, 4, 0),
    bits("log_max_gids", 0x3B, 1, 3, 0),
    bits("log_max_pkeys", 0x3F, 1, 3, 0),
    u16("rate_support", 0x3C),
    bits("timestamps", 0x3E, 1, 7, doc="CQs may have timestamps"),
    u32("flags_hi", 0x40, "DevFlag 63:32"),
    u32("flags_lo", 0x44, "DevFlag 31:0"),
    bits("reserved_uars", 0x48, 1, 7, 4),
    bits("uar_size_code", 0x49, 1, 5, 0, "UAR area is 1 << (code + 20) bytes"),
    u8("log_page_size", 0x4B),
    bits("blueflame", 0x4C, 1, 7),
    bits("log_bf_reg_size", 0x4D, 1, 4, 0),
    bits("log_bf_regs_per_page", 0x4E, 1, 5, 0),
    u8("max_sq_sge", 0x51),
    u16("max_sq_desc", 0x52, "bytes"),
    u8("max_rq_sge", 0x55),
    u16("max_rq_desc", 0x56, "bytes"),
    u8("log_max_qp_per_mcg", 0x61),
    bits("reserved_mgms", 0x62, 1, 3, 0),
    u8("log_max_mcgs", 0x63),
    bits("flow_stats", 0x70, 1, 4, doc="DUMP_ETH_STATS counts pauses"),
    bits("steers_datagrams", 0x74, 1, 7, doc="rules may be for UD queue pairs of InfiniBand"),
    bits("flow_steering", 0x76, 1, 7, doc="device-managed flow steering"),
    bits("steering_sniffers", 0x76, 1, 5, doc="rules may copy unicast or multicast frames"),
    u8("max_qp_per_rule", 0x77, "queue pairs that may have equal rules"),
    bits("eth_prot_ctrl", 0x7A, 1, 5, doc="ACCESS_REG has PTYS"),
    bits("reserved_pds", 0x64, 1, 7, 4, "a count, not a logarithm"),
    bits("log_max_pds", 0x65, 1, 5, 0),
    bits("reserved_xrcds", 0x66, 1, 7, 4, "a count; the one behind is for SRQs without XRC"),
    bits("log_max_xrcds", 0x67, 1, 4, 0),
    u32("max_counters", 0x68, "the last one is the sink"),
    u16("rdmarc_entry", 0x80),
    u16("qpc_entry", 0x82),
    u16("aux_entry", 0x84),
    u16("altc_entry", 0x86),
    u16("eqc_entry", 0x88),
    u16("cqc_entry", 0x8A),
    u16("srqc_entry", 0x8C),
    u16("cmpt_entry", 0x8E),
    u16("mtt_entry", 0x90, "must be 8"),
    u16("dmpt_entry", 0x92),
    u32("bmme_flags", 0x94, "BmmeFlag"),
    u32("reserved_lkey", 0x98),
    bits("diag_per_port", 0x9C, 4, 17),
    u64("max_icm_size", 0xA0),
    bits("high_rate_qpn", 0xA8, 4, 23, 0, "first queue pair that static A0 rules may name"),
    bits("high_rate_count", 0xAC, 4, 23, 0, "how many they may name; 0: no such mode"),
    bits("map_clock", 0xC1, 1, 7, doc="user space may read the clock"),
    source="core/fw.c: mlx4_QUERY_DEV_CAP",
)
RESERVED_LKEY = 0x500

QUERY_PORT = Struct(
    "QUERY_PORT",
    0x30,
    bits("link_up", 0x00, 1, 7),
    bits("high_rate_steering", 0x00, 1, 5, doc="A0 rules are on"),
    bits("autoneg", 0x00, 1, 6),
    bits("default_sense", 0x00, 1, 4),
    bits("suggested_type", 0x00, 1, 3),
    bits("supported_types", 0x00, 1, 1, 0, "1 InfiniBand, 2 Ethernet"),
    bits("ib_mtu", 0x01, 1, 3, 0, "5 = 4096"),
    u16("eth_mtu", 0x02),
    u8("link_speed", 0x05, "0x40 = 40 Gb/s"),
    bits("max_width", 0x06, 1, 3, 0),
    bits("log_max_gids", 0x07, 1, 7, 4),
    bits("log_max_pkeys", 0x07, 1, 3, 0),
    bits("log_max_vlans", 0x0A, 1, 7, 4),
    bits("log_max_macs", 0x0A, 1, 3, 0),
    bits("max_tc", 0x0B, 1, 7, 4),
    bits("max_vl", 0x0B, 1, 3, 0),
    u64("mac", 0x10, "default MAC in the low 48 bits"),
    source="core/fw.c: mlx4_QUERY_PORT",
)

QUERY_ADAPTER = Struct(
    "QUERY_ADAPTER",
    0x100,
    u8("inta_pin", 0x10),
    raw("vsd", 0x20, 0xE0),
    source="core/fw.c: mlx4_QUERY_ADAPTER",
)

INIT_HCA = Struct(
    "INIT_HCA",
    0x300,
    u8("version", 0x00, "2"),
    u64("global_caps", 0x04),
    u16("core_clock", 0x0C),
    u8("cacheline", 0x0E),
    u32("flags", 0x14, "bit 3 checksums of IPoIB, bit 6 device-managed flow steering"),
    u64("qpc_base", 0x30, "low 5 bits carry log_qps"),
    u8("log_qps", 0x37),
    u64("srqc_base", 0x48),
    u8("log_srqs", 0x4F),
    u64("cqc_base", 0x50),
    u8("log_cqs", 0x57),
    u32("eqe_cqe_size", 0x58, "bit 29 64-byte EQE, bit 30 64-byte CQE"),
    u64("altc_base", 0x60),
    u64("auxc_base", 0x70),
    u64("eqc_base", 0x80),
    u8("log_eqs", 0x87),
    u64("rdmarc_base", 0x90),
    u8("log_rd_per_qp", 0x97),
    u64("mc_base", 0xC0),
    u8("log_mc_entry_size", 0xD3),
    u8("log_mc_hash_size", 0xD7),
    u8("uc_steering", 0xD8, "bit 3: the multicast table steers unicast frames, too"),
    bits("mc_hash_fn", 0xD8, 1, 2, 0, "0: the adapter's own; others are reserved"),
    u8("log_mc_table_size", 0xDB),
    u64("dmpt_base", 0xF0),
    u8("log_mpts", 0xFB),
    u64("mtt_base", 0x100),
    u64("cmpt_base", 0x108),
    u8("log_uars", 0x12A),
    u8("uar_page_size", 0x12B, "4096 << n"),
    u8("log_rule_entry_size", 0x1E3),
    bits("high_rate_mode", 0x1E8, 1, 7, 6, "0 default, 1 dynamic, 2 static A0 rules, 3 off"),
    u8("log_rule_table_size", 0x1EB),
    source="core/fw.c: mlx4_INIT_HCA",
)

GENERAL_MODE_VALID, GENERAL_ROCE_V1_V2 = 1 << 4, 2 << 4
"""Of SET_PORT_GENERAL: `roce_mode` is valid; both versions (core/port.c: mlx4_SET_PORT_general)."""
SET_PORT_GENERAL = Struct(
    "SET_PORT_GENERAL",
    0x40,
    u8("flags", 0x03, "bit 0 MTU, bit 1 pprx, bit 2 pptx valid, bit 4 RoCE mode"),
    u8("roce_mode", 0x04),
    u16("mtu", 0x06, "L2 MTU with headers and FCS"),
    u8("pptx", 0x08),
    u8("pprx", 0x0C),
    source="core/mlx4.h: struct mlx4_set_port_general_context",
)

SET_PORT_RQP_CALC = Struct(
    "SET_PORT_RQP_CALC",
    0x40,
    u32("base_qpn", 0x00),
    u8("log_macs", 0x05),
    u8("log_vlans", 0x06),
    bits("promisc_enable", 0x14, 4, 31),
    bits("promisc_qpn", 0x14, 4, 23, 0),
    bits("mcast_mode", 0x18, 4, 31, 30, "0 direct only, 1 direct, 2 default"),
    bits("mcast_qpn", 0x18, 4, 23, 0),
    source="core/port.c: mlx4_SET_PORT_qpn_calc",
)

MAC_TABLE_ENTRIES = 128
MAC_VALID = 1 << 63
VLAN_TABLE_ENTRIES = 128
VLAN_VALID = 1 << 31
GID_TABLE_ENTRIES = 128
