"""Regions that work requests register and invalidate, and the translation of pages to segments."""

from __future__ import annotations

from collections.abc import Sequence

from bluebridge.guest.protocols.ntrdma.engine.queue_pair import Domain
from bluebridge.guest.protocols.ntrdma.engine.regions import INVALIDATABLE, Region, Segment
from bluebridge.guest.verbs.enums import AccessFlags
from bluebridge.guest.verbs.errors import VerbsError
from bluebridge.guest.verbs.values import SendWr

MOST_PAGES = 511
_CHANGES = AccessFlags.REMOTE_WRITE | AccessFlags.REMOTE_ATOMIC


class FastRegion:
    """A region that REG_MR fills; `registered` while valid. `rkey` runs ahead of that."""

    def __init__(self, domain: Domain, index: int, max_pages: int) -> None:
        if not 1 <= max_pages <= MOST_PAGES:
            raise VerbsError(f"{max_pages} pages: 1 to {MOST_PAGES} are possible")
        self.domain = domain
        self.max_pages = max_pages
        self.registered: Region | None = None
        self._key = index << 8

    @property
    def lkey(self) -> int:
        """The key for local work requests."""
        return self._key

    @property
    def rkey(self) -> int:
        """The key that a peer needs for RDMA to the region."""
        return self._key

    def next_key(self) -> int:
        """Change the key's low byte for the next REG_MR; returns the new key."""
        self._key = self._key & ~0xFF | self._key + 1 & 0xFF
        return self._key

    def register(self, domain: Domain, request: SendWr) -> Region | None:
        """Register as REG_MR asks; returns the region, None when that is not allowed."""
        key = request.key or self._key
        if domain is not self.domain or self.registered is not None or key >> 8 != self._key >> 8:
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
