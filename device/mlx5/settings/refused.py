"""The refusal of a firmware command: status, syndrome, and the reason in words."""

from __future__ import annotations

from typing import Final

from bluebridge.device.layout.mlx5.commands import Status
from bluebridge.device.refusal import Reason

STATUSES: Final = {
    Reason.BAD_PARAMETER: Status.BAD_PARAM,
    Reason.BAD_SIZE: Status.BAD_SIZE,
    Reason.BAD_INDEX: Status.BAD_INDEX,
    Reason.BAD_STATE: Status.BAD_RES_STATE,
    Reason.BAD_PAIR_STATE: Status.BAD_QP_STATE,
    Reason.BUSY: Status.RES_BUSY,
    Reason.LIMIT: Status.LIM_ERR,
    Reason.BOUND: Status.BAD_RES_STATE,
    Reason.UNSUPPORTED: Status.BAD_SYS_STATE,
    Reason.UNANSWERED: Status.BAD_PKT,
}
"""The statuses for refusals by parts that know no card."""


class Refused(Exception):
    """A command ends with a `status` other than OK; `reason` goes into the log.

    `syndrome` is 32 bits that drivers print and never read, so that each refusal has its own.
    """

    def __init__(self, status: Status, reason: str = "", syndrome: int = 0) -> None:
        super().__init__(f"{status.name}: {reason}" if reason else status.name)
        self.status = status
        self.reason = reason
        self.syndrome = syndrome
