"""Contexts of queue pairs and of shared receive queues, and the commands that carry them.

Linux `include/linux/mlx5/mlx5_ifc.h: mlx5_ifc_qpc_bits, mlx5_ifc_ads_bits`,
`drivers/infiniband/hw/mlx5/qp.c`.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Final, NamedTuple

from bluebridge.device.layout.fields import Field, Struct, raw, u32, u64, word
from bluebridge.device.layout.mlx5.commands import Opcode

LOG_RECEIVE_UNIT: Final = 4
"""Logarithm of the bytes of a receive entry whose `log_rq_stride` is 0."""
KERNEL_USER_INDEX: Final = 0xFFFFFF
"""User index of queues that a kernel made: completions name them by their number."""


class Service(IntEnum):
    """The service in the context of a queue pair (inc/qp.h: MLX5_QP_ST_*)."""

    RC = 0x0
    UC = 0x1
    UD = 0x2
    XRC = 0x3
    MLX = 0x4
    DCI = 0x5
    DCT = 0x6
    QP0 = 0x7
    QP1 = 0x8
    RAW_ETHERTYPE = 0x9
    UMR = 0xC


class QpState(IntEnum):
    """The state in the context of a queue pair (inc/qp.h: MLX5_QP_STATE_*)."""

    RST = 0
    INIT = 1
    RTR = 2
    RTS = 3
    SQER = 4
    SQD = 5
    ERR = 6


class Receives(IntEnum):
    """Where a queue pair takes its receives from (`rq_type`)."""

    OWN = 0
    SHARED = 1
    NONE = 3


class OptPar(IntFlag):
    """Bits of `opt_param_mask`: attributes that a transition may set (inc/qp.h)."""

    ALT_PATH = 1 << 0
    RRE = 1 << 1
    RAE = 1 << 2
    RWE = 1 << 3
    PKEY_INDEX = 1 << 4
    QKEY = 1 << 5
    RNR_TIMEOUT = 1 << 6
    PRIMARY_PATH = 1 << 7
    SRA_MAX = 1 << 8
    RRA_MAX = 1 << 9
    PM_STATE = 1 << 10
    RETRY_COUNT = 1 << 12
    RNR_RETRY = 1 << 13
    ACK_TIMEOUT = 1 << 14
    LAG_AFFINITY = 1 << 15
    PRIMARY_PORT = 1 << 16
    SRQN = 1 << 18
    CQN_RECV = 1 << 19
    COUNTER_SET = 1 << 25


QP_CONTEXT: Final = 0x18
"""Byte offset of the context in the commands on queue pairs, in inputs and outputs."""
XRC_SRQC = Struct(
    "XRC_SRQC",
    0x40,
    word("state", 0x00, 31, 28, "0 = good"),
    word("log_size", 0x00, 27, 24, "entries"),
    word("signature", 0x04, 31),
    word("cyclic", 0x04, 27),
    word("log_stride", 0x04, 26, 24, "16 << n bytes of an entry"),
    word("xrcd", 0x04, 23, 0),
    word("page_offset", 0x08, 31, 26, "of the ring in its first page, in 64ths of it"),
    word("cqn", 0x08, 23, 0),
    word("log_page_size", 0x10, 29, 24, "of the list of pages, above 4 KiB"),
    word("user_index", 0x10, 23, 0, "by which completions name it"),
    word("pd", 0x18, 23, 0),
    word("limit", 0x1C, 31, 16, "entries left that cause an event"),
    word("counter", 0x1C, 15, 0, "entries taken"),
    u64("doorbell_record", 0x28),
    doc="Shared receive queue of XRC.",
    source="mlx5_ifc.h: mlx5_ifc_xrc_srqc_bits",
)
ARM_XRC_SRQ = Struct(
    "ARM_XRC_SRQ",
    0x10,
    word("srqn", 0x08, 23, 0),
    word("limit", 0x0C, 15, 0, "entries left that cause an event"),
    source="mlx5_ifc.h: mlx5_ifc_arm_xrc_srq_in_bits",
)
RMP_READY: Final = 1
RMP_LIMIT: Final = 1 << 0
"""Bit of MODIFY_RMP's bitmask: `limit` of its work queue."""
PATH_BYTES: Final = 0x2C


def _path(prefix: str, at: int) -> tuple[Field, ...]:
    return (
        raw(f"{prefix}_path", at, PATH_BYTES),
        word(f"{prefix}_pkey_index", at, 15, 0),
        word(f"{prefix}_ack_timeout", at + 0x08, 31, 27, "4.096 us << n"),
        word(f"{prefix}_source", at + 0x08, 23, 16, "index of the own RoCE address"),
        word(f"{prefix}_stat_rate", at + 0x08, 11, 8),
        word(f"{prefix}_hop_limit", at + 0x08, 7, 0),
        word(f"{prefix}_tclass", at + 0x0C, 27, 20),
        word(f"{prefix}_flow_label", at + 0x0C, 19, 0),
        raw(f"{prefix}_rgid", at + 0x10, 16, "GID of the peer"),
        word(f"{prefix}_dscp", at + 0x20, 21, 16),
        word(f"{prefix}_udp_port", at + 0x20, 15, 0, "source port of RoCE v2; 0 = any"),
        word(f"{prefix}_priority", at + 0x24, 30, 28, "of the VLAN tag"),
        word(f"{prefix}_port", at + 0x24, 23, 16),
        raw(f"{prefix}_rmac", at + 0x26, 6, "MAC address of the peer"),
    )


QPC = Struct(
    "QPC",
    0xE8,
    word("state", 0x00, 31, 28, "QpState"),
    word("service", 0x00, 23, 16, "Service"),
    word("migration", 0x00, 12, 11, "3 = migrated"),
    word("signature", 0x04, 31, doc="entries have checksums"),
    word("no_own_multicast", 0x04, 30, doc="own messages to its groups do not come back"),
    word("pd", 0x04, 23, 0, "protection domain"),
    word("mtu", 0x08, 31, 29, "128 << n bytes"),
    word("log_message", 0x08, 28, 24, "longest message"),
    word("log_rq_size", 0x08, 22, 19, "entries"),
    word("log_rq_stride", 0x08, 18, 16, "16 << n bytes of an entry"),
    word("no_sq", 0x08, 15),
    word("log_sq_size", 0x08, 14, 11, "blocks of 64 bytes"),
    word("reserved_lkey", 0x08, 4),
    word("counter_set", 0x0C, 31, 24),
    word("uar", 0x0C, 23, 0, "page of its doorbells"),
    word("user_index", 0x10, 23, 0, "by which its completions name it"),
    word("log_page_size", 0x14, 28, 24, "of the list of pages, above 4 KiB"),
    word("remote_qpn", 0x14, 23, 0),
    *_path("pri", 0x18),
    *_path("alt", 0x44),
    word("log_ack_req", 0x70, 31, 28),
    word("sra_max", 0x70, 23, 21, "1 << n reads and atomics out at a time"),
    word("retry_count", 0x70, 18, 16),
    word("rnr_retry", 0x70, 15, 13),
    word("fast_register", 0x70, 11),
    word("next_send_psn", 0x78, 23, 0),
    word("cqn_send", 0x7C, 23, 0),
    word("deth_qpn", 0x80, 23, 0),
    word("last_acked_psn", 0x88, 23, 0),
    word("ssn", 0x8C, 23, 0),
    word("rra_max", 0x90, 23, 21, "1 << n reads and atomics of the peer at a time"),
    word("atomic_mode", 0x90, 19, 16),
    word("remote_read", 0x90, 15),
    word("remote_write", 0x90, 14),
    word("remote_atomic", 0x90, 13),
    word("page_offset", 0x90, 11, 6, "of the rings in their first page, in 64ths of it"),
    word("min_rnr_timer", 0x94, 28, 24),
    word("next_recv_psn", 0x94, 23, 0),
    word("xrcd", 0x98, 23, 0),
    word("cqn_recv", 0x9C, 23, 0),
    u64("doorbell_record", 0xA0, "receive counter, then send counter"),
    u32("qkey", 0xA8),
    word("rq_type", 0xAC, 26, 24, "Receives"),
    word("srqn", 0xAC, 23, 0),
    word("sq_counter", 0xB4, 31, 16, "blocks that hardware has begun"),
    word("sq_posted", 0xB4, 15, 0),
    u32("rq_counter", 0xB8),
    word("record_umem_valid", 0xD0, 28, doc="the doorbell record is in memory of a user"),
    u32("record_umem", 0xE4),
    doc="Queue pair. Its rings are one buffer: receives first, then sends.",
    source="mlx5_ifc.h: mlx5_ifc_qpc_bits",
)
QP_IN = Struct(
    "QP_IN",
    0x110,
    word("qpn", 0x08, 23, 0),
    u32("mask", 0x10, "OptPar"),
    u32("ece", 0x14, "enhanced connection establishment"),
    raw("context", QP_CONTEXT, QPC.size, "QPC"),
    u64("ring_umem_offset", 0x100),
    u32("ring_umem", 0x108),
    word("ring_umem_valid", 0x10C, 31, doc="the rings are in memory of a user"),
    doc="Input of CREATE_QP, which the list of pages follows, and of the transitions.",
    source="mlx5_ifc.h: mlx5_ifc_create_qp_in_bits",
)


class Transition(NamedTuple):
    """The states that a command takes a queue pair out of, and the state it goes to."""

    sources: tuple[QpState, ...]
    target: QpState


TRANSITIONS: Final[dict[int, Transition]] = {
    Opcode.RST2INIT_QP: Transition((QpState.RST,), QpState.INIT),
    Opcode.INIT2INIT_QP: Transition((QpState.INIT,), QpState.INIT),
    Opcode.INIT2RTR_QP: Transition((QpState.INIT,), QpState.RTR),
    Opcode.RTR2RTS_QP: Transition((QpState.RTR,), QpState.RTS),
    Opcode.RTS2RTS_QP: Transition((QpState.RTS,), QpState.RTS),
    Opcode.SQERR2RTS_QP: Transition((QpState.SQER,), QpState.RTS),
    Opcode.SQD_RTS_QP: Transition((QpState.SQD,), QpState.RTS),
}
"""The transitions that carry a context; TOERR_QP and TORST_QP are possible from any state."""
