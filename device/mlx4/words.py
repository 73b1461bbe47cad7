"""What the engines say, in the numbers of this card: codes of commands, events and entries."""

from __future__ import annotations

from typing import Final

from bluebridge.device.layout.mlx4.commands import Status
from bluebridge.device.rdma.refusal import Reason

STATUSES: Final = {
    Reason.BAD_PARAMETER: Status.BAD_PARAM,
    Reason.BAD_SIZE: Status.BAD_SIZE,
    Reason.BAD_INDEX: Status.BAD_INDEX,
    Reason.BAD_STATE: Status.BAD_RES_STATE,
    Reason.BAD_PAIR_STATE: Status.BAD_QP_STATE,
    Reason.BUSY: Status.RESOURCE_BUSY,
    Reason.LIMIT: Status.EXCEED_LIM,
    Reason.BOUND: Status.REG_BOUND,
    Reason.UNSUPPORTED: Status.BAD_SYS_STATE,
    Reason.UNANSWERED: Status.BAD_PKT,
}
"""How a command ends that a part of the adapter refuses."""
