"""The interface of a PCI function's bus, which guests implement with VFIO and tests with others.

`memoryview` items of one, two, four or eight bytes are single accesses, where slices and `struct`
would let the C library choose: so runs of bytes are loaded and stored item by item.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

RESET_SECONDS = 10.0
"""The seconds for which a function that is being reset may answer nothing; for Linux 60
(drivers/pci/pci.c: PCIE_RESET_READY_POLL_MS).
"""

WIDEST = 8


class DmaMemory(Protocol):
    """Memory the device can reach: `address` for the device, `view` for this process.

    `view` covers physically contiguous memory, is zeroed at first, and stays valid until `free`.
    """

    address: int
    view: memoryview

    def free(self) -> None:
        """Give the memory back."""


class Owned(Protocol):
    """A PCI function taken over by a user-space driver, whatever its registers are."""

    def load_config(self, offset: int, width: int) -> int:
        """Load a register of config space, little-endian, `width` bytes wide."""

    def allocate(self, length: int, align: int = 4096) -> DmaMemory:
        """Allocate physically contiguous, zeroed DMA memory; raises `MemoryError`."""

    def enable_interrupts(self, vectors: int) -> list[int]:
        """Set up MSI-X vectors 0..vectors-1; returns one readable eventfd for each."""

    def close(self) -> None:
        """Disable interrupts, free the DMA memory and give the device back."""


class Bus(Owned, Protocol):
    """A PCI function with big-endian registers."""

    def read32(self, bar: int, offset: int) -> int:
        """Load 32 bits that are big-endian on the bus; returns them as an integer."""

    def write32(self, bar: int, offset: int, value: int) -> None:
        """Store 32 bits, big-endian on the bus."""

    def write64(self, bar: int, offset: int, value: int) -> None:
        """Store 64 bits, big-endian on the bus."""

    def reset(self) -> None:
        """Reset the function."""

    def enable_master(self) -> None:
        """Let the function reach memory, and its registers be reached: a reset ends both."""

    def abandon(self) -> None:
        """Take note that the device is gone, so that `close` does not wait for it."""


class Function(Owned, Protocol):
    """A PCI function with little-endian registers.

    Memory that one function allocates may be given to every other one of the machine: without an
    IOMMU all of them see the same addresses.
    """

    def load(self, bar: int, offset: int, width: int) -> int:
        """Load `width` bytes (1, 2, 4 or 8) at an offset that is a multiple of `width`."""

    def store(self, bar: int, offset: int, width: int, value: int) -> None:
        """Store `width` bytes (1, 2, 4 or 8) at an offset that is a multiple of `width`."""

    def load_bytes(self, bar: int, offset: int, length: int) -> bytes:
        """Load `length` bytes by accesses as wide as their alignment allows."""

    def store_bytes(self, bar: int, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Store bytes by accesses as wide as their alignment allows, in ascending order."""

    def mapping(self, bar: int) -> memoryview | None:
        """Return a BAR that is backed by memory as bytes, None where it cannot be mapped."""

    def bar(self, index: int) -> tuple[int, int]:
        """Return bus address and size of a BAR."""


class Mmio(Protocol):
    """Little-endian accesses at an offset, which must be a multiple of the access's width."""

    def load(self, offset: int, width: int) -> int:
        """Load 1, 2, 4 or 8 bytes in a single access."""

    def store(self, offset: int, width: int, value: int) -> None:
        """Store 1, 2, 4 or 8 bytes in a single access."""


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
