"""Packet counts of requests, and the completion statuses that NAK syndromes lead to."""

from __future__ import annotations

from typing import Final

from bluebridge.device.layout.net.operations import Syndrome
from bluebridge.device.rdma.vocabulary import CompletionStatus

HALF: Final = 1 << 23
"""Half of the PSN space: a PSN less than this ahead of another is later, any other is earlier."""

NAK_STATUS: Final = {
    int(Syndrome.NAK_INVALID_REQUEST): CompletionStatus.REMOTE_INVAL_REQ_ERR,
    int(Syndrome.NAK_REMOTE_ACCESS): CompletionStatus.REMOTE_ACCESS_ERR,
    int(Syndrome.NAK_REMOTE_OPERATION): CompletionStatus.REMOTE_OP_ERR,
    int(Syndrome.NAK_INVALID_RD): CompletionStatus.BAD_RESP_ERR,
}
"""Completion status by syndrome of the NAK."""


def packets_of(length: int, mtu: int) -> int:
    """Count the packets that a message of `length` bytes takes; an empty one takes one."""
    return (length + mtu - 1) // mtu or 1
