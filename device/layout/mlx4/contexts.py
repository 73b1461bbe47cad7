"""Contexts in mailboxes: MPT, EQ, CQ, SRQ, QP (core/mlx4.h, inc/qp.h)."""

from __future__ import annotations

from enum import IntEnum, IntFlag

from bluebridge.device.layout.fields import Struct, bits, raw, u8, u16, u24, u32, u40, u64


class ServiceType(IntEnum):
    """Transport service of a queue pair."""

    RC = 0
    UC = 1
    RD = 2
    UD = 3
    XRC = 6
    MLX = 7  # GSI, SMI, raw Ethernet


class QpState(IntEnum):
    """Queue pair states in the state field of the QP context flags."""

    RST = 0
    INIT = 1
    RTR = 2
    RTS = 3
    SQER = 4
    SQD = 5
    ERR = 6
    SQDRAINING = 7


MPT_SIZE = 64
MPT_STATUS_SOFTWARE = 0xF
MPT_STATUS_FREE = 0x3
MPT = Struct(
    "MPT",
    MPT_SIZE,
    bits("status", 0x00, 4, 31, 28, "0xF software, 3 free, 0 hardware"),
    bits("mio", 0x00, 4, 17),
    bits("bind_enable", 0x00, 4, 15),
    bits("remote_atomic", 0x00, 4, 14),
    bits("remote_write", 0x00, 4, 13),
    bits("remote_read", 0x00, 4, 12),
    bits("local_write", 0x00, 4, 11),
    bits("local_read", 0x00, 4, 10),
    bits("physical", 0x00, 4, 9, doc="no translation"),
    bits("region", 0x00, 4, 8, doc="0 = memory window"),
    bits("bound_to_qp", 0x04, 4, 7),
    u32("key", 0x08, "ror32(lkey, 8)"),
    bits("pd", 0x0C, 4, 16, 0, "protection domain"),
    bits("en_inv", 0x0C, 4, 25, 24, "3 = may be invalidated"),
    bits("fast_reg", 0x0C, 4, 27),
    bits("atomic_enable", 0x0C, 4, 28),
    u64("start", 0x10, "IOVA"),
    u64("length", 0x18, "bytes; all ones for a DMA MR"),
    u32("lkey", 0x20),
    bits("len64", 0x28, 4, 22, doc="all addresses, whatever length says"),
    u8("mtt_rep", 0x2B),
    u64("mtt_addr", 0x2C, "byte offset from the MTT base"),
    u32("mtt_sz", 0x34, "entries, fast registration only"),
    u32("entity_size", 0x38, "page shift"),
    u32("first_byte_offset", 0x3C),
    source="core/mlx4.h: struct mlx4_mpt_entry; core/mr.c: mlx4_mr_enable; len64: iPXE "
    "hermon.c: hermon_setup_mpt",
)

RIGHTS_SHIFT = 10
"""Lowest bit of the rights in the first word of an MPT entry: from reading here to binding."""

RING_UNIT, WORK_RING_UNIT = 32, 64
"""Units of `page_offset` in bytes: for EQs and CQs, and for SRQs and queue pairs."""

EQC_SIZE = 64
EQ_STATE_ARMED = 9
EQ_STATE_FIRED = 0xA
EQ_STATE_ALWAYS_ARMED = 0xB
EQC = Struct(
    "EQC",
    EQC_SIZE,
    bits("status", 0x00, 4, 31, 28),
    bits("overrun_ignore", 0x00, 4, 17, doc="a full ring is written over"),
    bits("state", 0x00, 4, 11, 8, "9 armed, 0xA fired, 0xB always armed"),
    bits("page_offset", 0x08, 4, 11, 5, "where the ring begins in its page, in 32 bytes"),
    bits("log_size", 0x0C, 1, 4, 0, "log2 of the entries"),
    u8("period", 0x11),
    u8("max_count", 0x13),
    u8("vector", 0x17, "MSI-X vector"),
    bits("log_page_size", 0x18, 1, 5, 0, "page shift - 12"),
    u40("mtt_addr", 0x1B, "byte offset from the MTT base"),
    bits("consumer_index", 0x28, 4, 23, 0),
    bits("producer_index", 0x2C, 4, 23, 0),
    source="core/mlx4.h: struct mlx4_eq_context",
)

CQC_SIZE = 64
CQC = Struct(
    "CQC",
    CQC_SIZE,
    bits("status", 0x00, 4, 31, 28),
    bits("timestamps", 0x00, 4, 19, doc="entries have the time of the adapter's clock"),
    bits("collapsed", 0x00, 4, 18, doc="all entries are written to the first place"),
    bits("overrun_ignore", 0x00, 4, 17, doc="a full ring is written over"),
    bits("page_offset", 0x08, 4, 11, 5, "where the ring begins in its page, in 32 bytes"),
    bits("log_size", 0x0C, 4, 28, 24, "log2 of the entries"),
    bits("uar", 0x0C, 4, 23, 0, "UAR index"),
    u16("period", 0x10),
    u16("max_count", 0x12),
    u8("eqn", 0x17, "completion EQ"),
    bits("log_page_size", 0x18, 1, 5, 0),
    u40("mtt_addr", 0x1B),
    bits("last_notified", 0x20, 4, 23, 0, "producer index when the last event fired"),
    bits("consumer_index", 0x28, 4, 23, 0),
    bits("producer_index", 0x2C, 4, 23, 0),
    u64("doorbell_record", 0x38, "DMA address of {ci, arm}"),
    source="core/mlx4.h: struct mlx4_cq_context; core/cq.c: mlx4_cq_alloc; iPXE's MT25408_PRM.h",
)

SRQC_SIZE = 64
SRQC = Struct(
    "SRQC",
    SRQC_SIZE,
    bits("state", 0x00, 4, 31, 28),
    bits("log_size", 0x00, 4, 27, 24),
    bits("srqn", 0x00, 4, 23, 0),
    bits("log_stride", 0x04, 1, 2, 0, "log2 of the stride - 4"),
    u16("xrcd", 0x06),
    bits("page_offset", 0x08, 4, 29, 24, "where the ring begins in its page, in 64 bytes"),
    bits("cqn", 0x08, 4, 23, 0),
    bits("log_page_size", 0x10, 1, 5, 0),
    u40("mtt_addr", 0x13),
    bits("pd", 0x18, 4, 23, 0),
    u16("limit_watermark", 0x1C),
    u16("wqe_counter", 0x22),
    u64("doorbell_record", 0x28),
    source="core/mlx4.h: struct mlx4_srq_context",
)

PATH_SIZE = 44
ROCE_MODE_V2 = 2  # of the QPC: packets in UDP
QPC_SIZE = 248
QPC_MAILBOX_OFFSET = 8
QPC = Struct(
    "QPC",
    QPC_SIZE,
    bits("state", 0x00, 4, 31, 28),
    bits("service", 0x00, 4, 23, 16, "ServiceType"),
    bits("rss", 0x00, 4, 13, doc="RSS indirection QP"),
    bits("pm_state", 0x00, 4, 12, 11),
    bits("pd", 0x04, 4, 23, 0),
    bits("mtu", 0x08, 1, 7, 5, "1 = 256 … 5 = 4096"),
    bits("msg_max", 0x08, 1, 4, 0, "log2 of the longest message"),
    u8("mtu_msgmax", 0x08, "both of the above as one byte"),
    bits("log_rq_size", 0x09, 1, 6, 3),
    bits("log_rq_stride", 0x09, 1, 2, 0, "log2 - 4"),
    bits("sq_no_prefetch", 0x0A, 1, 7),
    bits("log_sq_size", 0x0A, 1, 6, 3),
    bits("log_sq_stride", 0x0A, 1, 2, 0, "log2 - 4"),
    bits("roce_mode", 0x0B, 1, 7, 6, "0 v1, 1 v1.5, 2 v2"),
    bits("reserved_lkey", 0x0B, 1, 4, doc="the reserved lkey may be used"),
    bits("uar", 0x0C, 4, 23, 0),
    bits("local_qpn", 0x10, 4, 23, 0),
    bits("remote_qpn", 0x14, 4, 23, 0),
    raw("pri_path", 0x18, PATH_SIZE),
    bits("pri_vlan_valid", 0x18, 1, 6, doc="a customer VLAN is used"),
    bits("pri_pkey_index", 0x1B, 1, 6, 0),
    u8("pri_counter_index", 0x1C),
    bits("pri_grh", 0x1D, 1, 7),
    bits("pri_mylmc", 0x1D, 1, 6, 0, "source MAC index (RoCE) or path bits"),
    u16("pri_rlid", 0x1E),
    bits("pri_ack_timeout", 0x20, 1, 7, 3, "4.096 us << n"),
    bits("pri_link_type", 0x20, 1, 2, 0, "1 = Ethernet"),
    u8("pri_mgid_index", 0x21),
    u8("pri_hop_limit", 0x23),
    bits("pri_tclass", 0x24, 4, 27, 20),
    bits("pri_flow_label", 0x24, 4, 19, 0),
    raw("pri_rgid", 0x28, 16),
    u8("pri_sched_queue", 0x38),
    bits("pri_port", 0x38, 1, 6, 6, "port - 1"),
    bits("pri_vlan_index", 0x39, 1, 6, 0),
    u8("pri_feup", 0x3A),
    raw("pri_dmac", 0x3E, 6),
    raw("alt_path", 0x44, PATH_SIZE),
    bits("ack_freq", 0x70, 4, 31, 28),
    bits("sra_max", 0x70, 4, 23, 21, "log2 of outstanding reads and atomics"),
    bits("retry_count", 0x70, 4, 18, 16),
    bits("rnr_retry", 0x70, 4, 15, 13, "7 = for ever"),
    bits("fast_reg_enable", 0x70, 4, 11),
    bits("next_send_psn", 0x78, 4, 23, 0),
    bits("cqn_send", 0x7C, 4, 23, 0),
    bits("rra_max", 0x90, 4, 23, 21, "log2 of reads and atomics answered"),
    bits("remote_read", 0x90, 4, 15),
    bits("remote_write", 0x90, 4, 14),
    bits("remote_atomic", 0x90, 4, 13),
    bits("page_offset", 0x90, 4, 11, 6, "where the rings begin in their page, in 64 bytes"),
    bits("invalid_credits", 0x90, 4, 4, doc="acknowledgements tell no credits: with an SRQ"),
    bits("min_rnr_timer", 0x94, 4, 28, 24),
    bits("next_recv_psn", 0x94, 4, 23, 0),
    bits("xrcd", 0x98, 4, 15, 0),
    bits("cqn_recv", 0x9C, 4, 23, 0),
    u64("doorbell_record", 0xA0, "of receives; read lazily, Ethernet QPs carry nonsense"),
    u32("qkey", 0xA8),
    bits("use_srq", 0xAC, 4, 24),
    bits("srqn", 0xAC, 4, 23, 0),
    bits("msn", 0xB0, 4, 23, 0),
    u16("rq_wqe_counter", 0xB4),
    u16("sq_wqe_counter", 0xB6),
    bits("no_vlan_strip", 0xC0, 4, 30),
    bits("keep_fcs", 0xC0, 4, 29),
    bits("log_page_size", 0xC8, 1, 5, 0),
    u40("mtt_addr", 0xCB),
    source="inc/qp.h: struct mlx4_qp_context; ib/qp.c: __mlx4_ib_modify_qp",
)


class RssFlag(IntFlag):
    """Headers that a receive side scaling context hashes (core/mlx4_en.h, inc/qp.h: MLX4_RSS_*)."""

    UDP_IPV6 = 1 << 0
    UDP_IPV4 = 1 << 1
    TCP_IPV6 = 1 << 2
    IPV6 = 1 << 3
    TCP_IPV4 = 1 << 4
    IPV4 = 1 << 5


RSS_HASHES = (0, 1)
"""Hash functions: XOR, Toeplitz."""
RSS_OFFSET = 0x3C
RSS = Struct(
    "RSS",
    0x38,
    u8("log_table_size", 0x00),
    u24("base_qpn", 0x01),
    bits("default_qpn", 0x04, 4, 23, 0),
    u8("hash_fn", 0x0A, "0 XOR, 1 Toeplitz"),
    u8("flags", 0x0B, "RssFlag"),
    raw("key", 0x0C, 40),
    bits("base_qpn_udp", 0x34, 4, 23, 0),
    source="core/mlx4_en.h: struct mlx4_rss_context",
)

MAP_ENTRY = Struct(
    "MAP_ENTRY",
    16,
    u64("virtual", 0, "ICM address"),
    bits("page", 8, 8, 63, 12, "physical page number"),
    bits("log_pages", 8, 8, 11, 0, "log2 of the 4 KiB pages"),
    source="core/fw.c: mlx4_map_cmd",
)
WRITE_MTT = Struct(
    "WRITE_MTT",
    16,
    u64("offset", 0, "byte offset of the first entry from the MTT base; the entries follow"),
    source="struct hermonprm_write_mtt_st of iPXE; Linux mthca/mthca_mr.c: mthca_write_mtt",
)
MTT_PRESENT = 1
