"""Operations of connected queue pairs, and the syndromes of their responses."""

from __future__ import annotations

from enum import IntEnum


class Op(IntEnum):
    """Request opcodes of a reliable or unreliable connection."""

    SEND = 0
    SEND_IMM = 1
    SEND_INV = 2
    WRITE = 3
    WRITE_IMM = 4
    READ = 5
    COMPARE_SWAP = 6
    FETCH_ADD = 7
    MASKED_COMPARE_SWAP = 8
    MASKED_FETCH_ADD = 9


ATOMICS = frozenset((Op.COMPARE_SWAP, Op.FETCH_ADD, Op.MASKED_COMPARE_SWAP, Op.MASKED_FETCH_ADD))


class Syndrome(IntEnum):
    """AETH syndromes (InfiniBand vol. 1, 9.7.5.2.1)."""

    ACK = 0x00
    RNR_NAK = 0x20  # low five bits: timer code
    NAK_PSN = 0x60
    NAK_INVALID_REQUEST = 0x61
    NAK_REMOTE_ACCESS = 0x62
    NAK_REMOTE_OPERATION = 0x63
    NAK_INVALID_RD = 0x64
