"""Work queue entries: control segment, then segments by opcode (include/linux/mlx4/qp.h)."""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Final

from bluebridge.device.layout.fields import Struct, bits, raw, u8, u16, u32, u64


class SendOpcode(IntEnum):
    """Opcode in bits 4:0 of the control segment, echoed in the CQE."""

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
    MASKED_ATOMIC_CS = 0x14
    MASKED_ATOMIC_FA = 0x15
    BIND_MW = 0x18
    FAST_REG_MR = 0x19
    LOCAL_INVAL = 0x1B


CTRL_SIZE: Final = 16
OWNER: Final = 1 << 31
FENCE: Final = 1 << 6  # of the low byte of dword 1
DS_MASK: Final = 0x3F
CQE_REQUEST: Final = 3 << 2
SOLICITED: Final = 1 << 1
STRONG_ORDER: Final = 1 << 7
IP_CSUM: Final = 1 << 4
TCP_UDP_CSUM: Final = 1 << 5
FORCE_LOOPBACK: Final = 1 << 0
INSERT_CVLAN: Final = 1 << 6  # of byte ins_vlan
INSERT_SVLAN: Final = 1 << 7
INLINE: Final = 1 << 31
INVALID_LKEY: Final = 0x100


class FastRegFlag(IntFlag):
    """Access flags of a fast registration segment."""

    LOCAL_READ = 1 << 27
    LOCAL_WRITE = 1 << 28
    REMOTE_READ = 1 << 29
    REMOTE_WRITE = 1 << 30
    ATOMIC = 1 << 31


class BindFlag(IntFlag):
    """Flags of a bind segment: the first three of `flags1`, the others of `flags2`."""

    REMOTE_READ = 1 << 29
    REMOTE_WRITE = 1 << 30
    REMOTE_ATOMIC = 1 << 31
    ZERO_BASED = 1 << 30
    TYPE_2 = 1 << 31


CTRL = Struct(
    "CTRL",
    16,
    bits("owner", 0, 4, 31, doc="valid when equal to !!(index & count)"),
    bits("lso", 0, 4, 6, doc="large send header follows"),
    bits("send_index", 0, 4, 23, 8, "BlueFlame: index of this WQE"),
    bits("opcode", 0, 4, 4, 0, "send opcode"),
    bits("vlan_tag", 4, 4, 31, 16, "VLAN tag to insert; with BlueFlame 31:8 is the QPN"),
    bits("insert_vlan", 4, 4, 15, 8, "bit 6 customer, bit 7 service VLAN"),
    bits("fence", 4, 4, 6, doc="wait for earlier reads and atomics"),
    bits("ds", 4, 4, 5, 0, "size of the WQE in 16-byte units, this segment included"),
    bits("srcrb", 8, 4, 31, 8, "XRC SRQN, or in 31:16 two bytes of the destination MAC"),
    bits("strong_order", 8, 4, 7, doc="strong ordering"),
    bits("tcp_udp_csum", 8, 4, 5, doc="compute the L4 checksum"),
    bits("ip_csum", 8, 4, 4, doc="compute the IPv4 header checksum"),
    bits("cqe", 8, 4, 3, 2, "3 = write a CQE"),
    bits("solicited", 8, 4, 1, doc="solicited event"),
    bits("loopback", 8, 4, 0, doc="force loopback"),
    u32("immediate", 12, "immediate data, or the rkey to invalidate"),
    source="inc/qp.h: struct mlx4_wqe_ctrl_seg",
)

RADDR = Struct(
    "RADDR",
    16,
    u64("va", 0, "remote address"),
    u32("rkey", 8, "remote key"),
    source="inc/qp.h: mlx4_wqe_raddr_seg",
)
ATOMIC = Struct(
    "ATOMIC",
    16,
    u64("swap_add", 0, "swap or add operand"),
    u64("compare", 8, "compare operand, or mask"),
    source="inc/qp.h: mlx4_wqe_atomic_seg",
)
MASKED_ATOMIC = Struct(
    "MASKED_ATOMIC",
    32,
    u64("swap_add", 0),
    u64("compare", 8),
    u64("swap_mask", 0x10),
    u64("compare_mask", 0x18),
    source="inc/qp.h: mlx4_wqe_masked_atomic_seg",
)
DATA = Struct(
    "DATA",
    16,
    u32("byte_count", 0, "bytes; bit 31 set means inline data"),
    u32("lkey", 4, "local key; 0x100 ends a receive list"),
    u64("va", 8, "local address"),
    source="inc/qp.h: mlx4_wqe_data_seg",
)
LSO = Struct(
    "LSO",
    4,
    bits("mss", 0, 4, 31, 16, "payload bytes of each frame but the last"),
    bits("header_size", 0, 4, 15, 0, "bytes of headers that follow"),
    doc="headers of a large send; the next segment starts at a multiple of 16 bytes",
    source="inc/qp.h: struct mlx4_wqe_lso_seg; core/en_tx.c: mlx4_en_xmit",
)
INLINE_SEG = Struct(
    "INLINE",
    4,
    bits("inline", 0, 4, 31),
    bits("byte_count", 0, 4, 30, 0, "bytes that follow"),
    source="inc/qp.h: mlx4_wqe_inline_seg",
)
LOCAL_INVAL = Struct(
    "LOCAL_INVAL",
    32,
    u32("key", 8, "key to invalidate"),
    source="inc/qp.h: mlx4_wqe_local_inval_seg",
)
FAST_REG = Struct(
    "FAST_REG",
    48,
    u32("flags", 0, "FastRegFlag"),
    u32("key", 4, "the new key"),
    u64("page_list", 8, "DMA address of BE64 page addresses | 1"),
    u64("start", 0x10, "IOVA"),
    u64("length", 0x18, "bytes"),
    u32("offset", 0x20),
    u32("page_shift", 0x24, "log2 of the page size"),
    source="inc/qp.h: mlx4_wqe_fmr_seg; ib/qp.c: set_reg_seg",
)
BIND = Struct(
    "BIND",
    32,
    u32("flags1", 0, "bit 29 remote read, 30 remote write, 31 remote atomic"),
    u32("flags2", 4, "bit 30 zero-based, 31 type 2"),
    u32("new_rkey", 8, "key of the window from now on"),
    u32("lkey", 0x0C, "key of the region behind it"),
    u64("va", 0x10, "first address of the region to show"),
    u64("length", 0x18, "bytes; 0 takes a window of type 1 back"),
    source="inc/qp.h: mlx4_wqe_bind_seg",
)

AV = Struct(
    "AV",
    32,
    bits("force_loopback", 0, 4, 31),
    bits("vlan_present", 0, 4, 29, doc="RoCE, libmlx4: the datagram's VLAN is set"),
    bits("port", 0, 4, 25, 24),
    bits("pd", 0, 4, 23, 0),
    u8("g_slid", 0x05, "bit 7 GRH, path bits; RoCE: source MAC index"),
    u16("dlid", 0x06, "RoCE: 0xC000 for multicast"),
    u8("gid_index", 0x09),
    u8("static_rate", 0x0A),
    u8("hop_limit", 0x0B),
    bits("sl", 0x0C, 4, 31, 28, "IB; RoCE uses 31:29"),
    bits("tclass", 0x0C, 4, 27, 20),
    bits("flow_label", 0x0C, 4, 19, 0),
    raw("dgid", 0x10, 16),
    source="inc/device.h: struct mlx4_av",
)
DATAGRAM = Struct(
    "DATAGRAM",
    48,
    raw("av", 0, 32, "address vector"),
    u32("dqpn", 0x20, "destination QPN"),
    u32("qkey", 0x24, "bit 31 set: use the QP's own Q_Key"),
    u16("vlan", 0x28, "PCP<<13 | VID; 0xFFFF none, or left unset: AV vlan_present"),
    raw("dmac", 0x2A, 6),
    source="inc/qp.h: struct mlx4_wqe_datagram_seg",
)
SRQ_NEXT = Struct(
    "SRQ_NEXT",
    16,
    u16("next_wqe_index", 2, "next entry of the list"),
    source="inc/device.h: mlx4_wqe_srq_next_seg",
)
