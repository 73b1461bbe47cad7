"""A map of page ranges to guest-physical memory, whose cost is per range, not per page."""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class PageRanges:
    """Disjoint ranges `[start, end)` of one address space, sorted, each with its target address.

    Addresses are in bytes. The last mapping wins; what it covers of earlier ones is gone.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._targets: list[int] = []

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def total(self) -> int:
        """The number of bytes that are mapped."""
        return sum(self._ends) - sum(self._starts)

    def clear(self) -> None:
        """Remove all ranges."""
        self._starts.clear()
        self._ends.clear()
        self._targets.clear()

    def map(self, start: int, length: int, target: int) -> None:
        """Map `length` bytes from `start` to `target`, joined with an adjacent range in front."""
        self.unmap(start, length)
        index = bisect_left(self._starts, start)
        if index and self._ends[index - 1] == start:
            before = self._targets[index - 1] + start - self._starts[index - 1]
            if before == target:
                self._ends[index - 1] = start + length
                return
        self._starts.insert(index, start)
        self._ends.insert(index, start + length)
        self._targets.insert(index, target)

    def unmap(self, start: int, length: int) -> None:
        """Unmap `length` bytes from `start` on; bytes that are not mapped are ignored."""
        end = start + length
        first = bisect_right(self._ends, start)
        last = bisect_left(self._starts, end)
        if first >= last or not length:
            return
        kept: list[tuple[int, int, int]] = []
        if self._starts[first] < start:
            kept.append((self._starts[first], start, self._targets[first]))
        if self._ends[last - 1] > end:
            target = self._targets[last - 1] + end - self._starts[last - 1]
            kept.append((end, self._ends[last - 1], target))
        self._starts[first:last] = [piece[0] for piece in kept]
        self._ends[first:last] = [piece[1] for piece in kept]
        self._targets[first:last] = [piece[2] for piece in kept]

    def find(self, address: int) -> tuple[int, int] | None:
        """Return the target of `address` and the bytes mapped from there on; None if unmapped."""
        index = bisect_right(self._starts, address) - 1
        if index < 0 or address >= self._ends[index]:
            return None
        return (self._targets[index] + address - self._starts[index], self._ends[index] - address)
