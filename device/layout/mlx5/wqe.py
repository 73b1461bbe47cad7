"""Work queue entries: control segment, then segments by opcode (include/linux/mlx5/qp.h)."""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Final

from bluebridge.device.layout.fields import Struct, bits, raw, u8, u16, u32, u64

BLOCK_BYTES: Final = 64
"""Bytes that send queues and their counters count."""
SEGMENT_BYTES: Final = 16


class SendOpcode(IntEnum):
    """The opcode in bits 7:0 of the control segment, which completions repeat."""

    NOP = 0x00
    SEND_INVAL = 0x01
    RDMA_WRITE = 0x08
    RDMA_WRITE_IMM = 0x09
    SEND = 0x0A
    SEND_IMM = 0x0B
    LSO = 0x0E
    RDMA_READ = 0x10
    ATOMIC_CS = 0x11
    ATOMIC_FA = 0x12
    ATOMIC_MASKED_CS = 0x14
    ATOMIC_MASKED_FA = 0x15
    UMR = 0x25


class EthernetFlag(IntFlag):
    """Checksums that the device computes (inc/qp.h: MLX5_ETH_WQE_L3_CSUM)."""

    L3_INNER = 1 << 4
    L4_INNER = 1 << 5
    L3 = 1 << 6
    L4 = 1 << 7


class UmrFlag(IntFlag):
    """Flags of a change of a key (inc/device.h: MLX5_UMR_*)."""

    SAME_PAIR = 1 << 3  # rdma-core's MLX5_WQE_UMR_CTRL_FLAG_CHECK_QPN
    OFFSET = 1 << 4
    MUST_BE_FREE = 1 << 5
    MUST_NOT_BE_FREE = 1 << 6
    INLINE = 1 << 7


class KeyMask(IntFlag):
    """Fields of a key that change (inc/device.h: MLX5_MKEY_MASK_*)."""

    LENGTH = 1 << 0
    PAGE_SIZE = 1 << 1
    START = 1 << 6
    PD = 1 << 7
    MAY_INVALIDATE = 1 << 8
    KEY = 1 << 13
    QPN = 1 << 14
    LOCAL_READ = 1 << 17
    LOCAL_WRITE = 1 << 18
    REMOTE_READ = 1 << 19
    REMOTE_WRITE = 1 << 20
    ATOMIC = 1 << 21
    FREE = 1 << 29


CQE_REQUEST: Final = 2 << 2
"""Of the flags: a completion for success, too; its lower bit asks for an event."""
SOLICITED: Final = 1 << 1
DS_MASK: Final = 0x3F
INLINE: Final = 1 << 31
INVALID_LKEY: Final = 0x100
"""The key of the data segment that ends a receive list."""
INSERT_VLAN: Final = 1 << 15
SERVICE_VLAN: Final = 1 << 0
INLINE_HEADER_MASK: Final = 0x3FF
INLINE_HEADER_START: Final = 2
"""Bytes of the inline header that the Ethernet segment itself holds."""

CTRL = Struct(
    "CTRL",
    SEGMENT_BYTES,
    bits("opcode_modifier", 0x00, 4, 31, 24),
    bits("index", 0x00, 4, 23, 8, "of its first block"),
    bits("opcode", 0x00, 4, 7, 0, "SendOpcode"),
    bits("qpn", 0x04, 4, 31, 8, "QP or SQ"),
    bits("ds", 0x04, 4, 5, 0, "size in 16-byte units, this segment included"),
    u8("signature", 0x08),
    bits("fence", 0x0B, 1, 7, 5),
    bits("cqe", 0x0B, 1, 3, 2, "2 = completion, 3 = and event; 0 only for errors"),
    bits("solicited", 0x0B, 1, 1),
    u32("immediate", 0x0C, "immediate data, a key, or the number of a TIS"),
    source="inc/qp.h: struct mlx5_wqe_ctrl_seg",
)
ETHERNET = Struct(
    "ETHERNET",
    SEGMENT_BYTES,
    u8("checksums", 0x04, "EthernetFlag"),
    u16("mss", 0x06, "payload bytes of each frame but the last of a large send"),
    u32("metadata", 0x08),
    bits("insert_vlan", 0x0C, 2, 15, doc="the next word is a tag, not inline bytes"),
    bits("service_vlan", 0x0C, 2, 0, doc="with insert_vlan: of 802.1ad"),
    bits("inline_size", 0x0C, 2, 9, 0, "bytes of headers that follow from 0x0e on"),
    u16("vlan", 0x0E, "tag to insert"),
    source="inc/qp.h: struct mlx5_wqe_eth_seg",
)
DATA = Struct(
    "DATA",
    SEGMENT_BYTES,
    u32("byte_count", 0x00, "bytes; bit 31 set means inline data"),
    u32("lkey", 0x04, "local key; 0x100 ends a receive list"),
    u64("va", 0x08, "local address"),
    source="inc/qp.h: struct mlx5_wqe_data_seg",
)
REMOTE = Struct(
    "REMOTE",
    SEGMENT_BYTES,
    u64("va", 0x00, "remote address"),
    u32("rkey", 0x08),
    source="inc/qp.h: struct mlx5_wqe_raddr_seg",
)
ATOMIC = Struct(
    "ATOMIC",
    SEGMENT_BYTES,
    u64("swap_add", 0x00),
    u64("compare", 0x08),
    source="inc/qp.h: struct mlx5_wqe_atomic_seg",
)
MASKED_SWAP = Struct(
    "MASKED_SWAP",
    2 * SEGMENT_BYTES,
    u64("swap", 0x00),
    u64("compare", 0x08),
    u64("swap_mask", 0x10),
    u64("compare_mask", 0x18),
    source="UCX ib_mlx5.h: uct_ib_mlx5_atomic_masked_cswap64_seg",
)
MASKED_ADD = Struct(
    "MASKED_ADD",
    SEGMENT_BYTES,
    u64("add", 0x00),
    u64("boundaries", 0x08, "the top bits of fields, which no carry leaves"),
    source="UCX ib_mlx5.h: uct_ib_mlx5_atomic_masked_fadd64_seg",
)
SHORT_SWAP = Struct(
    "SHORT_SWAP",
    SEGMENT_BYTES,
    u32("swap", 0x00),
    u32("compare", 0x04),
    u32("swap_mask", 0x08),
    u32("compare_mask", 0x0C),
    doc="MASKED_SWAP of operands of 4 bytes.",
    source="UCX ib_mlx5.h: uct_ib_mlx5_atomic_masked_cswap32_seg",
)
SHORT_ADD = Struct(
    "SHORT_ADD",
    SEGMENT_BYTES,
    u32("add", 0x00),
    u32("boundaries", 0x04),
    doc="MASKED_ADD of operands of 4 bytes.",
    source="UCX ib_mlx5.h: uct_ib_mlx5_atomic_masked_fadd32_seg",
)
XRC = Struct(
    "XRC",
    SEGMENT_BYTES,
    bits("srqn", 0x00, 4, 23, 0, "SRQ of the peer"),
    source="inc/qp.h: struct mlx5_wqe_xrc_seg",
)
SHORT_OPERANDS: Final = 8
LONG_OPERANDS: Final = 9
"""Modifiers of masked atomics: operands of 4 and of 8 bytes (UCX: UCT_IB_MLX5_OPMOD_EXT_ATOMIC)."""
OPERANDS: Final[dict[tuple[int, int], Struct]] = {
    (SendOpcode.ATOMIC_CS, 0): ATOMIC,
    (SendOpcode.ATOMIC_FA, 0): ATOMIC,
    (SendOpcode.ATOMIC_MASKED_CS, LONG_OPERANDS): MASKED_SWAP,
    (SendOpcode.ATOMIC_MASKED_FA, LONG_OPERANDS): MASKED_ADD,
    (SendOpcode.ATOMIC_MASKED_CS, SHORT_OPERANDS): SHORT_SWAP,
    (SendOpcode.ATOMIC_MASKED_FA, SHORT_OPERANDS): SHORT_ADD,
}
"""The segment with the operands of an atomic, by opcode and modifier."""
DATAGRAM = Struct(
    "DATAGRAM",
    3 * SEGMENT_BYTES,
    u32("qkey", 0x00, "bit 31: that of the queue pair"),
    bits("qpn", 0x08, 4, 23, 0, "the peer's"),
    bits("priority", 0x0C, 1, 3, 1, "of the VLAN tag"),
    u16("udp_port", 0x0E, "source port of RoCE v2; 0 = any"),
    raw("rmac", 0x14, 6, "MAC address of the peer"),
    u8("tclass", 0x1A),
    u8("hop_limit", 0x1B),
    bits("source", 0x1C, 4, 27, 20, "index of the own RoCE address"),
    bits("flow_label", 0x1C, 4, 19, 0),
    raw("rgid", 0x20, 16, "GID of the peer"),
    doc="Address vector of a datagram.",
    source="inc/qp.h: struct mlx5_av",
)
UMR = Struct(
    "UMR",
    3 * SEGMENT_BYTES,
    u8("flags", 0x00, "UmrFlag"),
    u16("octowords", 0x04, "length of the list in 16 bytes"),
    u16("offset", 0x06, "where it begins in the translation, in 16 bytes, bits 15:0"),
    u64("mask", 0x08, "KeyMask: fields of the key that change"),
    u32("offset_high", 0x10, "bits 47:16"),
    doc="What of a key changes; its context (MKC) follows, then the list or where it is.",
    source="inc/qp.h: struct mlx5_wqe_umr_ctrl_seg",
)
KLM = Struct(
    "KLM",
    SEGMENT_BYTES,
    u32("byte_count", 0x00, "0 ends the list of a KLM key; a KSM key does not look at it"),
    u32("key", 0x04),
    u64("address", 0x08, "in the region of that key"),
    doc="An entry in the list of a key that consists of parts of others, such as a window.",
    source="mlx5_ifc.h: mlx5_ifc_klm_bits",
)
REPEAT_BLOCK: Final = 0x400
"""What stands where `KLM` has a key: entries of `STRIDED` follow, not of `KLM`."""
REPEAT = Struct(
    "REPEAT",
    SEGMENT_BYTES,
    u32("byte_count", 0x00, "of all entries, once"),
    u32("operation", 0x04, "REPEAT_BLOCK"),
    u32("repeats", 0x08, "how many times the entries come"),
    u16("entries", 0x0E),
    doc="The head of a list whose entries repeat, such as columns of a matrix.",
    source="inc/qp.h: struct mlx5_stride_block_ctrl_seg",
)
STRIDED = Struct(
    "STRIDED",
    SEGMENT_BYTES,
    u16("stride", 0x00, "how many bytes further the entry is each time"),
    u16("byte_count", 0x02),
    u32("key", 0x04),
    u64("address", 0x08, "the first time, in the region of that key"),
    doc="An entry behind `REPEAT`.",
    source="inc/qp.h: struct mlx5_stride_block_entry",
)
OWN_QKEY: Final = 1 << 31
FENCE_SHIFT: Final = 5
SEND_DOORBELL = Struct(
    "SEND_DOORBELL",
    8,
    bits("index", 0x00, 4, 23, 8, "of the last entry that was posted"),
    bits("opcode", 0x00, 4, 7, 0),
    bits("qpn", 0x04, 4, 31, 8),
    bits("ds", 0x04, 4, 5, 0),
    doc="The first 8 bytes of the last entry; how far to go is in the doorbell record.",
    source="core/en/txrx.h: mlx5e_notify_hw",
)
