"""An allocator of DMA memory over blocks contiguous for the device and in this process."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from bluebridge.guest.drivers.bus.ranges import RangeAllocator

GRANULE = 64  # no two allocations share a cache line
_ZEROS = bytes(1 << 16)


class Allocation:
    """A piece of DMA memory; see `bluebridge.guest.drivers.bus.interface.DmaMemory`."""

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
