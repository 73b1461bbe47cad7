"""Event queues: their contexts, their entries, the types of events.

Linux `core/eq.c`, `include/linux/mlx5/device.h: mlx5_eqe, mlx5_event`, `mlx5_ifc.h: eqc`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from bluebridge.device.layout.fields import Struct, bits, raw, u8, u16, u32, u64

EQE_BYTES: Final = 64
DATA_OFFSET: Final = 0x20
DATA_BYTES: Final = 28
PORT_DOWN, PORT_ACTIVE = 1, 4
"""Sub-types of the event PORT_CHANGE."""


class EventType(IntEnum):
    """Types of events; an event queue of CREATE_EQ takes those whose bits are set."""

    COMPLETION = 0x00
    PATH_MIGRATED = 0x01
    COMMUNICATION_ESTABLISHED = 0x02
    SQ_DRAINED = 0x03
    CQ_ERROR = 0x04
    WQ_CATASTROPHIC = 0x05
    PATH_FAILED = 0x07
    INTERNAL_ERROR = 0x08
    PORT_CHANGE = 0x09
    COMMAND = 0x0A
    PAGE_REQUEST = 0x0B
    PAGE_FAULT = 0x0C
    VPORT_CHANGE = 0x0D
    WQ_INVALID_REQUEST = 0x10
    WQ_ACCESS_ERROR = 0x11
    SRQ_CATASTROPHIC = 0x12
    LAST_WQE = 0x13
    SRQ_LIMIT = 0x14
    GPIO = 0x15
    PORT_MODULE = 0x16
    TEMPERATURE = 0x17
    GENERAL = 0x22
    PPS = 0x25


class FaultSubtype(IntEnum):
    """Sub-types of the event PAGE_FAULT."""

    WQE = 0
    """The memory that a work request names."""
    RDMA = 1
    """The memory that the peer names."""


EQC = Struct(
    "EQC",
    0x40,
    bits("status", 0x00, 4, 31, 28, "0 = OK, 10 = write failure"),
    bits("ec", 0x00, 4, 18),
    bits("overrun_ignored", 0x00, 4, 17),
    bits("state", 0x00, 4, 11, 8, "9 = armed, 10 = fired"),
    bits("page_offset", 0x08, 4, 11, 6),
    bits("log_size", 0x0C, 4, 28, 24, "entries of 64 bytes"),
    bits("uar_page", 0x0C, 4, 23, 0, "where its doorbells are"),
    bits("vector", 0x14, 4, 11, 0, "MSI-X"),
    bits("log_page_size", 0x18, 4, 28, 24, "of its list of pages, in units of 4 KiB"),
    bits("consumer_index", 0x28, 4, 23, 0),
    bits("producer_index", 0x2C, 4, 23, 0),
    doc="Event queue context.",
    source="mlx5_ifc.h: eqc",
)
EQ_ARMED, EQ_FIRED = 9, 10

CREATE_EQ = Struct(
    "CREATE_EQ",
    0x110,
    raw("context", 0x10, 0x40, "EQC"),
    raw("event_bitmask", 0x58, 32, "four words of 64 bits, the first for types 0 to 63"),
    doc="Input of CREATE_EQ; the list of pages follows.",
    source="mlx5_ifc.h: create_eq_in",
)

EQE = Struct(
    "EQE",
    EQE_BYTES,
    u8("type", 0x01),
    u8("sub_type", 0x03),
    raw("data", DATA_OFFSET, DATA_BYTES),
    u8("signature", 0x3E),
    u8("owner", 0x3F, "bit 0 toggles with each turn of the queue"),
    doc="Event queue entry.",
    source="include/linux/mlx5/device.h: mlx5_eqe",
)

COMPLETION_EQE = Struct(
    "EQE_COMPLETION",
    EQE_BYTES,
    u8("type", 0x01),
    bits("cqn", 0x38, 4, 23, 0),
    u8("owner", 0x3F),
    source="include/linux/mlx5/device.h: mlx5_eqe_comp",
)

QUEUE_EQE = Struct(
    "EQE_QUEUE",
    EQE_BYTES,
    u8("type", 0x01),
    u8("sub_type", 0x03),
    u8("kind", 0x34, "0 = QP, 1 = RQ, 2 = SQ, 3 = SRQ"),
    bits("number", 0x38, 4, 23, 0),
    u8("owner", 0x3F),
    source="include/linux/mlx5/device.h: mlx5_eqe_qp_srq",
)

CQ_ERROR_EQE = Struct(
    "EQE_CQ_ERROR",
    EQE_BYTES,
    u8("type", 0x01),
    bits("cqn", 0x20, 4, 23, 0),
    u8("syndrome", 0x2B, "1 = overrun, 2 = access"),
    u8("owner", 0x3F),
    source="include/linux/mlx5/device.h: mlx5_eqe_cq_err",
)

COMMAND_EQE = Struct(
    "EQE_COMMAND",
    EQE_BYTES,
    u8("type", 0x01),
    u32("slots", 0x20, "a bit for each entry of the command queue that is done"),
    u8("owner", 0x3F),
    source="include/linux/mlx5/device.h: mlx5_eqe_cmd",
)

PORT_EQE = Struct(
    "EQE_PORT",
    EQE_BYTES,
    u8("type", 0x01),
    u8("sub_type", 0x03, "1 = down, 4 = active"),
    bits("port", 0x28, 1, 7, 4),
    u8("owner", 0x3F),
    source="include/linux/mlx5/device.h: mlx5_eqe_port_state",
)

WQE_FAULT_EQE = Struct(
    "EQE_PAGE_FAULT_WQE",
    EQE_BYTES,
    u8("type", 0x01),
    u8("sub_type", 0x03),
    u32("committed", 0x20, "bytes of the request that need no page any more"),
    u16("wqe_index", 0x26),
    u16("packet_length", 0x2A),
    u32("token", 0x2C),
    bits("fault", 0x38, 4, 26, 24, "WqeFault"),
    bits("queue", 0x38, 4, 23, 0, "QP, or SRQ"),
    u8("owner", 0x3F),
    source="include/linux/mlx5/device.h: mlx5_eqe_page_fault, wqe",
)
RDMA_FAULT_EQE = Struct(
    "EQE_PAGE_FAULT_RDMA",
    EQE_BYTES,
    u8("type", 0x01),
    u8("sub_type", 0x03),
    u32("committed", 0x20, "bytes of the message that need no page any more"),
    u32("rkey", 0x24),
    u16("packet_length", 0x2A),
    u32("length", 0x2C, "of the message"),
    u64("va", 0x30),
    bits("fault", 0x38, 4, 31, 24, "4, and 2 if the message writes"),
    bits("token", 0x38, 4, 23, 0),
    u8("owner", 0x3F),
    source="include/linux/mlx5/device.h: mlx5_eqe_page_fault, rdma",
)
FAULT_EQES: Final[dict[int, Struct]] = {
    FaultSubtype.WQE: WQE_FAULT_EQE,
    FaultSubtype.RDMA: RDMA_FAULT_EQE,
}
"""The layout of an event PAGE_FAULT by its sub-type."""

_BY_TYPE: Final[dict[int, Struct]] = {
    EventType.COMPLETION: COMPLETION_EQE,
    EventType.CQ_ERROR: CQ_ERROR_EQE,
    EventType.COMMAND: COMMAND_EQE,
    EventType.PORT_CHANGE: PORT_EQE,
    **dict.fromkeys(
        (
            EventType.PATH_MIGRATED, EventType.COMMUNICATION_ESTABLISHED, EventType.SQ_DRAINED,
            EventType.WQ_CATASTROPHIC, EventType.PATH_FAILED, EventType.WQ_INVALID_REQUEST,
            EventType.WQ_ACCESS_ERROR, EventType.SRQ_CATASTROPHIC, EventType.LAST_WQE,
            EventType.SRQ_LIMIT,
        ),
        QUEUE_EQE,
    ),
}  # fmt: skip


def layout_of(event: bytes | bytearray | memoryview) -> Struct:
    """Return the layout of an entry, by the type and the sub-type of its event."""
    kind, sub_type = event[1], event[3]
    if kind == EventType.PAGE_FAULT:
        return FAULT_EQES.get(sub_type, EQE)
    return _BY_TYPE.get(kind, EQE)
