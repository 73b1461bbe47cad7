"""DMA memory: first-fit ranges, an allocator over contiguous blocks, hugepages of known addresses.

No-IOMMU VFIO gives the device physical addresses. Hugepages do not move and their physical
address stands in /proc/self/pagemap (Documentation/admin-guide/mm/pagemap.rst); root only.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

GRANULE = 64  # no two allocations share a cache line
_ZEROS = bytes(1 << 16)

HUGE = 2 << 20
PAGE = 4096
_PRESENT = 1 << 63
_MAP_NORESERVE = 0x4000  # named by the mmap module from Python 3.13 on only
_FRAME_MASK = (1 << 55) - 1
_FREE = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")


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


class Allocation:
    """A piece of DMA memory; see `bluebridge.guest.bus.interface.DmaMemory`."""

    __slots__ = ("_arena", "_block", "address", "view")

    def __init__(self, arena: Arena, block: _Block, address: int, view: memoryview) -> None:
        self.address = address
        self.view = view
        self._arena: Arena | None = arena
        self._block = block

    def free(self) -> None:
        """Give the memory back; a second call does nothing."""
        arena, self._arena = self._arena, None
        if arena is not None:
            arena.release(self._block, self.address, len(self.view))


@dataclass(slots=True)
class _Block:
    address: int
    view: memoryview
    ranges: RangeAllocator


class Arena:
    """Blocks of DMA memory, and the ranges of them that are in use."""

    def __init__(self) -> None:
        self.blocks: list[_Block] = []
        self._lock = threading.Lock()

    def add(self, address: int, view: memoryview) -> None:
        """Put a block at the arena's disposal: `view` lies at DMA address `address`."""
        with self._lock:
            self.blocks.append(_Block(address, view, RangeAllocator(address, len(view), GRANULE)))

    def allocate(self, length: int, align: int) -> Allocation | None:
        """Return `length` zeroed bytes at a multiple of `align`, None when there are none."""
        with self._lock:
            for block in self.blocks:
                address = block.ranges.allocate(length, max(align, GRANULE))
                if address is not None:
                    break
            else:
                return None
        start = address - block.address
        view = block.view[start : start + length]
        for offset in range(0, length, len(_ZEROS)):
            piece = view[offset : offset + len(_ZEROS)]
            piece[:] = _ZEROS[: len(piece)]
        return Allocation(self, block, address, view)

    def release(self, block: _Block, address: int, length: int) -> None:
        """Take the memory of a freed allocation back into its block."""
        with self._lock:
            block.ranges.free(address, length)

    @property
    def available(self) -> int:
        """Return the number of free bytes."""
        with self._lock:
            return sum(block.ranges.available for block in self.blocks)


def free_hugepages() -> int:
    """Return the number of 2 MiB pages that the kernel has free; 0 when it knows none."""
    try:
        return int(_FREE.read_text())
    except OSError:
        return 0


class HugepageFile:
    """`count` hugepages mapped in one piece; `addresses` are their physical addresses.

    Without `sources` the kernel chooses the pages. With `sources`, each page is the one that the
    source of the same index gives up: the kernel hands out the page freed last, and that is the
    only way to choose a page's position without an address to map it at.
    """

    def __init__(self, count: int, sources: Sequence[HugepageFile] = ()) -> None:
        name = f"bluebridge-{os.getpid()}-{id(self):x}"
        fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_HUGETLB | os.MFD_HUGE_2MB)
        try:
            os.truncate(fd, count * HUGE)
            # The sources still hold the pages, so none can be reserved at this moment.
            flags = mmap.MAP_SHARED | (_MAP_NORESERVE if sources else 0)
            self._map = mmap.mmap(fd, count * HUGE, flags)
        finally:
            os.close(fd)
        self.view = memoryview(self._map)
        with open("/proc/self/maps", encoding="utf-8") as maps:
            start = parse_maps(maps, name)
        for index in range(count):
            if sources:
                sources[index].close()
            self.view[index * HUGE] = 0
        self.addresses = [_physical(start + index * HUGE) for index in range(count)]

    def blocks(self) -> Iterator[tuple[int, memoryview]]:
        """Yield physical address and view of each physically contiguous stretch."""
        for first, last in contiguous(self.addresses):
            yield self.addresses[first], self.view[first * HUGE : last * HUGE]

    def close(self) -> None:
        """Unmap the pages; with views of them in use, they stay mapped until the process ends."""
        self.view.release()
        self._map.close()


def sorted_hugepages(count: int) -> HugepageFile:
    """Return `count` hugepages in the order of their physical addresses."""
    singles = [HugepageFile(1) for _ in range(count)]
    singles.sort(key=lambda single: single.addresses[0])
    return HugepageFile(count, singles)


def contiguous(addresses: list[int]) -> Iterator[tuple[int, int]]:
    """Yield index ranges `first, last` (exclusive) of pages that follow one another in memory."""
    first = 0
    for index in range(1, len(addresses) + 1):
        if index == len(addresses) or addresses[index] != addresses[index - 1] + HUGE:
            yield first, index
            first = index


def parse_maps(lines: Iterable[str], name: str) -> int:
    """Return the start address of the first mapping of `name`; `OSError` when there is none."""
    for line in lines:
        if name in line:
            return int(line.split("-", 1)[0], 16)
    raise OSError(f"the mapping of {name} is not to be found")


def _physical(virtual: int) -> int:
    """Return the physical address behind a virtual one."""
    fd = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.pread(fd, 8, virtual // PAGE * 8)
    finally:
        os.close(fd)
    (entry,) = struct.unpack("<Q", data)
    frame = entry & _FRAME_MASK
    if not entry & _PRESENT or not frame:
        raise PermissionError("no physical address in /proc/self/pagemap: this needs root")
    return int(frame * PAGE + virtual % PAGE)
