"""Own memory of transports: by address, and out of one piece."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable

from bluebridge.guest.drivers.bus.dma_memory import Arena
from bluebridge.guest.drivers.bus.interface import DmaMemory

_UNUSED = 4096
"""The bytes at the beginning of a piece that nobody gets: no address is 0."""


class Mapped:
    """A piece of memory that is found by its address until it is freed."""

    def __init__(self, memory: DmaMemory, forget: Callable[[int], None]) -> None:
        self.address = memory.address
        self.view = memory.view
        self._memory = memory
        self._forget = forget

    def free(self) -> None:
        """Give the memory back."""
        self._forget(self.address)
        self._memory.free()


class Mappings:
    """Pieces of memory, found by address."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._views: dict[int, memoryview] = {}

    def add(self, memory: DmaMemory) -> Mapped:
        """Remember a piece."""
        insort(self._starts, memory.address)
        self._views[memory.address] = memory.view
        return Mapped(memory, self._forget)

    def _forget(self, address: int) -> None:
        if self._views.pop(address, None) is not None:
            self._starts.remove(address)

    def view(self, address: int, length: int) -> memoryview | None:
        """The bytes at an address; None when they are not within one piece."""
        place = bisect_right(self._starts, address) - 1
        if place < 0:
            return None
        start = self._starts[place]
        view = self._views[start]
        offset = address - start
        return view[offset : offset + length] if offset + length <= len(view) else None


class Shown:
    """A piece of memory that is all that a peer reaches; its addresses begin at `origin`."""

    def __init__(self, piece: DmaMemory, origin: int) -> None:
        self.address, self.size = piece.address, len(piece.view)
        self._arena = Arena()
        self._arena.add(origin + _UNUSED, piece.view[_UNUSED:])

    def allocate(self, length: int, align: int) -> DmaMemory:
        """Take contiguous zeroed memory out of the piece. Raises `MemoryError`."""
        memory = self._arena.allocate(length, align)
        if memory is None:
            raise MemoryError(
                f"no {length} contiguous bytes are left of the {self.size:#x} that the window shows"
            )
        return memory
