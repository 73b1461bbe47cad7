"""The bus of a guest without a guest: `guest.drivers.bus.interface.Bus` over a vfio-user socket.

DMA memory is a memfd mapped for the server, as QEMU shares guest RAM; interrupts are eventfds the
server signals; register writes are posted, as QEMU's are.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import threading
from pathlib import Path

from bluebridge.guest.drivers.bus.dma_memory import Arena
from bluebridge.guest.drivers.bus.interface import DmaMemory
from bluebridge.host_tools.vfio_user.client import Client, sealed_memory
from bluebridge.host_tools.vfio_user.connection import CONFIG, MSIX

RAM_BASE = 0x1_0000_0000
RAM_SIZE = 64 << 20
COMMAND = 4
MEMORY_AND_MASTER = 6


class WireBus:
    """One function of a running server; `client` is for requests that drivers do not make."""

    def __init__(self, path: Path, size: int = RAM_SIZE) -> None:
        self.client = Client(path)
        self._lock = threading.Lock()
        self._fds: list[int] = []
        self._arena = Arena()
        self.ram = self._share(size)
        self._arena.add(RAM_BASE, self.ram)
        self._enable()

    def read32(self, bar: int, offset: int) -> int:
        """Load a big-endian 32-bit register; all ones when the server is gone, as with QEMU."""
        with self._lock:
            try:
                return int.from_bytes(self.client.read(bar, offset, 4), "big")
            except OSError:
                return 0xFFFFFFFF

    def write32(self, bar: int, offset: int, value: int) -> None:
        """Store a big-endian 32-bit register; ignored when the server is gone."""
        with self._lock, contextlib.suppress(OSError):
            self.client.write(bar, offset, value.to_bytes(4, "big"), posted=True)

    def write64(self, bar: int, offset: int, value: int) -> None:
        """Store a big-endian 64-bit register; ignored when the server is gone."""
        with self._lock, contextlib.suppress(OSError):
            self.client.write(bar, offset, value.to_bytes(8, "big"), posted=True)

    def load_config(self, offset: int, width: int) -> int:
        """Load a register of config space; all ones when the server is gone."""
        with self._lock:
            try:
                return int.from_bytes(self.client.read(CONFIG, offset, width), "little")
            except OSError:
                return (1 << 8 * width) - 1

    def allocate(self, length: int, align: int = 4096) -> DmaMemory:
        """Return zeroed DMA memory."""
        memory = self._arena.allocate(length, align)
        if memory is None:
            raise MemoryError(f"{length} bytes do not fit into the test's DMA memory")
        return memory

    def enable_interrupts(self, vectors: int) -> list[int]:
        self._drop_interrupts()
        self._fds = [os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) for _ in range(vectors)]
        with self._lock:
            self.client.enable_irqs(MSIX, self._fds)
        return list(self._fds)

    def reset(self) -> None:
        """Reset the device (DEVICE_RESET) and restore the command register, as the kernel does."""
        with self._lock:
            self.client.reset()
            self._enable()

    def settle(self) -> None:
        """Return after the server has seen every register write sent so far."""
        with self._lock:
            self.client.info()

    def available(self) -> int:
        """The bytes of DMA memory that are free."""
        return self._arena.available

    def abandon(self) -> None:
        """Do nothing: no call here waits for a dead server."""

    def close(self) -> None:
        """Close the connection and the eventfds."""
        self.client.close()
        self._drop_interrupts()

    def _enable(self) -> None:
        self.client.write(CONFIG, COMMAND, struct.pack("<H", MEMORY_AND_MASTER))

    def _drop_interrupts(self) -> None:
        for fd in self._fds:
            os.close(fd)
        self._fds = []

    def _share(self, size: int) -> memoryview:
        fd = sealed_memory(size)
        try:
            self.client.dma_map(RAM_BASE, size, fd)
            return memoryview(mmap.mmap(fd, size))
        finally:
            os.close(fd)
