"""Memory regions of this side and twins of the peer's: key, rights, range, and segments."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence

from bluebridge.device.layout.ntrdma.work import WorkStatus
from bluebridge.guest.errors import VerbsError
from bluebridge.guest.verbs.enums import AccessFlags
from bluebridge.guest.verbs.values import SendWr, Sge

Segment = tuple[int, int]
"""Bus address and length of contiguous memory."""
INVALIDATABLE = 1 << 31
"""The bit in the rights on the wire that lets the peer invalidate the region."""

MOST_PAGES = 511
_CHANGES = AccessFlags.REMOTE_WRITE | AccessFlags.REMOTE_ATOMIC


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


class Domain:
    """An own protection domain, with its regions by key."""

    def __init__(self, key: int) -> None:
        self.key = key
        self.regions: dict[int, Region] = {}


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


class FastRegion:
    """A region that REG_MR fills; `registered` while valid. `rkey` runs ahead of that."""

    def __init__(self, domain: Domain, index: int, max_pages: int) -> None:
        if not 1 <= max_pages <= MOST_PAGES:
            raise VerbsError(f"{max_pages} pages: 1 to {MOST_PAGES} are possible")
        self.domain = domain
        self.max_pages = max_pages
        self.registered: Region | None = None
        self.lkey = self.rkey = index << 8
        """The key for local work requests and for the RDMA of a peer."""

    def next_key(self) -> int:
        """Change the key's low byte for the next REG_MR; returns the new key."""
        self.lkey = self.rkey = self.rkey & ~0xFF | (self.rkey + 1) & 0xFF
        return self.rkey

    def register(self, domain: Domain, request: SendWr) -> Region | None:
        """Register as REG_MR asks; returns the region, None when that is not allowed."""
        key = request.key or self.rkey
        if domain is not self.domain or self.registered is not None or key >> 8 != self.rkey >> 8:
            return None
        if len(request.pages) > self.max_pages:
            return None
        pages, size = request.pages, request.page_size
        try:
            access = check_access(request.access)
            segments = segments_of(pages, size, request.iova, request.length)
        except VerbsError:
            return None
        access |= INVALIDATABLE
        region = Region(key, access, request.iova, request.length, len(segments))
        region.append(segments)
        self.registered = domain.regions[key] = region
        return region

    def invalidate(self) -> Region | None:
        """End the registration of the key; returns the region that was registered, if any."""
        region, self.registered = self.registered, None
        if region is not None:
            self.domain.regions.pop(region.key, None)
        return region


def check_access(access: AccessFlags | int) -> int:
    """Return rights as a number; raises `VerbsError` for rights that exclude each other."""
    flags = AccessFlags(access)
    if flags & _CHANGES and not flags & AccessFlags.LOCAL_WRITE:
        raise VerbsError("remote write or atomic access needs local write access too")
    return int(flags)


def segments_of(pages: Sequence[int], size: int, iova: int, length: int) -> list[Segment]:
    """Return contiguous stretches of `length` bytes that begin in the first of `pages`, as `iova`.

    Raises `VerbsError` when the numbers do not fit.
    """
    if length < 1 or iova < 0 or iova + length > 1 << 64:
        raise VerbsError(f"a region of {length} bytes at {iova:#x} is not possible")
    offset = iova % size
    needed = -(-(offset + length) // size)
    if len(pages) != needed:
        raise VerbsError(f"{len(pages)} pages given, the region has {needed}")
    if any(page % size for page in pages):
        raise VerbsError(f"a page does not start at a multiple of {size}")
    found: list[Segment] = []
    for page in pages:
        part = min(size - offset, length)
        if found and sum(found[-1]) == page + offset:
            found[-1] = found[-1][0], found[-1][1] + part
        else:
            found.append((page + offset, part))
        offset, length = 0, length - part
    return found
