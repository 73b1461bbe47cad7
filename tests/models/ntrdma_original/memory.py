"""Rings, indices and regions of version 0.1 (ntrdma_ring.h, ntrdma_mr.c)."""

from __future__ import annotations

from bluebridge.guest.protocols.ntrdma.transports.back_end import BackEnd

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
        """What the peer has stored behind the entries, or this side has."""
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
