"""A BAR that this process has mapped: single loads and stores of a width, and runs of them.

`memoryview` items of one, two, four or eight bytes are single accesses, where slices and `struct`
would let the C library choose.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Protocol

WIDEST = 8


class Mmio(Protocol):
    """Little-endian accesses at an offset, which must be a multiple of the access's width."""

    def load(self, offset: int, width: int) -> int:
        """Load 1, 2, 4 or 8 bytes in a single access."""

    def store(self, offset: int, width: int, value: int) -> None:
        """Store 1, 2, 4 or 8 bytes in a single access."""


class Mapped:
    """A mapping of a whole BAR."""

    def __init__(self, mapped: mmap.mmap) -> None:
        self._mapped = mapped
        view = memoryview(mapped).cast("B")
        self.views = {1: view, 2: view.cast("H"), 4: view.cast("I"), 8: view.cast("Q")}
        """The views of the mapping by the width of an access in bytes."""

    def close(self) -> None:
        """Unmap the BAR: every later access raises `ValueError`."""
        for view in self.views.values():
            view.release()
        self._mapped.close()

    def load(self, offset: int, width: int) -> int:
        """Load `width` bytes in a single access."""
        return int(self.views[width][offset // width])

    def store(self, offset: int, width: int, value: int) -> None:
        """Store `width` bytes in a single access."""
        self.views[width][offset // width] = value


def accesses(offset: int, length: int) -> Iterator[tuple[int, int]]:
    """Yield offset and width of the widest accesses that cover `length` bytes, ascending."""
    end = offset + length
    while offset < end:
        width = WIDEST
        while width > end - offset or offset % width:
            width //= 2
        yield offset, width
        offset += width


def load_bytes(mmio: Mmio, offset: int, length: int) -> bytes:
    """Load `length` bytes by accesses as wide as their alignment allows."""
    load = mmio.load
    found = (load(at, width).to_bytes(width, "little") for at, width in accesses(offset, length))
    return b"".join(found)


def store_bytes(mmio: Mmio, offset: int, data: bytes | bytearray | memoryview) -> None:
    """Store bytes by accesses as wide as their alignment allows, in ascending order."""
    store = mmio.store
    for at, width in accesses(offset, len(data)):
        part = data[at - offset : at - offset + width]
        store(at, width, int.from_bytes(part, "little"))
