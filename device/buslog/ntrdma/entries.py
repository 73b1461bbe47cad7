"""Entries of rings, as far as the log has kept them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bluebridge.device.buslog.ntrdma.memory import Area, Segment
from bluebridge.device.layout.ntrdma.commands import SEGMENT
from bluebridge.device.layout.ntrdma.work import PIECE, PIECE_SIZE, SEND_ENTRY

MOST_ENTRIES = 1 << 16
"""Of one ring."""


def slots(area: Area, address: int, length: int) -> range:
    """The places of a ring whose entries begin in these bytes."""
    offset = address - area.start
    first = -(-offset // area.entry)
    return range(first, min(-(-(offset + length) // area.entry), area.capacity))


def entries(
    area: Area, address: int, length: int, data: bytes
) -> Iterator[tuple[int, bytes | None]]:
    """Place and bytes of each entry that begins there; None for one that was not kept whole."""
    for slot in slots(area, address, length):
        start = area.start + slot * area.entry - address
        part = data[start : start + area.entry]
        yield slot, part if len(part) == area.entry else None


def segments(command: bytes, start: int, count: int, most: int) -> list[Segment]:
    """The segments in a command from byte `start` on; empty when there are more than fit."""
    if count > most:
        return []
    places = range(start, start + count * SEGMENT.size, SEGMENT.size)
    get = SEGMENT.get
    return [(get(command, "address", at), get(command, "length", at)) for at in places]


@dataclass(slots=True)
class Send:
    """A send entry; `pieces` are (address, length, key)."""

    op: int
    status: int
    receive: int
    key: int
    length: int
    address: int
    immediate: int
    pieces: list[tuple[int, int, int]]


def send_of(entry: bytes) -> Send:
    """A whole send entry; no pieces when it names more than there is room for."""
    get = SEND_ENTRY.get
    count = get(entry, "piece_count")
    return Send(
        get(entry, "op"),
        get(entry, "status"),
        get(entry, "recv_key"),
        get(entry, "rdma_key"),
        get(entry, "rdma_length"),
        get(entry, "rdma_address"),
        get(entry, "immediate"),
        pieces(entry, SEND_ENTRY.size, count),
    )


def pieces(entry: bytes, start: int, count: int) -> list[tuple[int, int, int]]:
    """The pieces of an entry from byte `start` on."""
    if start + count * PIECE_SIZE > len(entry):
        return []
    places = range(start, start + count * PIECE_SIZE, PIECE_SIZE)
    get = PIECE.get
    return [
        (get(entry, "address", at), get(entry, "length", at), get(entry, "key", at))
        for at in places
    ]
