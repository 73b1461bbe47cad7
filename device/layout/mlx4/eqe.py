"""Event queue entries, 32 bytes (include/linux/mlx4/device.h: struct mlx4_eqe)."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from bluebridge.device.layout.fields import Field, Struct, bits, raw, u8, u16, u32, u64

EQE_SIZE: Final = 32
OWNER_OFFSET: Final = 31
DATA_OFFSET: Final = 4
DATA_SIZE: Final = 24


class EventType(IntEnum):
    """Types of entries of an event queue."""

    COMP = 0x00
    PATH_MIG = 0x01
    COMM_EST = 0x02
    SQ_DRAINED = 0x03
    CQ_ERROR = 0x04
    WQ_CATAS_ERROR = 0x05
    PATH_MIG_FAILED = 0x07
    LOCAL_CATAS_ERROR = 0x08
    PORT_CHANGE = 0x09
    CMD = 0x0A
    ECC_DETECT = 0x0E
    EQ_OVERFLOW = 0x0F
    WQ_INVALID_REQUEST = 0x10
    WQ_ACCESS_ERROR = 0x11
    SRQ_CATAS_ERROR = 0x12
    SRQ_QP_LAST_WQE = 0x13
    SRQ_LIMIT = 0x14
    PORT_MNG_CHG = 0x1D
    RECOVERABLE_ERROR = 0x3E


PORT_MNG_GUID_INFO: Final = 0x14
PORT_MNG_PORT_INFO: Final = 0x15
PORT_MNG_PKEY_TABLE: Final = 0x16

PORT_DOWN: Final = 1
PORT_ACTIVE: Final = 4

_SOURCE = "inc/device.h: struct mlx4_eqe; core/eq.c: mlx4_eq_int"

EQE = Struct(
    "EQE",
    EQE_SIZE,
    u8("type", 0x01, "event type"),
    u8("subtype", 0x03, "event subtype"),
    raw("data", DATA_OFFSET, DATA_SIZE, "event data"),
    bits("owner", OWNER_OFFSET, 1, 7, doc="lap bit: valid when it equals !!(ci & size)"),
    source=_SOURCE,
)

_TYPE = (u8("type", 0x01), u8("subtype", 0x03))


def _eqe(name: str, *own: Field, doc: str = "", source: str = _SOURCE) -> Struct:
    return Struct(f"EQE.{name}", EQE_SIZE, *_TYPE, *own, doc=doc, source=source)


COMP_EQE = _eqe("COMP", bits("cqn", 4, 4, 23, 0, "CQ number"))
QP_EQE = _eqe("QP", bits("qpn", 4, 4, 23, 0, "QP number"))
SRQ_EQE = _eqe("SRQ", bits("srqn", 4, 4, 23, 0, "SRQ number"))
EQ_EQE = _eqe(
    "EQ",
    bits("eqn", 4, 4, 23, 0, "number of the EQ that lost events"),
    source="inc/device.h: enum mlx4_event; the place of the number is not known from drivers",
)
CQ_ERROR_EQE = _eqe("CQ_ERROR", bits("cqn", 4, 4, 23, 0), u8("syndrome", 0x0F, "1 = overrun"))
CMD_EQE = _eqe(
    "CMD",
    u16("token", 6, "token of the command"),
    u8("status", 0x0F, "status of the command"),
    u64("out_param", 0x10, "immediate result"),
)
PORT_EQE = _eqe(
    "PORT", bits("port", 0x0C, 4, 31, 28, "port number"), doc="subtype 1: down, 4: active"
)
PORT_MNG_EQE = _eqe(
    "PORT_MNG_CHG",
    u8("port", 7, "port number"),
    u16("sm_lid", 8),
    u16("lid", 10),
    u32("changed", 12, "b0 SM LID, b1 GID prefix, b2 LID, b3 client reregister, b4 SM SL"),
    u8("sm_sl", 0x13),
    u64("gid_prefix", 0x14),
    doc="the part of PortInfo that changed (subtype 0x15); GUIDInfo (0x14), P_KeyTable (0x16) and "
    "SLtoVL (0x17) have a block number at 8, a mask at 12",
    source="inc/device.h: struct mlx4_eqe; ib/mad.c: handle_port_mgmt_change_event",
)

BY_TYPE: dict[int, Struct] = {
    EventType.COMP: COMP_EQE,
    EventType.COMM_EST: QP_EQE,
    EventType.SQ_DRAINED: QP_EQE,
    EventType.CQ_ERROR: CQ_ERROR_EQE,
    EventType.WQ_CATAS_ERROR: QP_EQE,
    EventType.PORT_CHANGE: PORT_EQE,
    EventType.CMD: CMD_EQE,
    EventType.EQ_OVERFLOW: EQ_EQE,
    EventType.WQ_INVALID_REQUEST: QP_EQE,
    EventType.WQ_ACCESS_ERROR: QP_EQE,
    EventType.SRQ_CATAS_ERROR: SRQ_EQE,
    EventType.SRQ_QP_LAST_WQE: QP_EQE,
    EventType.SRQ_LIMIT: SRQ_EQE,
    EventType.PORT_MNG_CHG: PORT_MNG_EQE,
}
