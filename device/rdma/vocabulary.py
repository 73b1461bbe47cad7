"""Terms of the InfiniBand specification that engines use; each face has its own numbers."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


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
