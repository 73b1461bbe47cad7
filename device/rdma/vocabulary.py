"""Terms of engines, most of them of the InfiniBand specification; each face has its own numbers."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final

from bluebridge.device.layout.net.roce import RELIABLE_SERVICE, UNRELIABLE_SERVICE, XRC_SERVICE, Op

SEND: Final = 0
SEND_IMM: Final = 1
SEND_INV: Final = 2
WRITE: Final = 3
WRITE_IMM: Final = 4
READ: Final = 5
COMPARE_SWAP: Final = 6
FETCH_ADD: Final = 7
MASKED_COMPARE_SWAP: Final = 8
MASKED_FETCH_ADD: Final = 9
NOP: Final = 10
LARGE_SEND: Final = 11
INVALIDATE: Final = 12
BIND: Final = 13
REGISTER: Final = 14
UPDATE: Final = 15

OPS: Final = tuple(Op)
"""Request `Op` by operation number."""
ATOMICS: Final = frozenset((COMPARE_SWAP, FETCH_ADD, MASKED_COMPARE_SWAP, MASKED_FETCH_ADD))
ATOMIC_SIZE: Final = 8
"""Bytes of the operands of standard atomics; masked ones may have 4."""
LOCAL: Final = frozenset((NOP, REGISTER, INVALIDATE, BIND, UPDATE))
"""Operations that stay inside of the adapter."""
UNRELIABLE: Final = frozenset((SEND, SEND_IMM, WRITE, WRITE_IMM))
"""Operations that UC queue pairs may ask for."""


class PairState(IntEnum):
    """State of a queue pair (vol. 1, 10.3.1)."""

    RST = 0
    INIT = 1
    RTR = 2
    RTS = 3
    SQER = 4
    SQD = 5
    ERR = 6


RECEIVING: Final = (PairState.RTR, PairState.RTS, PairState.SQD, PairState.SQER)
"""States in which a queue pair accepts messages."""


class CompletionStatus(IntEnum):
    """The error a work request failed with (vol. 1, 11.6.2); 0 stands for success."""

    LOCAL_LENGTH_ERR = 1
    LOCAL_QP_OP_ERR = 2
    LOCAL_PROT_ERR = 3
    WR_FLUSH_ERR = 4
    MW_BIND_ERR = 5
    BAD_RESP_ERR = 6
    LOCAL_ACCESS_ERR = 7
    REMOTE_INVAL_REQ_ERR = 8
    REMOTE_ACCESS_ERR = 9
    REMOTE_OP_ERR = 10
    TRANSPORT_RETRY_EXC_ERR = 11
    RNR_RETRY_EXC_ERR = 12


class AsyncEvent(IntEnum):
    """An event about a queue pair that is reported without a completion (vol. 1, 11.6.3)."""

    COMM_EST = 1
    SQ_DRAINED = 2
    WQ_CATAS_ERROR = 3
    WQ_INVALID_REQUEST = 4
    WQ_ACCESS_ERROR = 5
    SRQ_QP_LAST_WQE = 6


class Role(Enum):
    """The purpose of a queue pair: a service, QP0 or QP1, Ethernet, or spreading frames."""

    RC = "RC"
    UC = "UC"
    UD = "UD"
    XRC = "XRC"
    GSI = "GSI"
    SMI = "SMI"
    ETHERNET = "ETH"
    RSS = "RSS"


CONNECTED: Final = frozenset((Role.RC, Role.UC, Role.XRC))
RELIABLE: Final = frozenset((Role.RC, Role.XRC))
SERVICES: Final = {Role.RC: RELIABLE_SERVICE, Role.UC: UNRELIABLE_SERVICE, Role.XRC: XRC_SERVICE}
"""What the opcodes of a queue pair's packets have more than those of RC."""
DATAGRAMS: Final = frozenset((Role.UD, Role.GSI, Role.SMI))
