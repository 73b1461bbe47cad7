"""A BAR as this process has it mapped: single loads and stores of a width, and runs of them.

`memoryview` items of one, two, four or eight bytes are single accesses, where slices and `struct`
would let the C library choose.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Protocol

WIDEST = 8


class Mmio(Protocol):
    """Accesses at an offset, little-endian; offsets are multiples of the width."""

    def load(self, offset: int, width: int) -> int:
        """One load of 1, 2, 4 or 8 bytes."""

    def store(self, offset: int, width: int, value: int) -> None:
        """One store of 1, 2, 4 or 8 bytes."""


class Mapped:
    """A mapping of a whole BAR."""

    def __init__(self, mapped: mmap.mmap) -> None:
        self._mapped = mapped
        view = memoryview(mapped).cast("B")
        self.views = {1: view, 2: view.cast("H"), 4: view.cast("I"), 8: view.cast("Q")}
        """The views of the mapping by the width of an access in bytes."""

    def close(self) -> None:
        """Unmap: every later access raises ValueError."""
        for view in self.views.values():
            view.release()
        self._mapped.close()

    def load(self, offset: int, width: int) -> int:
        """One load."""
        return int(self.views[width][offset // width])

    def store(self, offset: int, width: int, value: int) -> None:
        """One store."""
        self.views[width][offset // width] = value


def accesses(offset: int, length: int) -> Iterator[tuple[int, int]]:
    """Offset and width of the widest accesses that cover `length` bytes, in ascending order."""
    end = offset + length
    while offset < end:
        width = WIDEST
        while width > end - offset or offset % width:
            width //= 2
        yield offset, width
        offset += width


def load_bytes(mmio: Mmio, offset: int, length: int) -> bytes:
    """`length` bytes by the widest loads there are."""
    load = mmio.load
    found = (load(at, width).to_bytes(width, "little") for at, width in accesses(offset, length))
    return b"".join(found)


def store_bytes(mmio: Mmio, offset: int, data: bytes | bytearray | memoryview) -> None:
    """Bytes by the widest stores there are, in ascending order."""
    store = mmio.store
    for at, width in accesses(offset, len(data)):
        part = data[at - offset : at - offset + width]
        store(at, width, int.from_bytes(part, "little"))
