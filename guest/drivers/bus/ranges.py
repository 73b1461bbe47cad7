"""First-fit allocation of ranges of integers: DMA memory and MTT entries are handed out with it."""

from __future__ import annotations

from bisect import bisect_left


class RangeAllocator:
    """Free ranges of `start … start+size-1`, kept sorted and joined.

    Lengths are rounded up to `granule`; ranges start at multiples of the alignment asked for.
    """

    def __init__(self, start: int, size: int, granule: int = 1) -> None:
        self._granule = granule
        self._free: list[tuple[int, int]] = [(start, size)]

    @property
    def available(self) -> int:
        """Return the number of units that are free in all."""
        return sum(length for _, length in self._free)

    def allocate(self, length: int, align: int = 1) -> int | None:
        """Return the start of a free range of `length`, or None when there is none."""
        length = self._round(length)
        for place, (start, size) in enumerate(self._free):
            first = -(-start // align) * align
            if first + length > start + size:
                continue
            rest = [(start, first - start), (first + length, start + size - first - length)]
            self._free[place : place + 1] = [item for item in rest if item[1]]
            return first
        return None

    def free(self, start: int, length: int) -> None:
        """Give back a range that `allocate` returned for the same `length`."""
        length = self._round(length)
        place = bisect_left(self._free, (start, 0))
        self._free.insert(place, (start, length))
        self._join(place)
        if place:
            self._join(place - 1)

    def _round(self, length: int) -> int:
        return max(self._granule, -(-length // self._granule) * self._granule)

    def _join(self, place: int) -> None:
        if place + 1 >= len(self._free):
            return
        start, length = self._free[place]
        follow, more = self._free[place + 1]
        if start + length == follow:
            self._free[place : place + 2] = [(start, length + more)]
