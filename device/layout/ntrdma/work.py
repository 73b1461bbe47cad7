"""Entries of rings: sends, receives, completions of queue pairs, buffers and lengths of frames."""

from __future__ import annotations

from enum import IntEnum
from functools import partial
from typing import Final

from bluebridge.device.layout.fields import Struct, bits, u16, u32, u64

PIECE_SIZE: Final = 16
DROPPED: Final = 0
"""Length that stands for a frame which did not fit into its buffer; the buffer stays empty."""
_table = partial(Struct, source="NTRDMA v0.1 ntrdma_qp.h", order="little")


class WorkCode(IntEnum):
    """Operations of work entries."""

    RECV = 0
    RECV_INVALIDATE = 1
    RECV_IMMEDIATE = 2
    RECV_WRITE = 3
    SEND = 4
    SEND_INVALIDATE = 5
    SEND_IMMEDIATE = 6
    WRITE_IMMEDIATE = 7
    WRITE = 8
    READ = 9


class WorkStatus(IntEnum):
    """Completion statuses.

    Those from 10 on are extensions of this project; to version 0.1 they are errors like all others.
    """

    OK = 0
    ABORTED = 1
    CORRUPT = 2
    OPCODE = 3
    RECV_NOT_READY = 4
    RECV_MISSING = 5
    RECV_OVERFLOW = 6
    RDMA_KEY = 7
    RDMA_RANGE = 8
    RDMA_ACCESS = 9
    LOCAL_PROTECTION = 10
    RECV_PROTECTION = 11
    QUEUE_ACCESS = 12
    NO_PEER = 13
    INVALIDATION = 14


SEND_ENTRY = _table(
    "NTRDMA_SEND_ENTRY",
    40,
    u64("handle", 0, "the requester's own; version 0.1 hands it back"),
    bits("solicited", 0, 8, 63, doc="the receiver's event is wanted. Ours"),
    u16("op", 8, "WorkCode"),
    u16("status", 10, "WorkStatus, of an entry that failed where it was posted"),
    u32("recv_key", 12, "index of the receive that it took"),
    u32("rdma_key", 16),
    u32("rdma_length", 20, "0 in a READ: its pieces say how much"),
    u64("rdma_address", 24),
    u32("immediate", 32, "in network order; or the key to invalidate, as a number"),
    u32("piece_count", 36),
    doc="A send; pieces of memory follow from 40 on.",
)
RECV_ENTRY = _table(
    "NTRDMA_RECV_ENTRY",
    16,
    u64("handle", 0),
    u16("op", 8, "0"),
    u16("status", 10, "0"),
    u32("piece_count", 12),
    doc="A receive; pieces of memory follow from 16 on.",
)
PIECE = _table(
    "NTRDMA_PIECE",
    PIECE_SIZE,
    u64("address", 0, "in the region"),
    u32("length", 8),
    u32("key", 12),
    doc="A piece of a memory region.",
)
COMPLETION = _table(
    "NTRDMA_COMPLETION",
    24,
    u64("handle", 0),
    u16("op", 8, "WorkCode of the entry"),
    u16("status", 10, "WorkStatus"),
    u32("length", 12),
    u32("immediate", 16, "in network order"),
    doc="The completion of the entry at the same place of the ring.",
)
_frame_table = partial(Struct, source="NTRDMA v0.1 ntrdma_eth.c", order="little")

FRAME_BUFFER = _frame_table(
    "NTRDMA_FRAME_BUFFER",
    16,
    u64("address", 0, "on the receiver's bus"),
    u64("length", 8, "bytes that fit"),
    doc="An empty buffer, which the receiver of frames copies to the sender.",
)
FRAME_COMPLETION = _frame_table(
    "NTRDMA_FRAME_COMPLETION",
    8,
    u64("length", 0, "of the frame in the buffer at the same place of the ring; 0 = dropped"),
    doc="A buffer is used, which the sender of frames copies to the receiver.",
)
