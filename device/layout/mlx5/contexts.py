"""Contexts of objects that commands carry: keys, completion and work queues, TIS, TIR, RQT.

Linux `include/linux/mlx5/mlx5_ifc.h`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from bluebridge.device.layout.fields import Struct, bits, raw, u8, u32, u64

LOG_PAGE_PARTS: Final = 6
"""Page offsets of rings count 64ths of a page, whatever its size."""
PAGE_SHIFT: Final = 12
"""Logarithm of the page size in bytes that `log_page_size` 0 stands for."""


class QueueState(IntEnum):
    """The state of an SQ or RQ in its context and in commands that change it."""

    RST = 0
    RDY = 1
    ERR = 3


QUEUE_CHANGES: Final = (
    (QueueState.RST, QueueState.RDY),
    (QueueState.RDY, QueueState.ERR),
    (QueueState.RDY, QueueState.RST),
    (QueueState.ERR, QueueState.RST),
)
"""The changes of the state of an SQ or RQ that there are."""


class QueueType(IntEnum):
    """The form of a work queue: a list of entries, or a ring."""

    LINKED_LIST = 0
    CYCLIC = 1
    LINKED_LIST_STRIDING = 2
    CYCLIC_STRIDING = 3


class AccessMode(IntEnum):
    """Ways of a key to translate addresses (mlx5_ifc.h: MLX5_MKC_ACCESS_MODE_*)."""

    PHYSICAL = 0
    MTT = 1
    KLMS = 2
    KSM = 3


class Dispatch(IntEnum):
    """Kinds of a TIR's target: one RQ, or one of a table, chosen by a packet's hash."""

    DIRECT = 0
    INDIRECT = 1


class HashFunction(IntEnum):
    """The hash of a TIR."""

    NONE = 0
    INVERTED_XOR8 = 1
    TOEPLITZ = 2


CQC = Struct(
    "CQC",
    0x40,
    bits("status", 0x00, 4, 31, 28, "0 = good, 9 = overflow, 10 = write failed"),
    bits("record_umem_valid", 0x00, 4, 25, doc="the doorbell record is in memory of a user"),
    bits("cqe_size", 0x00, 4, 23, 21, "0 = 64 bytes, 1 = 128"),
    bits("collapsed", 0x00, 4, 20),
    bits("ignore_overrun", 0x00, 4, 17),
    bits("period_mode", 0x00, 4, 16, 15, "0 = the period starts at an event, 1 = at an entry"),
    bits("compressed", 0x00, 4, 14, doc="several entries in one"),
    bits("state", 0x00, 4, 11, 8, "9 = armed, 6 = armed for solicited, 10 = fired"),
    u32("record_umem", 0x04),
    bits("page_offset", 0x08, 4, 11, 6, "of the ring in its first page, in 64ths of it"),
    bits("log_size", 0x0C, 4, 28, 24, "entries"),
    bits("uar", 0x0C, 4, 23, 0, "page of its doorbells"),
    bits("period", 0x10, 4, 27, 16, "moderation: microseconds"),
    bits("max_count", 0x10, 4, 15, 0, "moderation: completions"),
    u32("eqn", 0x14, "event queue"),
    bits("log_page_size", 0x18, 4, 28, 24, "of the list of pages, above 4 KiB"),
    bits("last_notified", 0x20, 4, 23, 0),
    bits("last_solicited", 0x24, 4, 23, 0),
    bits("consumer", 0x28, 4, 23, 0),
    bits("producer", 0x2C, 4, 23, 0),
    u64("doorbell_record", 0x38, "consumer index, then the request for an event"),
    doc="Completion queue.",
    source="mlx5_ifc.h: mlx5_ifc_cqc_bits",
)

WQ: Final = Struct(
    "WQ",
    0xC0,
    bits("type", 0x00, 4, 31, 28, "QueueType"),
    bits("signature", 0x00, 4, 27),
    bits("end_padding", 0x00, 4, 26, 25),
    bits("page_offset", 0x04, 4, 20, 16, "of the ring in its first page, in 64ths of it"),
    bits("limit", 0x04, 4, 15, 0, "entries left that cause an event"),
    bits("pd", 0x08, 4, 23, 0, "protection domain"),
    bits("uar", 0x0C, 4, 23, 0, "page of its doorbells"),
    u64("doorbell_record", 0x10, "receive counter, then send counter"),
    u32("hardware_counter", 0x18),
    u32("software_counter", 0x1C),
    bits("log_stride", 0x20, 4, 19, 16, "bytes of an entry"),
    bits("log_page_size", 0x20, 4, 12, 8, "of the list of pages, above 4 KiB"),
    bits("log_size", 0x20, 4, 4, 0, "entries"),
    bits("record_umem_valid", 0x24, 4, 31, doc="the doorbell record is in memory of a user"),
    bits("ring_umem_valid", 0x24, 4, 30, doc="and the ring"),
    u32("record_umem", 0x28),
    u32("ring_umem", 0x2C),
    u64("ring_umem_offset", 0x30),
    doc="Work queue in the context of an SQ, RQ or RMP; the list of pages follows it.",
    source="mlx5_ifc.h: mlx5_ifc_wq_bits",
)
WQ_OFFSET: Final = 0x30
"""Byte offset of the work queue within the contexts of SQ, RQ and RMP."""

SQC = Struct(
    "SQC",
    0xF0,
    bits("fast_register", 0x00, 4, 29),
    bits("flush_in_error", 0x00, 4, 28, doc="entries complete as flushed after an error"),
    bits("min_inline_mode", 0x00, 4, 26, 24, "headers that entries carry inline"),
    bits("state", 0x00, 4, 23, 20, "QueueState"),
    bits("timestamp_format", 0x00, 4, 5, 4),
    bits("user_index", 0x04, 4, 23, 0),
    bits("cqn", 0x08, 4, 23, 0),
    bits("rate_limit", 0x1C, 4, 15, 0, "index of a rate"),
    bits("tis_count", 0x20, 4, 31, 16),
    bits("tisn", 0x2C, 4, 23, 0, "the first TIS"),
    doc="Send queue of Ethernet; its work queue is at 0x30.",
    source="mlx5_ifc.h: mlx5_ifc_sqc_bits",
)
RQC = Struct(
    "RQC",
    0xF0,
    bits("delay_drop", 0x00, 4, 30),
    bits("keep_fcs", 0x00, 4, 29, doc="the frame check sequence is stored, too"),
    bits("no_vlan_strip", 0x00, 4, 28),
    bits("memory_type", 0x00, 4, 27, 24, "0 = entries of its own, 1 = of an RMP"),
    bits("state", 0x00, 4, 23, 20, "QueueState"),
    bits("flush_in_error", 0x00, 4, 18),
    bits("timestamp_format", 0x00, 4, 5, 4),
    bits("user_index", 0x04, 4, 23, 0),
    bits("cqn", 0x08, 4, 23, 0),
    bits("counter_set", 0x0C, 4, 31, 24, "counts what found no receive"),
    bits("rmpn", 0x10, 4, 23, 0),
    doc="Receive queue of Ethernet; its work queue is at 0x30.",
    source="mlx5_ifc.h: mlx5_ifc_rqc_bits",
)
RMPC = Struct(
    "RMPC",
    0xF0,
    bits("state", 0x00, 4, 23, 20, "1 = ready"),
    bits("plain", 0x04, 4, 31, doc="entries of a ring begin with their lists"),
    doc="Receive memory pool, which queues share; its work queue is at 0x30.",
    source="mlx5_ifc.h: mlx5_ifc_rmpc_bits",
)
RQTC = Struct(
    "RQTC",
    0xF0,
    bits("list_type", 0x14, 4, 26, 24, "0 = RQs"),
    bits("max_size", 0x14, 4, 15, 0),
    bits("actual_size", 0x18, 4, 15, 0, "entries that follow"),
    doc="Receive queue table; the numbers of the RQs follow it.",
    source="mlx5_ifc.h: mlx5_ifc_rqtc_bits",
)
TISC = Struct(
    "TISC",
    0xA0,
    bits("priority", 0x00, 4, 19, 16),
    bits("transport_domain", 0x24, 4, 23, 0),
    bits("underlay_qpn", 0x28, 4, 23, 0),
    bits("pd", 0x2C, 4, 23, 0),
    doc="Transport interface send.",
    source="mlx5_ifc.h: mlx5_ifc_tisc_bits",
)
TOEPLITZ_KEY_BYTES: Final = 40
TIRC = Struct(
    "TIRC",
    0xF0,
    bits("dispatch", 0x04, 4, 31, 28, "Dispatch"),
    bits("merge_mask", 0x10, 4, 11, 8, "which packets are merged"),
    bits("rqn", 0x1C, 4, 23, 0, "of a direct TIR"),
    bits("symmetric", 0x20, 4, 31, doc="both directions of a flow have one hash"),
    bits("tunneled", 0x20, 4, 29),
    bits("rqtn", 0x20, 4, 23, 0, "of an indirect TIR"),
    bits("hash_function", 0x24, 4, 31, 28, "HashFunction"),
    bits("loopback", 0x24, 4, 25, 24, "own frames that it takes: 1 unicast, 2 multicast"),
    bits("transport_domain", 0x24, 4, 23, 0),
    raw("key", 0x28, TOEPLITZ_KEY_BYTES, "of the Toeplitz hash"),
    bits("hash_ipv6", 0x50, 4, 31),
    bits("hash_udp", 0x50, 4, 30),
    bits("hash_fields", 0x50, 4, 29, 0, "1 source, 2 destination, 4 and 8 their ports"),
    u32("hash_inner", 0x54),
    doc="Transport interface receive.",
    source="mlx5_ifc.h: mlx5_ifc_tirc_bits",
)
MKC = Struct(
    "MKC",
    0x40,
    bits("free", 0x00, 4, 30, doc="not usable until a work request enables it"),
    bits("access_mode_high", 0x00, 4, 28, 26),
    bits("umr", 0x00, 4, 15, doc="work requests may change it"),
    bits("atomic", 0x00, 4, 14),
    bits("remote_write", 0x00, 4, 13),
    bits("remote_read", 0x00, 4, 12),
    bits("local_write", 0x00, 4, 11),
    bits("local_read", 0x00, 4, 10),
    bits("access_mode", 0x00, 4, 9, 8, "AccessMode, its low bits"),
    bits("qpn", 0x04, 4, 31, 8, "0xffffff = any"),
    u8("key", 0x07, "low byte of the key"),
    bits("length64", 0x0C, 4, 31, doc="all addresses, whatever start and length say"),
    bits("may_invalidate", 0x0C, 4, 24),
    bits("pd", 0x0C, 4, 23, 0),
    u64("start", 0x10, "address"),
    u64("length", 0x18, "bytes"),
    u32("translations", 0x34, "room for the translation in 16 bytes"),
    bits("log_page_size", 0x38, 4, 5, 0),
    doc="Memory key.",
    source="mlx5_ifc.h: mlx5_ifc_mkc_bits",
)

NIC_VPORT = Struct(
    "NIC_VPORT",
    0x100,
    bits("min_inline_mode", 0x00, 4, 26, 24),
    bits("no_multicast_loopback", 0x00, 4, 2),
    bits("no_unicast_loopback", 0x00, 4, 1),
    bits("roce", 0x00, 4, 0, doc="RoCE is on"),
    bits("events", 0x04, 4, 31, 0, "changes that are told"),
    bits("sd_group", 0x20, 4, 30, 28, "0 = no socket direct"),
    bits("mtu", 0x24, 4, 15, 0, "with 22 bytes of Ethernet"),
    u64("system_image_guid", 0x28),
    u64("port_guid", 0x30),
    u64("node_guid", 0x38),
    bits("qkey_violations", 0x68, 4, 31, 16),
    bits("promiscuous_unicast", 0xF0, 4, 31),
    bits("promiscuous_multicast", 0xF0, 4, 30),
    bits("promiscuous", 0xF0, 4, 29),
    bits("list_type", 0xF0, 4, 26, 24, "0 unicast, 1 multicast, 2 VLANs"),
    bits("list_size", 0xF0, 4, 11, 0, "entries that follow"),
    raw("permanent_address", 0xF6, 6),
    doc="Context of a virtual port; a list of addresses of 8 bytes or of VLANs of 4 follows.",
    source="mlx5_ifc.h: mlx5_ifc_nic_vport_context_bits",
)
