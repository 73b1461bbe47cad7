"""Queue pairs of version 0.1: those of this side, and the twins of the peer's (ntrdma_qp.c).

Below them rings, indices and regions (ntrdma_ring.h, ntrdma_mr.c).
"""

from __future__ import annotations

import struct
from collections import deque
from typing import NamedTuple, Protocol

from bluebridge.guest.ntrdma.transports.back_end import BackEnd

Segment = tuple[int, int]


class Ring:
    """Entries in own memory, with a 32-bit index directly behind the last one."""

    def __init__(self, back_end: BackEnd, capacity: int, size: int) -> None:
        self.capacity, self.size = capacity, size
        self._memory = back_end.map(capacity * size + 4)
        self.address = self._memory.address
        self.index_address = self.address + capacity * size
        self.view = self._memory.view

    @property
    def index(self) -> int:
        """Return what the peer has stored behind the entries, or this side has."""
        return int.from_bytes(self.view[self.capacity * self.size :][:4], "little")

    @index.setter
    def index(self, value: int) -> None:
        at = self.capacity * self.size
        self.view[at : at + 4] = value.to_bytes(4, "little")

    def entry(self, index: int) -> bytes:
        """The entry at an index."""
        at = index % self.capacity * self.size
        return bytes(self.view[at : at + self.size])

    def put(self, index: int, data: bytes) -> None:
        """Store an entry."""
        assert len(data) <= self.size
        at = index % self.capacity * self.size
        self.view[at : at + self.size] = data.ljust(self.size, b"\0")

    def count(self, start: int, end: int) -> int:
        """Entries from one index to another, which must be possible ones."""
        assert 0 <= start < 2 * self.capacity and 0 <= end < 2 * self.capacity, (start, end)
        count = end - start + (2 * self.capacity if end < start else 0)
        assert count <= self.capacity, f"index {end} is {count} behind {start}"
        return count

    def after(self, index: int) -> int:
        """The index behind an index."""
        return (index + 1) % (2 * self.capacity)

    def push(self, back_end: BackEnd, target: int, start: int, end: int) -> None:
        """Copy a slice into the peer's ring at `target`, in runs that stop at the ring's end."""
        count = self.count(start, end)
        while count:
            at = start % self.capacity
            run = min(count, self.capacity - at)
            offset = at * self.size
            back_end.copy(self.address + offset, target + offset, run * self.size)
            start, count = (start + run) % (2 * self.capacity), count - run


class Region:
    """A range that a key names: of this side, or of the peer as its commands tell."""

    def __init__(self, key: int, access: int, address: int, length: int, capacity: int) -> None:
        self.key, self.access = key, access
        self.address, self.length, self.capacity = address, length, capacity
        self.segments: list[Segment] = []

    def find(self, address: int, length: int) -> list[Segment] | None:
        """The bus addresses behind a range; None outside of the region."""
        at = address - self.address
        if at < 0 or at + length > self.length:
            return None
        found = []
        for start, size in self.segments:
            if length and at < size:
                part = min(size - at, length)
                found.append((start + at, part))
                at, length = 0, length - part
            else:
                at -= size if length else 0
        return None if length else found


def move(back_end: BackEnd, sources: list[Segment], targets: list[Segment]) -> bool:
    """Copy all of the sources into the targets; False when those are too short."""
    if sum(size for _, size in sources) > sum(size for _, size in targets):
        return False
    rest = [list(each) for each in targets]
    for source, length in sources:
        while length:
            if not rest[0][1]:
                rest.pop(0)
                continue
            part = min(length, rest[0][1])
            back_end.copy(source, rest[0][0], part)
            source, length = source + part, length - part
            rest[0][0] += part
            rest[0][1] -= part
    return True


RECV, RECV_INV, RECV_IMM, RECV_WRITE, SEND, SEND_INV, SEND_IMM, WRITE_IMM, WRITE, READ = range(10)
OK, ABORTED, CORRUPT, OPCODE, NOT_READY, MISSING, OVERFLOW, KEY, RANGE, ACCESS = range(10)
SEND_STATE = 4
RECV_STATE = 2
ERROR_STATE = 0xFFFFFFFF
_SEND = struct.Struct("<QHHIIIQ4sI")
_RECV = struct.Struct("<QHHI")
_PIECE = struct.Struct("<QII")
_CQE = struct.Struct("<QHHI4s4x")
CAPACITY = 8
PIECES = 4
BATCH = 16
Piece = tuple[int, int, int]
_RECEIVED = {SEND: RECV, SEND_INV: RECV_INV, SEND_IMM: RECV_IMM, WRITE_IMM: RECV_WRITE}


class Completion(NamedTuple):
    """A result of polling: `immediate` is 4 bytes as they crossed."""

    handle: int
    op: int
    status: int
    length: int
    immediate: bytes


class Host(Protocol):
    """The port, as far as queue pairs need it."""

    back_end: BackEnd
    regions: dict[int, Region]
    peer_regions: dict[int, Region]
    twins: dict[int, Twin]
    pairs: dict[int, Pair]

    def publish(self, index_address: int, index: int, bell: int) -> None:
        """Fence, index, bell, fence, interrupt."""


def _pieces(data: bytes, start: int, count: int) -> list[Piece]:
    assert count <= PIECES, f"{count} pieces in an entry with room for {PIECES}"
    places = range(start, start + count * _PIECE.size, _PIECE.size)
    return [_PIECE.unpack_from(data, at) for at in places]


def _gather(regions: dict[int, Region], pieces: list[Piece]) -> list[Segment] | int:
    """The memory of a list of pieces, or a status."""
    found: list[Segment] = []
    for address, length, key in pieces:
        region = regions.get(key)
        if region is None:
            return KEY
        part = region.find(address, length)
        if part is None:
            return RANGE
        found += part
    return found


class Pair:
    """A queue pair of this side; its indices run on for as long as it lives."""

    def __init__(self, host: Host, key: int, bell: int, start: int) -> None:
        self.key, self.bell = key, bell
        self.peer_key = 0
        self.state = 0
        self.failed = False
        self._host = host
        back_end = host.back_end
        self.sends = Ring(back_end, CAPACITY, _SEND.size + PIECES * _PIECE.size)
        self.answers = Ring(back_end, CAPACITY, _CQE.size)
        self.receives = Ring(back_end, CAPACITY, _RECV.size + PIECES * _PIECE.size)
        self.posted = self.produced = self.completed = start
        self.answers.index = start
        self.recv_posted = self.recv_told = self.recv_taken = start
        self.rings: tuple[int, int, int, int, int] | None = None
        self.completions: deque[Completion] = deque()

    # -- posting --------------------------------------------------------------------------------

    def post_send(
        self,
        handle: int,
        op: int,
        pieces: list[Piece],
        rdma: tuple[int, int] = (0, 0),
        immediate: bytes = bytes(4),
    ) -> None:
        """Put a request into the ring; `rdma` is address and key at the peer."""
        assert self.sends.count(self.completed, self.posted) < CAPACITY, "the ring is full"
        head = _SEND.pack(handle, op, OK, 0, rdma[1], 0, rdma[0], immediate, len(pieces))
        body = b"".join(_PIECE.pack(*piece) for piece in pieces)
        self.sends.put(self.posted, head + body)
        self.posted = self.sends.after(self.posted)

    def post_receive(self, handle: int, pieces: list[Piece]) -> None:
        """Put a receive into the ring, and into the peer's copy before returning."""
        assert self.receives.count(self.recv_taken, self.recv_posted) < CAPACITY
        body = b"".join(_PIECE.pack(*piece) for piece in pieces)
        self.receives.put(self.recv_posted, _RECV.pack(handle, 0, 0, len(pieces)) + body)
        self.recv_posted = self.receives.after(self.recv_posted)
        self.tell_receives()

    def tell_receives(self) -> None:
        """Copy new entries, then their index, without a bell."""
        back_end = self._host.back_end
        if self.rings is not None and self.recv_told != self.recv_posted:
            self.receives.push(back_end, self.rings[0], self.recv_told, self.recv_posted)
            back_end.fence()
            back_end.imm32(self.rings[1], self.recv_posted)
            self.recv_told = self.recv_posted

    # -- sending --------------------------------------------------------------------------------

    def work(self) -> None:
        """Carry out up to 16 posted requests: data first, entries behind them."""
        if self.state != SEND_STATE or self.failed or self.rings is None:
            return
        first = self.produced
        for _ in range(BATCH):
            if self.produced == self.posted or self.failed:
                break
            self._send_one(self.produced)
            self.produced = self.sends.after(self.produced)
        if first != self.produced:
            self.sends.push(self._host.back_end, self.rings[2], first, self.produced)
            self._host.publish(self.rings[3], self.produced, self.rings[4])

    def _send_one(self, index: int) -> None:
        data = self.sends.entry(index)
        handle, op, _, _, key, _, address, immediate, count = _SEND.unpack_from(data)
        pieces = _pieces(data, _SEND.size, count)
        sources = _gather(self._host.regions, pieces)
        assert isinstance(sources, list), "own memory is registered"
        length = sum(size for _, size in sources)
        status, recv_key = OK, 0
        targets: list[Segment] = []
        twin = self._host.twins.get(self.peer_key)
        if twin is None:
            status = NOT_READY
        elif op in _RECEIVED:
            taken = twin.take_receive()
            if taken is None:
                status = MISSING
            else:
                recv_key, receive = taken
                if op != WRITE_IMM:
                    found = _gather(self._host.peer_regions, receive)
                    status, targets = (found, []) if isinstance(found, int) else (OK, found)
        if status == OK and op in (WRITE, WRITE_IMM) and length:
            region = self._host.peer_regions.get(key)
            if region is None:
                status = KEY
            else:
                targets = region.find(address, length) or []
                status = OK if targets else RANGE
        if status == OK and op != READ and not move(self._host.back_end, sources, targets):
            status = OVERFLOW
        self.failed = status != OK
        said = 0 if op == READ else length
        head = _SEND.pack(handle, op, status, recv_key, key, said, address, immediate, count)
        self.sends.put(index, head + data[_SEND.size :])

    def collect(self) -> None:
        """Take completions over; behind the first error all others are aborted."""
        while self.completed != self.answers.index:
            assert self.sends.count(self.completed, self.produced), "completions of nothing"
            handle, op, status, length, _ = _CQE.unpack(self.answers.entry(self.completed))
            sent = _SEND.unpack_from(self.sends.entry(self.completed))
            assert (handle, op) == (sent[0], sent[1]), "the completion is another request's"
            self.completed = self.sends.after(self.completed)
            self.completions.append(Completion(handle, op, status, length, bytes(4)))
            self.failed = self.failed or status != OK

    # -- receiving ------------------------------------------------------------------------------

    def receive(self, key: int, op: int, length: int, immediate: bytes) -> bool:
        """Complete the next receive, which must be the one that the peer names."""
        if key != self.recv_taken or self.recv_taken == self.recv_posted:
            return False
        (handle, _, _, _) = _RECV.unpack_from(self.receives.entry(self.recv_taken))
        self.recv_taken = self.receives.after(self.recv_taken)
        kept = length if op != WRITE_IMM else 0
        immediate = bytes(4) if op == SEND else immediate
        self.completions.append(Completion(handle, _RECEIVED[op], OK, kept, immediate))
        return True


class Twin:
    """A queue pair of the peer as this side knows it, with the rings that it stores into."""

    def __init__(self, host: Host, values: dict[str, int], bell: int) -> None:
        self.key, self.bell = values["key"], bell
        self.peer_key = 0
        self.state = 0
        self._host = host
        self._values = values
        back_end = host.back_end
        self.receives = Ring(
            back_end, max(1, values["recv_capacity"]), 16 + 16 * values["recv_pieces"]
        )
        self.sends = Ring(
            back_end, max(1, values["send_capacity"]), 40 + 16 * values["send_pieces"]
        )
        self._answers = Ring(back_end, self.sends.capacity, _CQE.size)
        self.receives.index = self._recv_taken = values["recv_index"]
        self.sends.index = self._consumed = values["send_index"]
        self._failed = False

    @property
    def has_receive(self) -> bool:
        """Whether a receive has arrived that no send has taken."""
        return self.receives.count(self._recv_taken, self.receives.index) > 0

    def take_receive(self) -> tuple[int, list[Piece]] | None:
        """Index and pieces of the next receive."""
        if not self.has_receive:
            return None
        index = self._recv_taken
        data = self.receives.entry(index)
        self._recv_taken = self.receives.after(index)
        count = struct.unpack_from("<I", data, 12)[0]
        return index, [_PIECE.unpack_from(data, 16 + 16 * n) for n in range(count)]

    def work(self) -> bool:
        """Serve up to 16 sends of the peer; whether more are there."""
        first, arrived = self._consumed, self.sends.index
        left = self.sends.count(first, arrived)
        for _ in range(min(left, BATCH)):
            self._serve(self._consumed)
            self._consumed = self.sends.after(self._consumed)
        if first != self._consumed:
            target = self._values["send_completions"]
            self._answers.push(self._host.back_end, target, first, self._consumed)
            index_at, bell = self._values["send_consumed"], self._values["completion_bell"]
            self._host.publish(index_at, self._consumed, bell)
        return left > BATCH

    def _serve(self, index: int) -> None:
        data = self.sends.entry(index)
        handle, op, status, recv_key, key, length, address, immediate, count = _SEND.unpack_from(
            data
        )
        pair = self._host.pairs.get(self.peer_key)
        if self._failed:
            status = ABORTED
        elif pair is None or pair.peer_key != self.key or pair.state < RECV_STATE:
            status = NOT_READY
        elif status == OK and op in _RECEIVED:
            good = pair.receive(recv_key, op, length, immediate)
            status = OK if good else CORRUPT
        elif status == OK and op == READ:
            assert length == 0, "a READ carries its length in its pieces only"
            pieces = [_PIECE.unpack_from(data, 40 + 16 * n) for n in range(count)]
            length = sum(piece[1] for piece in pieces)
            status = self._read(key, address, length, pieces)
        elif status == OK and op != WRITE:
            status = OPCODE
        self._failed = status != OK
        if pair is not None and self._failed:
            pair.failed = True
        self._answers.put(index, _CQE.pack(handle, op, status, length, bytes(4)))

    def _read(self, key: int, address: int, length: int, pieces: list[Piece]) -> int:
        region = self._host.regions.get(key)
        sources = region.find(address, length) if region is not None else None
        if sources is None:
            return KEY if region is None else RANGE
        targets = _gather(self._host.peer_regions, pieces)
        if isinstance(targets, int):
            return targets
        return OK if move(self._host.back_end, sources, targets) else OVERFLOW
