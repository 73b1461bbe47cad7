"""Enumerations of the verbs API, with the numbers of ibverbs (infiniband/verbs.h, ib_verbs.h)."""

from __future__ import annotations

from enum import Enum, IntEnum, IntFlag


class QpType(Enum):
    """The transport types of queue pairs."""

    RC = "rc"
    UC = "uc"
    UD = "ud"
    GSI = "gsi"
    RAW_ETH = "raw_eth"


class QpState(IntEnum):
    """States of a queue pair (ibv_qp_state)."""

    RESET = 0
    INIT = 1
    RTR = 2
    RTS = 3
    SQD = 4
    SQE = 5
    ERR = 6


class AccessFlags(IntFlag):
    """Accesses that a memory region allows (ibv_access_flags); local reads are always allowed."""

    LOCAL_WRITE = 1
    REMOTE_WRITE = 2
    REMOTE_READ = 4
    REMOTE_ATOMIC = 8


class SendFlags(IntFlag):
    """Modifiers of a send work request (ibv_send_flags)."""

    FENCE = 1
    SIGNALED = 2
    SOLICITED = 4
    INLINE = 8


class WrOpcode(IntEnum):
    """Opcodes of send work requests; READ with invalidate exists in iWARP alone."""

    RDMA_WRITE = 0
    RDMA_WRITE_WITH_IMM = 1
    SEND = 2
    SEND_WITH_IMM = 3
    RDMA_READ = 4
    ATOMIC_CMP_AND_SWP = 5
    ATOMIC_FETCH_AND_ADD = 6
    LOCAL_INV = 7
    SEND_WITH_INV = 9
    MASKED_ATOMIC_CMP_AND_SWP = 13
    MASKED_ATOMIC_FETCH_AND_ADD = 14
    REG_MR = 32
    NOP = 33


class WcOpcode(IntEnum):
    """Opcodes of work completions (ib_wc_opcode)."""

    SEND = 0
    RDMA_WRITE = 1
    RDMA_READ = 2
    COMP_SWAP = 3
    FETCH_ADD = 4
    BIND_MW = 5
    LOCAL_INV = 6
    REG_MR = 8
    MASKED_COMP_SWAP = 9
    MASKED_FETCH_ADD = 10
    NOP = 11
    RECV = 128
    RECV_RDMA_WITH_IMM = 129


class WcFlags(IntFlag):
    """The extras that a receive completion carries besides its data (ibv_wc_flags)."""

    GRH = 1
    WITH_IMM = 2
    WITH_INV = 8


class WcStatus(IntEnum):
    """Statuses of work completions (ibv_wc_status)."""

    SUCCESS = 0
    LOC_LEN_ERR = 1
    LOC_QP_OP_ERR = 2
    LOC_PROT_ERR = 4
    WR_FLUSH_ERR = 5
    MW_BIND_ERR = 6
    BAD_RESP_ERR = 7
    LOC_ACCESS_ERR = 8
    REM_INV_REQ_ERR = 9
    REM_ACCESS_ERR = 10
    REM_OP_ERR = 11
    RETRY_EXC_ERR = 12
    RNR_RETRY_EXC_ERR = 13
    REM_ABORT_ERR = 16
    FATAL_ERR = 19
    GENERAL_ERR = 21
