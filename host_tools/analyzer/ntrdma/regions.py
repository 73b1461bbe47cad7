"""The memory regions of one machine, by key and by the addresses of their segments."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass, field

MOST_REGIONS = 1 << 16
MOST_SEGMENTS = 1 << 18
"""Segments of one machine that are known at most, since a guest may write anything."""
_NEAR = 32
"""Segments before an address that are searched for it, since regions may overlap."""

Segment = tuple[int, int]
"""Bus address and length."""


@dataclass(slots=True, eq=False)
class Region:
    """A memory region; `address` is its start in the addresses that users of its key give."""

    owner: str
    domain: int
    key: int
    address: int
    length: int
    segments: list[Segment] = field(default_factory=list)


class Regions:
    """The memory regions that a machine has announced to its peer."""

    def __init__(self) -> None:
        self._regions: dict[tuple[int, int], Region] = {}
        self._segments: list[tuple[int, int, int, int, int]] = []
        """Start, end, offset in the region, and the region's domain and key; by their start."""

    def clear(self) -> None:
        """Forget all regions."""
        self._regions.clear()
        self._segments.clear()

    def register(self, region: Region) -> None:
        """Add a memory region with its first segments."""
        self.deregister(region.domain, region.key)
        if len(self._regions) < MOST_REGIONS:
            self._regions[region.domain, region.key] = region
            segments, region.segments = region.segments, []
            self.append(region.domain, region.key, segments)

    def append(self, domain: int, key: int, segments: Sequence[Segment]) -> None:
        """Add segments to a region."""
        region = self._regions.get((domain, key))
        if region is None or len(self._segments) + len(segments) > MOST_SEGMENTS:
            return
        offset = sum(length for _, length in region.segments)
        for start, length in segments:
            region.segments.append((start, length))
            insort(self._segments, (start, start + length, offset, domain, key))
            offset += length

    def deregister(self, domain: int, key: int) -> None:
        """Forget a region."""
        region = self._regions.pop((domain, key), None)
        if region is None:
            return
        offset = 0
        for start, length in region.segments:
            item = start, start + length, offset, domain, key
            place = bisect_right(self._segments, item) - 1
            if place >= 0 and self._segments[place] == item:
                del self._segments[place]
            offset += length

    def find(self, address: int) -> tuple[Region, int] | None:
        """Return a region that an address is in, and the offset there; None without one."""
        place = bisect_right(self._segments, (address + 1,))
        for start, end, offset, domain, key in reversed(
            self._segments[max(0, place - _NEAR) : place]
        ):
            if start <= address < end:
                return self._regions[domain, key], offset + address - start
        return None
