"""Memory of a loopback device, and its memory regions with their checks."""

from __future__ import annotations

from collections.abc import Sequence

from bluebridge.guest.drivers.bus.dma_memory import Arena
from bluebridge.guest.drivers.bus.interface import DmaMemory
from bluebridge.guest.verbs import AccessFlags, SendWr, VerbsError
from tests.models.verbs.loopback.network import Pieces

BASE, SIZE = 0x1_0000_0000, 16 << 20
WHOLE_MEMORY = (1 << 64) - 1
RESERVED_KEY = 0x100
MOST_PAGES = 511
_FIRST_INDEX = 16
_REMOTE_CHANGE = AccessFlags.REMOTE_WRITE | AccessFlags.REMOTE_ATOMIC


class Refused(Exception):
    """An access that a region, or memory itself, does not allow."""


class Memory:
    """The DMA memory of one device: `SIZE` bytes from bus address `BASE` on."""

    def __init__(self) -> None:
        self._view = memoryview(bytearray(SIZE))
        self._arena = Arena()
        self._arena.add(BASE, self._view)

    def allocate(self, length: int, align: int) -> DmaMemory:
        """Zeroed memory; raises `MemoryError`."""
        memory = self._arena.allocate(length, align)
        if memory is None:
            raise MemoryError(f"{length} bytes do not fit into the loopback device's memory")
        return memory

    def piece(self, address: int, length: int) -> memoryview:
        """Bytes at a bus address. Raises `Refused`."""
        start = address - BASE
        if start < 0 or start + length > SIZE:
            raise Refused(f"there is no memory at {address:#x}")
        return self._view[start : start + length]


class Region:
    """A region: `length` bytes from `iova` on, on `pages` of `page_size` bytes."""

    def __init__(self, regions: Regions, pdn: int, index: int) -> None:
        self.pdn = pdn
        self.iova = self.length = 0
        self.pages: Sequence[int] = ()
        self.page_size = 4096
        self.access = AccessFlags(0)
        self.valid = False
        self.max_pages = 0
        """How many pages a fast registration may have; 0 for other regions."""
        self.current = self._key = index << 8
        """The key that accesses must have; `rkey` runs ahead of it until the next REG_MR."""
        self._regions = regions
        regions.table[index] = self

    @property
    def lkey(self) -> int:
        """Key for local use."""
        return self._key

    @property
    def rkey(self) -> int:
        """Key to give to a peer."""
        return self._key

    def next_key(self) -> int:
        """Change the key's low byte for the next REG_MR; the new key."""
        self._key = self._key & ~0xFF | (self._key + 1) & 0xFF
        return self._key

    def close(self) -> None:
        """Deregister; a second call does nothing."""
        self._regions.table.pop(self._key >> 8, None)

    def register(
        self, pages: Sequence[int], page_size: int, iova: int, length: int, access: int
    ) -> None:
        """Make it valid for this memory. Raises `VerbsError` when the numbers do not fit."""
        flags = AccessFlags(access)
        if flags & _REMOTE_CHANGE and not flags & AccessFlags.LOCAL_WRITE:
            raise VerbsError("remote write or atomic access needs local write access too")
        if length < 1 or iova < 0 or iova + length > 1 << 64:
            raise VerbsError(f"a region of {length} bytes at {iova:#x} is not possible")
        needed = -(-(iova % page_size + length) // page_size)
        if len(pages) != needed:
            raise VerbsError(f"{len(pages)} pages given, the region has {needed}")
        if any(page % page_size for page in pages):
            raise VerbsError(f"a page does not start at a multiple of {page_size}")
        self.pages, self.page_size, self.access = pages, page_size, flags
        self.iova, self.length, self.valid = iova, length, True

    def pieces(self, memory: Memory, address: int, length: int) -> list[memoryview]:
        """The memory behind `length` bytes at `address`. Raises `Refused`."""
        if not self.valid or address < self.iova or address + length > self.iova + self.length:
            raise Refused(f"{length} bytes at {address:#x} are not in the region")
        if not self.pages:
            return [memory.piece(address, length)]
        found, offset = [], self.iova % self.page_size + address - self.iova
        while length:
            page, start = divmod(offset, self.page_size)
            part = min(length, self.page_size - start)
            found.append(memory.piece(self.pages[page] + start, part))
            offset, length = offset + part, length - part
        return found


class Regions:
    """The regions of one device by index, which is the key without its low byte."""

    def __init__(self, memory: Memory) -> None:
        self.table: dict[int, Region] = {}
        self._memory = memory
        self._next = _FIRST_INDEX

    def new(self, pdn: int) -> Region:
        """A region that is not valid yet."""
        self._next += 1
        return Region(self, pdn, self._next)

    def over_all_memory(self, pdn: int, access: AccessFlags | int) -> Region:
        """A valid region whose IOVAs are bus addresses."""
        region = self.new(pdn)
        region.length, region.access, region.valid = WHOLE_MEMORY, AccessFlags(access), True
        return region

    def find(
        self, key: int, pdn: int, address: int, length: int, right: AccessFlags
    ) -> list[memoryview]:
        """Memory that `key` gives access to, with all rights in `right`. Raises `Refused`."""
        if key == RESERVED_KEY and not right & ~AccessFlags.LOCAL_WRITE:
            return [self._memory.piece(address, length)]
        region = self.table.get(key >> 8)
        if region is None or region.current != key or region.pdn != pdn:
            raise Refused(f"key {key:#x} is not valid here")
        if right & ~region.access:
            raise Refused(f"key {key:#x} does not grant {right!r}")
        return region.pieces(self._memory, address, length)

    def gather(
        self, pdn: int, pieces: Sequence[tuple[int, int, int]], right: AccessFlags
    ) -> list[memoryview]:
        """The memory of a list of `Sge`s. Raises `Refused`."""
        found: list[memoryview] = []
        for address, length, lkey in pieces:
            found += self.find(lkey, pdn, address, length, right) if length else []
        return found

    def fast_register(self, pdn: int, request: SendWr) -> None:
        """What REG_MR asks for. Raises `Refused`."""
        region = request.mr
        if not isinstance(region, Region) or region.pdn != pdn or region.valid:
            raise Refused("the region cannot be registered")
        key = request.key or region.rkey
        if key >> 8 != region.rkey >> 8:
            raise Refused(f"key {key:#x} is not one of the region")
        size, iova, length = request.page_size, request.iova, request.length
        try:
            region.register(request.pages, size, iova, length, request.access)
        except VerbsError as error:
            raise Refused(str(error)) from error
        region.current = key

    def invalidate(self, pdn: int, key: int) -> None:
        """End a fast registration. Raises `Refused` for any other key."""
        region = self.table.get(key >> 8)
        if region is None or region.current != key or region.pdn != pdn or not region.max_pages:
            raise Refused(f"key {key:#x} cannot be invalidated")
        if not region.valid:
            raise Refused(f"key {key:#x} is not valid")
        region.valid = False


def scatter(target: Pieces, data: bytes | memoryview) -> None:
    """Copy `data` into pieces of memory that have room for it."""
    view = memoryview(data)
    for piece in target:
        count = min(len(piece), len(view))
        piece[:count] = view[:count]
        view = view[count:]
