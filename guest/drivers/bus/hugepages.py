"""Hugepages as DMA memory: a file of 2 MiB pages whose physical addresses are known.

No-IOMMU VFIO gives the device physical addresses. Hugepages do not move and their physical
address stands in /proc/self/pagemap (Documentation/admin-guide/mm/pagemap.rst); root only.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

HUGE = 2 << 20
PAGE = 4096
_PRESENT = 1 << 63
_MAP_NORESERVE = 0x4000  # named by the mmap module from Python 3.13 on only
_FRAME_MASK = (1 << 55) - 1
_FREE = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")


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
        start = _mapping_of(name)
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


def _mapping_of(name: str) -> int:
    """Return the virtual address at which this process has mapped the file."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return parse_maps(maps, name)


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
