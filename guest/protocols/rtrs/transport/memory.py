"""Slots of a client and chunks of a server: DMA memory that all paths of a session share.

All devices use memory of one of them (`Interfaces.allocator`), so it is allocated once, and
registered by each path on its own device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bluebridge.guest.bus.interface import DmaMemory
from bluebridge.guest.protocols.rtrs.engine.actions import SLOTS, Region
from bluebridge.guest.protocols.rtrs.transport.interfaces import Interface, Interfaces
from bluebridge.guest.verbs import FastRegistration

BLOCK = 1 << 21
"""The bytes allocated at once: a hugepage, beyond which memory need not be contiguous."""

InterfaceOf = Callable[[int], Interface]
"""The type of a call that returns the interface of a connection."""


class Pieces:
    """`count` pieces of DMA memory of `size` bytes, each contiguous.

    They lie at multiples of `stride`, a power of two.
    """

    def __init__(self, interfaces: Interfaces, count: int, size: int) -> None:
        self.size = size
        self.addresses: list[int] = []
        self.views: list[memoryview] = []
        self._blocks: list[DmaMemory] = []
        self.stride = 1 << (size - 1).bit_length()
        per_block = max(1, BLOCK // self.stride)
        device = interfaces.allocator
        try:
            while len(self.views) < count:
                wanted = min(per_block, count - len(self.views))
                block = device.allocate(wanted * self.stride, self.stride)
                self._blocks.append(block)
                for start in range(0, wanted * self.stride, self.stride):
                    self.addresses.append(block.address + start)
                    self.views.append(block.view[start : start + self.size])
        except MemoryError:
            self.free()
            raise

    def free(self) -> None:
        """Free the memory; a second call does nothing."""
        for view in self.views:
            view.release()
        for block in self._blocks:
            block.free()
        self.views, self._blocks = [], []


@dataclass(frozen=True, slots=True)
class Mapping:
    """A fast registration, and the pieces that it covers one after another from `iova` on."""

    registration: FastRegistration
    iova: int
    pages: Sequence[int]
    page_size: int


class Mappings:
    """The fast registrations of each path, by the path's number."""

    def __init__(self) -> None:
        self._paths: dict[int, list[Mapping]] = {}

    def map(self, path: int, interface: Interface, pieces: Pieces, together: int) -> list[Region]:
        """Make a registration for each `together` pieces; raises `MemoryError`."""
        mappings = self._paths.setdefault(path, [])
        regions = []
        for first in range(0, len(pieces.addresses), together):
            pages = pieces.addresses[first : first + together]
            registration = interface.pd.alloc_fast_reg_mr(len(pages))
            mappings.append(Mapping(registration, pages[0], pages, pieces.stride))
            regions.append(Region(pages[0], len(pages) * pieces.size, registration.rkey))
        return regions

    def mapping(self, path: int, index: int) -> Mapping:
        """Return the mapping of a path with number `index`."""
        return self._paths[path][index]

    def unmap(self, path: int) -> None:
        """Free the registrations of a path; a second call does nothing."""
        for mapping in self._paths.pop(path, []):
            mapping.registration.close()


class Chunks:
    """The `Memory` of a server, with the chunks of each session."""

    def __init__(self, interfaces: Interfaces) -> None:
        self.mappings = Mappings()
        self.interface_of: InterfaceOf = _nowhere
        self._interfaces = interfaces
        self._sessions: dict[int, Pieces] = {}

    def create(self, session: int, count: int, size: int, header_size: int = 0) -> None:
        self._sessions[session] = Pieces(self._interfaces, count, size + header_size)

    def free(self, session: int) -> None:
        pieces = self._sessions.pop(session, None)
        if pieces is not None:
            pieces.free()

    def read(self, session: int, piece: int, offset: int, length: int) -> bytes:
        return bytes(self._sessions[session].views[piece][offset : offset + length])

    def view(self, session: int, chunk: int) -> memoryview:
        """Return the memory of a chunk."""
        return self._sessions[session].views[chunk]

    def address(self, session: int, chunk: int) -> int:
        """Return the DMA address of a chunk."""
        return self._sessions[session].addresses[chunk]

    def map(self, path: int, connection: int, session: int, per_region: int) -> list[Region]:
        interface = self.interface_of(connection)
        return self.mappings.map(path, interface, self._sessions[session], per_region)

    def unmap(self, path: int) -> None:
        self.mappings.unmap(path)


class Slots(Chunks):
    """The `Memory` of a client: slots with room for a request's data and its header."""

    def __init__(self, interfaces: Interfaces) -> None:
        super().__init__(interfaces)
        self.data_size = 0

    def create(self, session: int, count: int, size: int, header_size: int = 0) -> None:
        super().create(session, count, size, header_size)
        self.data_size = size

    def data(self, slot: int) -> memoryview:
        """Return the data of a slot."""
        return self.view(SLOTS, slot)[: self.data_size]

    def put_header(self, slot: int, header: bytes) -> None:
        """Store a request's header into its slot, `data_size` bytes behind the data's start."""
        start = self.data_size
        self.view(SLOTS, slot)[start : start + len(header)] = header


def _nowhere(connection: int) -> Interface:
    raise LookupError(f"connection {connection} has no interface yet")
