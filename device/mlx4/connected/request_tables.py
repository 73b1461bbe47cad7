"""How send queue entries become requests, and refusals become completions."""

from __future__ import annotations

from typing import Final

from bluebridge.device.layout.mlx4.cqe import CompletionStatus
from bluebridge.device.layout.net.operations import Op, Syndrome
from bluebridge.device.mlx4.rings.work_requests import (
    ATOMIC_CS,
    ATOMIC_FA,
    MASKED_CS,
    MASKED_FA,
    RDMA_READ,
    RDMA_WRITE,
    RDMA_WRITE_IMM,
    SEND,
    SEND_IMM,
    SEND_INVAL,
)

HALF: Final = 1 << 23
"""Sequence numbers less than this ahead are the future, all others the past."""

OPS: Final = {
    SEND: Op.SEND,
    SEND_IMM: Op.SEND_IMM,
    SEND_INVAL: Op.SEND_INV,
    RDMA_WRITE: Op.WRITE,
    RDMA_WRITE_IMM: Op.WRITE_IMM,
    RDMA_READ: Op.READ,
    ATOMIC_CS: Op.COMPARE_SWAP,
    ATOMIC_FA: Op.FETCH_ADD,
    MASKED_CS: Op.MASKED_COMPARE_SWAP,
    MASKED_FA: Op.MASKED_FETCH_ADD,
}
"""Request by opcode of the entry."""

UNRELIABLE: Final = frozenset((SEND, SEND_IMM, RDMA_WRITE, RDMA_WRITE_IMM))
"""What UC queue pairs may send."""

NAK_STATUS: Final = {
    int(Syndrome.NAK_INVALID_REQUEST): CompletionStatus.REMOTE_INVAL_REQ_ERR,
    int(Syndrome.NAK_REMOTE_ACCESS): CompletionStatus.REMOTE_ACCESS_ERR,
    int(Syndrome.NAK_REMOTE_OPERATION): CompletionStatus.REMOTE_OP_ERR,
    int(Syndrome.NAK_INVALID_RD): CompletionStatus.BAD_RESP_ERR,
}
"""Completion status by syndrome of the NAK."""


def packets_of(length: int, mtu: int) -> int:
    """How many packets a message of `length` bytes takes; an empty one takes one."""
    return (length + mtu - 1) // mtu or 1
