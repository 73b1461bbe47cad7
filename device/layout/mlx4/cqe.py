"""Completion queue entries, 32 bytes (include/linux/mlx4/cq.h: mlx4_cqe, mlx4_err_cqe)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, IntFlag
from typing import Final

from bluebridge.device.layout.failures import BY_NAME, UNKNOWN_VENDOR_SYNDROME, Failure
from bluebridge.device.layout.fields import Struct, bits, raw, u8, u16, u32

CQE_SIZE: Final = 32
OWNER_OFFSET: Final = 31
OWNER_BIT: Final = 0x80
IS_SEND_BIT: Final = 0x40
OPCODE_MASK: Final = 0x1F
OPCODE_ERROR: Final = 0x1E
OPCODE_RESIZE: Final = 0x16
TS_HIGH_OFFSET: Final = 0x0C  # of entries with timestamps: bits 47:16 of the clock
TS_LOW_OFFSET: Final = 0x1D  # and 15:0
GRH_PRESENT: Final = 1 << 31  # of the word with the remote QPN


class RecvOpcode(IntEnum):
    """Opcode of a receive completion."""

    RDMA_WRITE_WITH_IMM = 0
    SEND = 1
    SEND_WITH_IMM = 2
    SEND_WITH_INVALIDATE = 3


class CompletionStatus(IntEnum):
    """Values of the `syndrome` byte of a completion in error (Linux `mlx4/cq.h`)."""

    LOCAL_LENGTH_ERR = 0x01
    LOCAL_QP_OP_ERR = 0x02
    LOCAL_PROT_ERR = 0x04
    WR_FLUSH_ERR = 0x05
    MW_BIND_ERR = 0x06
    BAD_RESP_ERR = 0x10
    LOCAL_ACCESS_ERR = 0x11
    REMOTE_INVAL_REQ_ERR = 0x12
    REMOTE_ACCESS_ERR = 0x13
    REMOTE_OP_ERR = 0x14
    TRANSPORT_RETRY_EXC_ERR = 0x15
    RNR_RETRY_EXC_ERR = 0x16
    REMOTE_ABORTED_ERR = 0x22


_SOURCE = "inc/cq.h: struct mlx4_cqe; ib/cq.c: mlx4_ib_poll_one"

CQE = Struct(
    "CQE",
    CQE_SIZE,
    bits("cvlan_present", 0x00, 4, 29, doc="a customer VLAN tag was stripped"),
    bits("svlan_present", 0x00, 4, 30, doc="a service VLAN tag was stripped"),
    bits("qpn", 0x00, 4, 23, 0, "local QPN, all 24 bits"),
    u32("immediate", 0x04, "immediate data, invalidated rkey, or pkey index (UD)"),
    bits("grh", 0x08, 4, 31, doc="a GRH is present"),
    bits("path_bits", 0x08, 4, 30, 24, "local path bits"),
    bits("remote_qpn", 0x08, 4, 23, 0, "source QPN of a datagram"),
    u16("sl_vid", 0x0C, "SL<<12 (IB); PCP<<13 | VID (Ethernet)"),
    raw("smac", 0x0E, 6, "source MAC (RoCE datagrams); overlaps rlid and status"),
    u32("byte_count", 0x14, "received, read, or 8 for atomics; UD counts the 40 GRH bytes"),
    u16("wqe_index", 0x18, "free-running index of the completed send WQE; entry of an SRQ"),
    u16("checksum", 0x1A, "receive L4 checksum result"),
    bits("owner", OWNER_OFFSET, 1, 7, doc="lap bit: valid when it equals !!(ci & size)"),
    bits("is_send", OWNER_OFFSET, 1, 6, doc="completion of a send queue"),
    bits("opcode", OWNER_OFFSET, 1, 4, 0, "of send or receive, 0x1E error, 0x16 resize"),
    source=_SOURCE,
)

L4_CHECKED: Final = 1 << 2  # of byte bad_fcs

FRAME_CQE = Struct(
    "CQE.FRAME",
    CQE_SIZE,
    bits("cvlan_present", 0x00, 4, 29),
    bits("svlan_present", 0x00, 4, 30),
    bits("qpn", 0x00, 4, 23, 0, "the ring's QPN"),
    u32("rss_hash", 0x04),
    u16("vlan_tag", 0x0C, "tag that was stripped"),
    u16("status", 0x10, "FrameStatus"),
    u8("ipv6_extensions", 0x12),
    u8("bad_fcs", 0x13, "bit 4 bad FCS, bit 2 L4 checksum verified"),
    u32("byte_count", 0x14, "bytes of the frame, without FCS"),
    u16("wqe_index", 0x18),
    u16("checksum", 0x1A, "0xFFFF: the TCP or UDP checksum is right"),
    bits("owner", OWNER_OFFSET, 1, 7),
    bits("opcode", OWNER_OFFSET, 1, 4, 0),
    doc="completion of an Ethernet receive",
    source="inc/cq.h: struct mlx4_cqe; core/en_rx.c: mlx4_en_process_rx_cq",
)

ERROR_CQE = Struct(
    "CQE.ERROR",
    CQE_SIZE,
    bits("qpn", 0x00, 4, 23, 0, "local QPN"),
    u16("wqe_index", 0x18, "index of the failed WQE"),
    u8("vendor_syndrome", 0x1A, "`vendor_err` of verbs; by `syndrome`, see FAILURES"),
    u8("syndrome", 0x1B, "what went wrong"),
    bits("owner", OWNER_OFFSET, 1, 7),
    bits("is_send", OWNER_OFFSET, 1, 6),
    bits("opcode", OWNER_OFFSET, 1, 4, 0, "0x1E"),
    source="inc/cq.h: struct mlx4_err_cqe",
)


FAILURES: Mapping[CompletionStatus, Failure] = {
    status: BY_NAME[status.name] for status in CompletionStatus
}
"""The statuses of completions in error (names of verbs: Linux `ib/cq.c: mlx4_ib_handle_error_cqe`).
"""
NAMES_OF_STATUSES: Mapping[int, tuple[str, ...]] = {
    int(status): tuple(dict.fromkeys((failure.verbs, status.name)))
    for status, failure in FAILURES.items()
}
"""The names of a status: first that of verbs, then the card's own if it differs."""


def vendor_syndrome(status: int) -> int:
    """Return the vendor syndrome that goes with a status, also with one that no driver knows."""
    failure = FAILURES.get(CompletionStatus(status)) if status in NAMES_OF_STATUSES else None
    return UNKNOWN_VENDOR_SYNDROME if failure is None else failure.vendor_syndrome


class FrameStatus(IntFlag):
    """Properties of a received Ethernet frame (inc/cq.h: MLX4_CQE_STATUS_*)."""

    IPV4 = 1 << 6
    IPV4_FRAGMENT = 1 << 7
    IPV6 = 1 << 8
    IPV4_OPTIONS = 1 << 9
    TCP = 1 << 10
    UDP = 1 << 11
    IP_OK = 1 << 12
