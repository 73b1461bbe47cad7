"""Ring entries in Python's struct formats; tests compare them with the tables of the layout."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from bluebridge.device.layout.ntrdma.work import WorkCode
from bluebridge.guest.verbs.values import Sge

SEND = struct.Struct("<QHHIIIQII")
RECV = struct.Struct("<QHHI")
PIECE = struct.Struct("<QII")
COMPLETION = struct.Struct("<QHHII4x")
SEGMENT = struct.Struct("<QQ")
SOLICITED = 1 << 63
IMMEDIATE = (WorkCode.SEND_IMMEDIATE, WorkCode.WRITE_IMMEDIATE)
"""The operations whose immediate crosses in network order, as version 0.1 copies it."""


def network_order(immediate: int) -> int:
    """Return an immediate as the number that its bytes in network order are here, or back."""
    return int.from_bytes((immediate & 0xFFFFFFFF).to_bytes(4, "big"), "little")


def send_size(pieces: int) -> int:
    """Return the bytes of a send entry with room for so many pieces."""
    return SEND.size + PIECE.size * pieces


def recv_size(pieces: int) -> int:
    """Return the bytes of a receive entry with room for so many pieces."""
    return RECV.size + PIECE.size * pieces


class SendEntry(NamedTuple):
    """A send as it crosses the bridge; only reads have `pieces`, which are their destination."""

    handle: int
    op: int
    status: int
    recv_key: int
    rdma_key: int
    rdma_length: int
    rdma_address: int
    immediate: int
    pieces: Sequence[Sge]

    def pack(self) -> bytes:
        """Return the entry's bytes."""
        pieces = self.pieces
        head = SEND.pack(*self[:8], len(pieces))
        return head + b"".join([PIECE.pack(*piece) for piece in pieces]) if pieces else head

    @classmethod
    def unpack(cls, data: bytes, most_pieces: int) -> SendEntry | None:
        """Unpack an entry; None when it has more pieces than there is room for."""
        words = SEND.unpack_from(data)
        count: int = words[8]
        if count > most_pieces:
            return None
        return cls._make((*words[:8], unpack_pieces(data, SEND.size, count)))


def pack_receive(pieces: Sequence[Sge]) -> bytes:
    """Pack a receive entry."""
    return RECV.pack(0, 0, 0, len(pieces)) + b"".join(PIECE.pack(*piece) for piece in pieces)


def unpack_receive(data: bytes, most_pieces: int) -> list[Sge] | None:
    """Return the pieces of a receive entry; None when they are more than there is room for."""
    count: int = RECV.unpack_from(data)[3]
    return None if count > most_pieces else unpack_pieces(data, RECV.size, count)


def unpack_pieces(data: bytes, offset: int, count: int) -> list[Sge]:
    """Unpack `count` pieces from `offset` on."""
    end = offset + count * PIECE.size
    return [Sge(*PIECE.unpack_from(data, at)) for at in range(offset, end, PIECE.size)]
