"""Entries of rings, as far as the log has kept them."""

from __future__ import annotations

from dataclasses import dataclass

from bluebridge.device.buslog.reader import Event
from bluebridge.device.layout.ntrdma.commands import SEGMENT
from bluebridge.device.layout.ntrdma.work import PIECE, PIECE_SIZE, SEND_ENTRY, WorkCode
from bluebridge.host_tools.analyzer.ntrdma.areas import Area
from bluebridge.host_tools.analyzer.ntrdma.regions import Segment

MOST_ENTRIES = 1 << 16
"""Entries of one ring at most."""


Entry = tuple[int, bytes | None]
"""Place in the ring and bytes, None when the log has not kept them."""


def taken(area: Area, event: Event) -> list[Entry]:
    """Return the entries that a store into a ring completes.

    A processor's stores may end anywhere, so the beginning of an entry is kept until the rest
    follows.
    """
    start, length, data = event.address, event.length, event.data
    if area.part and start == area.part_at + len(area.part) and len(data) == length:
        start, data = area.part_at, area.part + data
        length = len(data)
    area.part = b""
    found: list[Entry] = []
    first = -(-(start - area.start) // area.entry)
    last = -(-(start + length - area.start) // area.entry)
    for slot in range(first, min(last, area.capacity)):
        at = area.start + slot * area.entry - start
        entry = data[at : at + area.entry]
        if len(entry) == area.entry:
            found.append((slot, entry))
        elif len(data) < length:
            found.append((slot, None))
        else:
            area.part, area.part_at = entry, start + at
    return found


def segments(command: bytes, start: int, count: int, most: int) -> list[Segment]:
    """Return the segments in a command from byte `start` on; empty when there are too many."""
    if count > most:
        return []
    places = range(start, start + count * SEGMENT.size, SEGMENT.size)
    get = SEGMENT.get
    return [(get(command, "address", at), get(command, "length", at)) for at in places]


_WITH_IMMEDIATE = (WorkCode.SEND_IMMEDIATE, WorkCode.WRITE_IMMEDIATE)


@dataclass(slots=True)
class Send:
    """A send entry; `pieces` are tuples of address, length and key.

    `immediate` is the number whose bytes cross in network order, or the key to invalidate.
    """

    op: int
    status: int
    receive: int
    key: int
    length: int
    address: int
    immediate: int
    pieces: list[tuple[int, int, int]]


def send_of(entry: bytes) -> Send:
    """Parse a whole send entry; it has no pieces when it names more than there is room for."""
    get = SEND_ENTRY.get
    count, op = get(entry, "piece_count"), get(entry, "op")
    found = pieces(entry, SEND_ENTRY.size, count)
    immediate = get(entry, "immediate")
    if op in _WITH_IMMEDIATE:
        immediate = int.from_bytes(immediate.to_bytes(4, "little"), "big")
    return Send(
        op,
        get(entry, "status"),
        get(entry, "recv_key"),
        get(entry, "rdma_key"),
        sum(piece[1] for piece in found) if op == WorkCode.READ else get(entry, "rdma_length"),
        get(entry, "rdma_address"),
        immediate,
        found,
    )


def pieces(entry: bytes, start: int, count: int) -> list[tuple[int, int, int]]:
    """Return the pieces of an entry from byte `start` on."""
    if start + count * PIECE_SIZE > len(entry):
        return []
    places = range(start, start + count * PIECE_SIZE, PIECE_SIZE)
    get = PIECE.get
    return [
        (get(entry, "address", at), get(entry, "length", at), get(entry, "key", at))
        for at in places
    ]
