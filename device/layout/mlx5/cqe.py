"""Completion queue entries (include/linux/mlx5/device.h: mlx5_cqe64)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, IntFlag
from typing import Final

from bluebridge.device.layout.failures import BY_NAME
from bluebridge.device.layout.fields import Struct, bits, u8, u16, u32, u64

CQE_SIZE: Final = 64
OWNER_OFFSET: Final = 0x3F
OWNER_BIT: Final = 1
GRH_IN_BUFFER: Final = 1 << 28
"""Of the word with the remote QPN: the first 40 bytes of a datagram are a network header."""
ROCE_HEADER_SHIFT: Final = 24
"""Place of `RoceHeader` in that word."""


class CqeOpcode(IntEnum):
    """Opcodes of completion entries, bits 7:4 of the last byte: a send, a receive, an error."""

    REQUEST = 0
    RESPONSE_WRITE_IMM = 1
    RESPONSE_SEND = 2
    RESPONSE_SEND_IMM = 3
    RESPONSE_SEND_INV = 4
    RESIZE = 5
    REQUEST_ERROR = 13
    RESPONSE_ERROR = 14
    INVALID = 15


class Syndrome(IntEnum):
    """Why a work request failed (inc/device.h: MLX5_CQE_SYNDROME_*)."""

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


NAMES_OF_STATUSES: Final[Mapping[int, tuple[str, ...]]] = {
    int(status): tuple(dict.fromkeys((BY_NAME[status.name].verbs, status.name)))
    for status in Syndrome
}
"""The names of a syndrome: first that of verbs, then the card's own if it differs."""
VENDOR_SYNDROMES: Final = {status: BY_NAME[status.name].vendor_syndrome for status in Syndrome}


class RoceHeader(IntEnum):
    """The network header that a datagram came with (inc/device.h: CQE_ROCE_L3_HEADER_TYPE_*)."""

    GRH = 0
    IPV6 = 1
    IPV4 = 2


class Checked(IntFlag):
    """Which parts of a received frame are right (inc/device.h: CQE_L2_OK)."""

    L2 = 1 << 0
    L3 = 1 << 1
    L4 = 1 << 2


class HashedL3(IntEnum):
    """The network header that was hashed (inc/device.h: CQE_RSS_IPV4)."""

    NONE = 0
    IPV4 = 1
    IPV6 = 2


class HashedL4(IntEnum):
    """The transport header that was hashed (inc/device.h: CQE_RSS_L4_TCP)."""

    NONE = 0
    TCP = 1
    UDP = 2


class L3Header(IntEnum):
    """The network header of a received frame (inc/device.h: CQE_L3_HDR_TYPE_*)."""

    NONE = 0
    IPV6 = 1
    IPV4 = 2


class L4Header(IntEnum):
    """The transport header of a received frame (inc/device.h: CQE_L4_HDR_TYPE_*)."""

    NONE = 0
    TCP_NO_ACK = 1
    UDP = 2
    TCP_ACK_NO_DATA = 3
    TCP_ACK_AND_DATA = 4


CQE = Struct(
    "CQE",
    CQE_SIZE,
    u32("hash", 0x0C, "of receive side scaling"),
    bits("hashed_l4", 0x10, 1, 7, 6, "HashedL4"),
    bits("hashed_l3", 0x10, 1, 3, 2, "HashedL3"),
    u16("checksum", 0x14, "sum from the network header to the end of the packet"),
    bits("grh", 0x18, 4, 29, 28, "1 = the first 40 bytes are a network header"),
    bits("roce_header", 0x18, 4, 25, 24, "RoceHeader of a datagram"),
    bits("remote_qpn", 0x18, 4, 23, 0),
    u8("checked", 0x1C, "Checked"),
    bits("l4", 0x1D, 1, 6, 4, "L4Header"),
    bits("l3", 0x1D, 1, 3, 2, "L3Header"),
    bits("vlan_present", 0x1D, 1, 0, doc="a tag was taken out of the frame"),
    u16("vlan", 0x1E, "that tag"),
    bits("srqn", 0x20, 4, 23, 0, "SRQ or user index"),
    u32("immediate", 0x24, "immediate data, or an invalidated key"),
    u32("length", 0x2C, "bytes"),
    u64("timestamp", 0x30),
    u8("wqe_opcode", 0x38, "of the send work request"),
    bits("qpn", 0x38, 4, 23, 0, "QP or SQ; of a received frame the tag of its flow entry"),
    u16("wqe_counter", 0x3C),
    u8("signature", 0x3E),
    bits("opcode", 0x3F, 1, 7, 4, "CqeOpcode"),
    bits("format", 0x3F, 1, 3, 2),
    bits("solicited", 0x3F, 1, 1),
    bits("owner", 0x3F, 1, 0, doc="changes with each lap; 0 in the first one"),
    source="inc/device.h: struct mlx5_cqe64",
)
ERROR_CQE = Struct(
    "ERROR_CQE",
    CQE_SIZE,
    bits("srqn", 0x20, 4, 23, 0),
    u8("vendor_syndrome", 0x36),
    u8("syndrome", 0x37, "Syndrome"),
    u8("wqe_opcode", 0x38),
    bits("qpn", 0x38, 4, 23, 0),
    u16("wqe_counter", 0x3C),
    u8("signature", 0x3E),
    bits("opcode", 0x3F, 1, 7, 4, "CqeOpcode: REQUEST_ERROR or RESPONSE_ERROR"),
    bits("owner", 0x3F, 1, 0),
    source="inc/device.h: struct mlx5_err_cqe",
)
CQ_ARM = Struct(
    "CQ_ARM",
    8,
    bits("sn", 0x00, 4, 29, 28, "counts events"),
    bits("solicited", 0x00, 4, 24, doc="only solicited completions and errors"),
    bits("consumer", 0x00, 4, 23, 0),
    bits("cqn", 0x04, 4, 23, 0),
    doc="Request for an event: the doorbell; its first word is in the doorbell record, too.",
    source="inc/cq.h: mlx5_cq_arm",
)
