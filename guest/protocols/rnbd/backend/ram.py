"""A RAM disk of anonymous memory: pages never written, or discarded, cost nothing."""

from __future__ import annotations

import mmap

from bluebridge.device.layout.net.rnbd import SECTOR
from bluebridge.guest.protocols.rnbd.engine.messages import Geometry

ALL_SECTORS = 0xFFFFFFFF // SECTOR
"""The most sectors that one request without data can name: its length has 32 bits."""


class RamBackend:
    """A RAM disk of `size` zero bytes.

    Raises `ValueError` if they are not whole sectors, `OSError` without memory. There is no cache
    that could be lost alone, so flushes do nothing and are not asked for.
    """

    writable = True
    place = ""

    def __init__(self, size: int) -> None:
        if size < SECTOR or size % SECTOR:
            raise ValueError(f"{size} bytes are no sectors of {SECTOR}")
        self._memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._view = memoryview(self._memory)
        self.geometry = Geometry(
            sectors=size // SECTOR,
            max_hw_sectors=ALL_SECTORS,
            max_write_zeroes_sectors=ALL_SECTORS,
            max_discard_sectors=ALL_SECTORS,
            discard_granularity=mmap.PAGESIZE,
            physical_block_size=mmap.PAGESIZE,
            logical_block_size=SECTOR,
            max_segments=0xFFFF,
        )

    def read(self, offset: int, into: memoryview) -> None:
        """Fill all of `into`."""
        into[:] = self._view[offset : offset + len(into)]

    def write(self, offset: int, data: memoryview, *, fua: bool) -> None:
        """Store all of `data`."""
        self._view[offset : offset + len(data)] = data

    def flush(self) -> None:
        """Do nothing, since data are in no second place."""

    def discard(self, offset: int, length: int) -> None:
        """Free whole pages of the range."""
        self._zero(offset, length)

    def write_zeroes(self, offset: int, length: int, *, fua: bool) -> None:
        """Zero a range, of which whole pages are freed and read as zeroes."""
        self._zero(offset, length)

    def _zero(self, offset: int, length: int) -> None:
        end = offset + length
        first = min(-(-offset // mmap.PAGESIZE) * mmap.PAGESIZE, end)
        last = max(end // mmap.PAGESIZE * mmap.PAGESIZE, first)
        if last > first:
            self._memory.madvise(mmap.MADV_DONTNEED, first, last - first)
        self._view[offset:first] = bytes(first - offset)
        self._view[last:end] = bytes(end - last)
