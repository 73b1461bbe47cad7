"""Commands of the host command register: opcodes, status codes, transitions of queue pairs.

Linux `core/cmd.c`, `include/linux/mlx4/cmd.h`; InfiniBand vol. 1, 10.3.1.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from bluebridge.device.layout.mlx4.contexts import QpState


class Opcode(IntEnum):
    """The opcodes of firmware commands."""

    QUERY_DEV_CAP = 0x003
    QUERY_FW = 0x004
    QUERY_ADAPTER = 0x006
    INIT_HCA = 0x007
    CLOSE_HCA = 0x008
    INIT_PORT = 0x009
    CLOSE_PORT = 0x00A
    QUERY_HCA = 0x00B
    SET_PORT = 0x00C
    SW2HW_MPT = 0x00D
    QUERY_MPT = 0x00E
    HW2SW_MPT = 0x00F
    READ_MTT = 0x010
    WRITE_MTT = 0x011
    MAP_EQ = 0x012
    SW2HW_EQ = 0x013
    HW2SW_EQ = 0x014
    QUERY_EQ = 0x015
    SW2HW_CQ = 0x016
    HW2SW_CQ = 0x017
    QUERY_CQ = 0x018
    RST2INIT_QP = 0x019
    INIT2RTR_QP = 0x01A
    RTR2RTS_QP = 0x01B
    RTS2RTS_QP = 0x01C
    SQERR2RTS_QP = 0x01D
    TOERR_QP = 0x01E
    RTS2SQD_QP = 0x01F
    SQD2RTS_QP = 0x020
    TORST_QP = 0x021
    QUERY_QP = 0x022
    CONF_SPECIAL_QP = 0x023
    MAD_IFC = 0x024
    READ_MCG = 0x025
    WRITE_MCG = 0x026
    MGID_HASH = 0x027
    MODIFY_CQ = 0x02C
    INIT2INIT_QP = 0x02D
    SYNC_TPT = 0x02F
    DIAG_RPRT = 0x030
    NOP = 0x031
    SUSPEND_QP = 0x032
    UNSUSPEND_QP = 0x033
    MOD_STAT_CFG = 0x034
    SW2HW_SRQ = 0x035
    HW2SW_SRQ = 0x036
    QUERY_SRQ = 0x037
    SQD2SQD_QP = 0x038
    CONFIG_DEV = 0x03A
    ACCESS_REG = 0x03B
    ARM_SRQ = 0x040
    QUERY_PORT = 0x043
    SET_VLAN_FLTR = 0x047
    SET_MCAST_FLTR = 0x048
    DUMP_ETH_STATS = 0x049
    SENSE_PORT = 0x04D
    HW_HEALTH_CHECK = 0x050
    QUERY_IF_STAT = 0x054
    QUERY_FUNC = 0x056
    SET_NODE = 0x05A
    VIRT_PORT_MAP = 0x05C
    UPDATE_QP = 0x061
    FLOW_STEERING_IB_UC_QP_RANGE = 0x064
    QP_FLOW_STEERING_ATTACH = 0x065
    QP_FLOW_STEERING_DETACH = 0x066
    RUN_FW = 0xFF6
    UNMAP_ICM = 0xFF9
    MAP_ICM = 0xFFA
    UNMAP_ICM_AUX = 0xFFB
    MAP_ICM_AUX = 0xFFC
    SET_ICM_SIZE = 0xFFD
    UNMAP_FA = 0xFFE
    MAP_FA = 0xFFF


class Status(IntEnum):
    """Firmware status codes (core/cmd.c: mlx4_status_to_errno)."""

    OK = 0x00
    INTERNAL_ERR = 0x01
    BAD_OP = 0x02
    BAD_PARAM = 0x03
    BAD_SYS_STATE = 0x04
    BAD_RESOURCE = 0x05
    RESOURCE_BUSY = 0x06
    EXCEED_LIM = 0x08
    BAD_RES_STATE = 0x09
    BAD_INDEX = 0x0A
    BAD_NVMEM = 0x0B
    ICM_ERROR = 0x0C
    BAD_QP_STATE = 0x10
    BAD_SEG_PARAM = 0x20
    REG_BOUND = 0x21
    LAM_NOT_PRE = 0x22
    BAD_PKT = 0x30
    BAD_SIZE = 0x40


class SetPort(IntEnum):
    """Variants of SET_PORT with op modifier 1: bits 15:8 of the input modifier."""

    GENERAL = 0x0
    RQP_CALC = 0x1
    MAC_TABLE = 0x2
    VLAN_TABLE = 0x3
    PRIO_MAP = 0x4
    GID_TABLE = 0x5
    PRIO2TC = 0x8
    SCHEDULER = 0x9
    VXLAN = 0xB
    ROCE_ADDR = 0xD


MAILBOX_SIZE = 4096
MAX_MAP_ENTRIES = 256
MODIFIER_UNMAP_EQ = 1 << 31
MODIFIER_SQD_EVENT = 1 << 31
MODIFIER_RESET_COUNTER = 1 << 31


class OptPar(IntEnum):
    """Bits of the optional-parameter mask at offset 0 of a QP transition mailbox."""

    ALT_PATH = 0
    RRE = 1
    RAE = 2
    RWE = 3
    PKEY_INDEX = 4
    QKEY = 5
    RNR_TIMEOUT = 6
    PRIMARY_PATH = 7
    SRA_MAX = 8
    RRA_MAX = 9
    PM_STATE = 10
    RETRY_COUNT = 12
    RNR_RETRY = 13
    ACK_TIMEOUT = 14
    SCHED_QUEUE = 16
    COUNTER_INDEX = 20
    VLAN_STRIPPING = 21


_RST, _INIT, _RTR, _RTS = QpState.RST, QpState.INIT, QpState.RTR, QpState.RTS
_SQD, _SQER, _ERR = QpState.SQD, QpState.SQER, QpState.ERR
OWNED = (_INIT, _RTR, _RTS, _SQD, _SQER, _ERR)
"""States in which hardware owns a queue pair."""

FAILURES = ((_RTS, _SQER), (_SQD, _SQER), *((state, _ERR) for state in OWNED[:-1]))
"""Transitions that hardware makes when work fails; to SQER only with unreliable services."""


def name_of(opcode: int) -> str:
    """Return the name of an opcode, or its number in hex."""
    try:
        return Opcode(opcode).name
    except ValueError:
        return f"{opcode:#05x}"


class Transition(NamedTuple):
    """The states in which a command is allowed, and the one that it leads to."""

    sources: tuple[QpState, ...]
    target: QpState


TRANSITIONS: dict[int, Transition] = {
    Opcode.RST2INIT_QP: Transition((_RST,), _INIT),
    Opcode.INIT2INIT_QP: Transition((_INIT,), _INIT),
    Opcode.INIT2RTR_QP: Transition((_INIT,), _RTR),
    Opcode.RTR2RTS_QP: Transition((_RTR,), _RTS),
    Opcode.RTS2RTS_QP: Transition((_RTS,), _RTS),
    Opcode.SQERR2RTS_QP: Transition((_SQER,), _RTS),
    Opcode.RTS2SQD_QP: Transition((_RTS, _SQD), _SQD),
    Opcode.SQD2SQD_QP: Transition((_SQD,), _SQD),
    Opcode.SQD2RTS_QP: Transition((_SQD,), _RTS),
    Opcode.TOERR_QP: Transition(OWNED, _ERR),
    Opcode.TORST_QP: Transition((_RST, *OWNED), _RST),
}
"""Transitions by the opcode of the command that asks for them."""
