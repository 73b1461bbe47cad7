"""One memory region: what its MPT entry says, and where its bytes are."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from device.pci.bus import Run


def pages_of(start: int, length: int, page_shift: int) -> int:
    """How many pages of `1 << page_shift` bytes the addresses `start`..`start+length` touch."""
    return ((start + length - 1) >> page_shift) - (start >> page_shift) + 1 if length else 0


@dataclass(slots=True)
class MemoryRegion:
    """One entry of the MPT. `entry` is the context as the guest wrote it.

    `key` is in hardware form. `starts` and `runs` are the translation with physical neighbours
    joined: run i begins `starts[i]` bytes behind the page that holds `start`.
    """

    index: int
    entry: bytearray
    key: int
    pd: int
    rights: int
    start: int
    length: int
    page_shift: int
    physical: bool
    fast: bool
    may_invalidate: bool
    free: bool
    mtt_addr: int
    max_pages: int
    software: bool = False
    starts: list[int] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)

    def translate(self, va: int, length: int) -> list[Run]:
        """Guest-physical runs of a range that was checked to lie inside."""
        if self.physical:
            return [(va, length)]
        offset = va - (self.start >> self.page_shift << self.page_shift)
        index = bisect_right(self.starts, offset) - 1
        inside = offset - self.starts[index]
        address, available = self.runs[index]
        if inside + length <= available:
            return [(address + inside, length)]
        result: list[Run] = []
        while length:
            address, available = self.runs[index]
            part = min(available - inside, length)
            result.append((address + inside, part))
            length -= part
            inside = 0
            index += 1
        return result

    def set_pages(self, pages: Sequence[int], page_shift: int) -> None:
        """Take a translation over: one address per page of `1 << page_shift` bytes."""
        size = 1 << page_shift
        starts: list[int] = []
        runs: list[Run] = []
        expected = -1
        first = begin = 0
        for index, page in enumerate(pages):
            page &= -size
            if page != expected:
                if index:
                    runs.append((first, index * size - begin))
                first, begin = page, index * size
                starts.append(begin)
            expected = page + size
        if pages:
            runs.append((first, len(pages) * size - begin))
        self.page_shift, self.starts, self.runs = page_shift, starts, runs
