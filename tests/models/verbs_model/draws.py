"""What the steps are made of: values that hypothesis draws, and what a connection is made with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hypothesis import strategies as st

from bluebridge.device.layout.mlx4.wqe import SendOpcode
from bluebridge.device.rdma.memory.region import Rights
from tests.models.verbs_model.guest import ALL, BLOCK
from tests.models.verbs_model.values import ATOMICS, SENDS

LOCAL: Final = int(Rights.LOCAL_READ | Rights.LOCAL_WRITE)
RIGHTS: Final = (
    ALL,
    ALL,
    ALL & ~int(Rights.BIND_WINDOW),
    LOCAL,
    int(Rights.LOCAL_READ | Rights.REMOTE_READ),
    LOCAL | int(Rights.REMOTE_WRITE),
    LOCAL | int(Rights.REMOTE_ATOMIC | Rights.BIND_WINDOW),
    int(Rights.REMOTE_WRITE),
)
MESSAGES: Final = (
    SendOpcode.SEND,
    SendOpcode.SEND_IMM,
    SendOpcode.RDMA_WRITE,
    SendOpcode.RDMA_WRITE,
    SendOpcode.RDMA_WRITE_IMM,
    SendOpcode.RDMA_READ,
    SendOpcode.RDMA_READ,
    SendOpcode.SEND_INVAL,
    *sorted(ATOMICS),
    SendOpcode.NOP,
)
RECEIVED: Final = SENDS | {SendOpcode.RDMA_WRITE_IMM}
SIZES: Final = (64, 8, 0, 1, 7, 63, 200, 1024, 1025, 4096, 5000, 8192)
RNR: Final = (7, 0, 1, 7, 2)
"""Retry counts of connections for receivers that are not ready."""
PSNS: Final = (100, 100, 100, 99, 102, 0xFFFFFF)

guests = st.integers(0, 1)
slots = st.sampled_from((0, 0, 1, 2))
mostly = st.sampled_from((True, True, True, True, True, True, True, False))
rarely = mostly.map(lambda value: not value)
spots = st.tuples(st.integers(0, 23), st.integers(0, BLOCK - 1), st.sampled_from(SIZES), mostly)
"""Of a place: number, offset, length, whether it is to lie inside."""
Spot = tuple[int, int, int, bool]
words = st.sampled_from((0, 1, 0xFF, 1 << 63, (1 << 64) - 1, 0x0123456789ABCDEF))


Message = tuple[
    int,
    SendOpcode,
    list[Spot],
    Spot,
    bytes | None,
    tuple[int, int, int, int],
    tuple[bool, bool, bool, bool],
]
"""Guest, opcode, gather list, remote address, inline data, operands of an atomic; flags:
signalled, fence, on a connection that is well, with a receive."""


def messages(opcodes: Sequence[SendOpcode]) -> st.SearchStrategy[Message]:
    return st.tuples(
        guests,
        st.sampled_from(opcodes),
        st.lists(spots, max_size=3),
        spots,
        st.none() | st.none() | st.binary(max_size=40),
        st.tuples(words, words, words, words),
        st.tuples(mostly, rarely, st.booleans(), mostly),
    )


def to_rtr(psn: int = 100, longest: int = 30, **_: int) -> dict[str, int]:
    """Values of INIT2RTR: everything is permitted."""
    return {
        "next_recv_psn": psn,
        "mtu": 3,
        "msg_max": longest,
        "min_rnr_timer": 16,
        "rra_max": 7,
        "remote_read": 1,
        "remote_write": 1,
        "remote_atomic": 1,
    }


def to_rts(
    psn: int = 100, retries: int = 2, rnr: int = 7, reads: int = 1, **_: int
) -> dict[str, int]:
    """Values of RTR2RTS."""
    return {
        "next_send_psn": psn,
        "pri_ack_timeout": 14,
        "retry_count": retries,
        "rnr_retry": rnr,
        "sra_max": reads,
    }
