"""The interface of a bus: in a guest it is VFIO, the wire tests bring another one."""

from __future__ import annotations

from typing import Protocol


class DmaMemory(Protocol):
    """Memory the device can reach: `address` as the device sees it, `view` as we see it.

    `view` covers physically contiguous memory, is zeroed at first, and stays valid until `free`.
    """

    address: int
    view: memoryview

    def free(self) -> None:
        """Give the memory back."""


class Bus(Protocol):
    """A PCI function taken over by a user-space driver."""

    def read32(self, bar: int, offset: int) -> int:
        """One 32-bit load; the value is big-endian on the bus, converted to an integer here."""

    def write32(self, bar: int, offset: int, value: int) -> None:
        """One 32-bit store, big-endian on the bus."""

    def write64(self, bar: int, offset: int, value: int) -> None:
        """One 64-bit store, big-endian on the bus."""

    def load_config(self, offset: int, width: int) -> int:
        """A register of config space, little-endian."""

    def allocate(self, length: int, align: int = 4096) -> DmaMemory:
        """Physically contiguous, zeroed DMA memory; raises `MemoryError`."""

    def enable_interrupts(self, vectors: int) -> list[int]:
        """Set up MSI-X vectors 0..vectors-1; returns one readable eventfd for each."""

    def reset(self) -> None:
        """Reset the function."""

    def abandon(self) -> None:
        """Take note that the device is gone, so that `close` does not wait for it."""

    def close(self) -> None:
        """Give the device back: interrupts off, memory freed."""


class Function(Protocol):
    """A PCI function with little-endian registers, taken over by a user-space driver.

    Memory that one function allocates may be given to every other one of the machine: without an
    IOMMU all of them see the same addresses.
    """

    def load(self, bar: int, offset: int, width: int) -> int:
        """One load of `width` bytes (1, 2, 4 or 8) at a multiple of it."""

    def store(self, bar: int, offset: int, width: int, value: int) -> None:
        """One store of `width` bytes at a multiple of it."""

    def load_bytes(self, bar: int, offset: int, length: int) -> bytes:
        """Bytes by the widest loads there are."""

    def store_bytes(self, bar: int, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Bytes by the widest stores there are, in ascending order."""

    def mapping(self, bar: int) -> memoryview | None:
        """A BAR as bytes, for what is memory behind it; None where it cannot be mapped."""

    def load_config(self, offset: int, width: int) -> int:
        """A register of config space."""

    def bar(self, index: int) -> tuple[int, int]:
        """Bus address and size of a BAR."""

    def allocate(self, length: int, align: int = 4096) -> DmaMemory:
        """Physically contiguous, zeroed DMA memory; raises `MemoryError`."""

    def enable_interrupts(self, vectors: int) -> list[int]:
        """Set up MSI-X vectors 0..vectors-1; returns one readable eventfd for each."""

    def close(self) -> None:
        """Give the device back: interrupts off, memory freed."""
