"""Memory regions of this side and twins of the peer's: key, rights, range, and segments."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence

from bluebridge.device.layout.ntrdma.work import WorkStatus
from bluebridge.guest.verbs.values import Sge

Segment = tuple[int, int]
"""Bus address and length of contiguous memory."""
INVALIDATABLE = 1 << 31
"""The bit in the rights on the wire that lets the peer invalidate the region."""


class Refused(Exception):
    """A use of memory is not allowed; `status` says why."""

    def __init__(self, status: WorkStatus) -> None:
        super().__init__(status.name)
        self.status = status


class Region:
    """A region of `length` bytes, from `address` on for users of `key`; `segments` are on one bus.

    The twin of a region that is not complete yet has fewer segments than its `capacity`.
    """

    def __init__(self, key: int, access: int, address: int, length: int, capacity: int) -> None:
        self.key = key
        self.access = access
        self.address = address
        self.length = length
        self.capacity = capacity
        self.segments: list[Segment] = []
        self._starts: list[int] = []
        self._covered = 0

    def append(self, segments: Sequence[Segment]) -> bool:
        """Add segments behind the present ones; returns False if they do not fit."""
        if len(self.segments) + len(segments) > self.capacity:
            return False
        for segment in segments:
            self._starts.append(self._covered)
            self._covered += segment[1]
        self.segments += segments
        return len(self.segments) < self.capacity or self._covered >= self.length

    @property
    def complete(self) -> bool:
        """True when all segments are present."""
        return len(self.segments) == self.capacity

    def pieces(self, address: int, length: int) -> list[Segment]:
        """Return the memory behind `length` bytes at `address`; raises `Refused`."""
        offset = address - self.address
        if offset < 0 or offset + length > self.length:
            raise Refused(WorkStatus.RDMA_RANGE)
        if len(self.segments) == 1:
            return [(self.segments[0][0] + offset, length)]
        found = []
        number = bisect_right(self._starts, offset) - 1
        while length:
            start, size = self.segments[number]
            inside = offset - self._starts[number]
            part = min(length, size - inside)
            if part > 0:
                found.append((start + inside, part))
            offset, length, number = offset + part, length - part, number + 1
        return found


Regions = Mapping[int, Region]
"""The regions of one protection domain, by key."""


def find(regions: Regions, key: int, address: int, length: int, right: int) -> list[Segment]:
    """Return the memory that `key` gives access to with `right`; raises `Refused`."""
    region = regions.get(key)
    if region is None or not region.complete:
        raise Refused(WorkStatus.RDMA_KEY)
    if right & ~region.access:
        raise Refused(WorkStatus.RDMA_ACCESS)
    return region.pieces(address, length)


def gather(regions: Regions, pieces: Sequence[Sge], right: int) -> list[Segment]:
    """Return the memory of a list of pieces; raises `Refused`."""
    found: list[Segment] = []
    for address, length, key in pieces:
        if length:
            found += find(regions, key, address, length, right)
    return found


def total(segments: Sequence[Segment] | Sequence[Sge]) -> int:
    """Return the bytes of a list of segments or pieces."""
    return sum(segment[1] for segment in segments)


def copies(
    sources: Sequence[Segment], targets: Sequence[Segment]
) -> Iterator[tuple[int, int, int]]:
    """Yield source, target and length of the copies that fill `targets` from all of `sources`."""
    rest = iter(targets)
    target = room = 0
    for source, length in sources:
        while length:
            while not room:
                target, room = next(rest)
            part = min(length, room)
            yield source, target, part
            source, length = source + part, length - part
            target, room = target + part, room - part
