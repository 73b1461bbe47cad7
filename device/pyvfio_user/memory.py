"""The client's memory that the device can access."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from ._files import Closer
from ._library import Library, Pointer
from .constants import Protection

log: Final = logging.getLogger(__name__)


class SharedFile(NamedTuple):
    """The file behind a DMA region: its descriptor and an offset.

    The descriptor is closed with the region.
    """

    fd: int
    offset: int


@dataclass(eq=False, slots=True)
class DmaRegion:
    """`length` bytes of the client's memory at bus address `iova`.

    `view` is their mapping in this process, read-only when the client does not permit writes; it
    is None when the client shares no file for them, and is released (every access raises
    ValueError) before the mapping is removed. No slice of it may outlive the unmap callback: an
    access to it would then kill the process. `file` is the mapped file, None without a view.
    """

    iova: int
    length: int
    view: memoryview | None
    protection: Protection
    file: SharedFile | None = None

    @property
    def end(self) -> int:
        """The first bus address behind the region."""
        return self.iova + self.length

    def holds(self, address: int, length: int) -> bool:
        """Return whether the region holds all of `length` bytes at bus address `address`."""
        return self.iova <= address and address + length <= self.end


DmaCallback = Callable[[DmaRegion], None]


class DmaMap:
    """The DMA regions of one client; the library calls `map` and `unmap`."""

    def __init__(self, library: Library, closer: Closer) -> None:
        self._library = library
        self._closer = closer
        self._regions: dict[int, DmaRegion] = {}
        self._offered: dict[int, SharedFile] = {}
        self._unmapped: list[int] = []  # descriptors of files whose regions are being removed
        self.on_map: DmaCallback = _ignore
        self.on_unmap: DmaCallback = _ignore

    def offer(self, address: int, fd: int, offset: int) -> None:
        """Remember the file that the region at `address` will map; duplicate its descriptor.

        The library may have refused to map one that was offered for the same address before.
        """
        self._forget(self._offered.pop(address, None))
        self._offered[address] = SharedFile(os.dup(fd), offset)

    def _forget(self, file: SharedFile | None) -> None:
        if file is not None:
            self._unmapped.append(file.fd)

    def close_unmapped(self) -> None:
        """Close the files of regions that the library has removed or refused."""
        for address in list(self._offered):
            self._forget(self._offered.pop(address))
        while self._unmapped:
            self._closer.close_memory(self._unmapped.pop())

    def regions(self) -> list[DmaRegion]:
        """Return the regions that are mapped now."""
        return list(self._regions.values())

    def overlaps(self, address: int, size: int) -> bool:
        """Return whether any of `size` bytes at bus address `address` is mapped."""
        return any(
            region.iova < address + size and address < region.end
            for region in self._regions.values()
        )

    def map(self, _: Pointer, info: Pointer) -> None:
        """Add a region that the library has mapped; a callback of type vfu_dma_register_cb_t."""
        library = self._library
        iova = library.address(info.iova.iov_base)
        length = int(info.iova.iov_len)
        protection = Protection(info.prot)
        view = None
        # Touching a mapping without read and write permission would end the process.
        if info.vaddr != library.null and protection:
            view = library.memory(info.vaddr, length)
            if not protection & Protection.WRITE:
                view = view.toreadonly()
        region = DmaRegion(iova, length, view, protection, self._offered.pop(iova, None))
        self._regions[iova] = region
        self.on_map(region)

    def unmap(self, _: Pointer, info: Pointer) -> None:
        """Remove a region; a callback of type vfu_dma_unregister_cb_t.

        The library removes the mapping when this returns.
        """
        region = self._regions.pop(self._library.address(info.iova.iov_base), None)
        if region is None:
            return
        try:
            self.on_unmap(region)
        finally:
            if region.view is not None:
                release(region.view)
            self._forget(region.file)


def release(view: memoryview) -> None:
    """Release a view before its memory is unmapped; log an error if slices of it are left."""
    memory = view.obj
    view.release()
    # Two references: `memory` and getrefcount's argument. More, and a slice is still alive.
    if sys.getrefcount(memory) > 2:
        log.error("views of DMA memory are still held although the memory is being unmapped")


def _ignore(_: DmaRegion) -> None:
    pass
