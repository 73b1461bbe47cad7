"""What is asked of a queue pair, and what it tells: the words that model and hardware share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from bluebridge.device.layout.mlx4.wqe import SendOpcode

Sge = tuple[int, int, int]
"""Key, virtual address, length in bytes."""

RETURNING = frozenset(
    (
        SendOpcode.RDMA_READ,
        SendOpcode.ATOMIC_CS,
        SendOpcode.ATOMIC_FA,
        SendOpcode.MASKED_ATOMIC_CS,
        SendOpcode.MASKED_ATOMIC_FA,
    )
)
"""Requests whose answer brings data."""
ATOMICS = RETURNING - {SendOpcode.RDMA_READ}
SENDS = frozenset((SendOpcode.SEND, SendOpcode.SEND_IMM, SendOpcode.SEND_INVAL))
WRITES = frozenset((SendOpcode.RDMA_WRITE, SendOpcode.RDMA_WRITE_IMM))
UNRELIABLE = frozenset((SendOpcode.SEND, SendOpcode.SEND_IMM)) | WRITES
"""What UC carries."""


class State(Enum):
    """States of a queue pair that hardware owns (InfiniBand vol. 1, 10.3.1)."""

    INIT = "INIT"
    RTR = "RTR"
    RTS = "RTS"
    SQD = "SQD"
    SQER = "SQER"
    ERR = "ERR"


@dataclass(frozen=True)
class Register:
    """REG_MR: `pages` become visible at `start` under `key`."""

    key: int
    start: int
    length: int
    rights: int
    pages: tuple[int, ...]


@dataclass(frozen=True)
class Bind:
    """BIND_MW of window `key` to `length` bytes at `va` of the region `lkey`."""

    key: int
    lkey: int
    va: int
    length: int
    rights: int
    zero_based: bool
    second_type: bool


@dataclass(frozen=True)
class Invalidate:
    """LOCAL_INV."""

    key: int


@dataclass(frozen=True)
class Work:
    """A send work request; `inline` stands for `sges` where it is not None."""

    opcode: SendOpcode
    sges: tuple[Sge, ...] = ()
    inline: bytes | None = None
    remote: int = 0
    rkey: int = 0
    immediate: int = 0
    operands: tuple[int, int, int, int] = (0, 0, 0, 0)
    action: Register | Bind | Invalidate | None = None
    signalled: bool = True
    fence: bool = False
    solicited: bool = False

    @property
    def length(self) -> int:
        return sum(sge[2] for sge in self.sges) if self.inline is None else len(self.inline)


@dataclass(frozen=True)
class Completion:
    """A completion; of one in error only index and status say something."""

    send: bool
    index: int
    status: int
    opcode: int = 0
    length: int = 0
    immediate: int = 0
    source: int = 0


@dataclass(frozen=True)
class Request:
    """A message: a work request with what was gathered for it."""

    work: Work
    psn: int
    packets: int
    payload: bytes


@dataclass(frozen=True)
class Answer:
    """ACK or NAK; `data` of a read or an atomic."""

    psn: int
    syndrome: int
    data: bytes = b""


@dataclass
class Receive:
    """A receive that was posted."""

    index: int
    sges: Sequence[Sge]
