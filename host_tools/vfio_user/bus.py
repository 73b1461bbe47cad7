"""A PCI function of a device server as a driver has it: registers, interrupts, DMA memory.

Memory is a memfd that the server maps, as QEMU shares guest RAM; interrupts are eventfds that the
server signals; stores into registers are posted, as QEMU's are.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
from collections.abc import Mapping
from pathlib import Path

from bluebridge.device.layout.pci import HEADER
from bluebridge.guest.bus.dma_memory import Arena
from bluebridge.guest.bus.interface import DmaMemory
from bluebridge.host_tools.vfio_user.client import Client, sealed_memory
from bluebridge.host_tools.vfio_user.connection import CONFIG, MSIX

RAM_BASE = 0x1_0000_0000
RAM_SIZE = 64 << 20
_MEMORY_AND_MASTER = (6).to_bytes(2, "little")
_COMMAND = HEADER.field("command").offset
_BARS = [HEADER.field(f"bar{index}").offset for index in range(6)]


class Ram:
    """The memory of one machine, which all of its functions see at bus address `base`."""

    def __init__(self, size: int = RAM_SIZE, base: int = RAM_BASE) -> None:
        self.fd = sealed_memory(size)
        self.base, self.size = base, size
        self.view = memoryview(mmap.mmap(self.fd, size))
        self.arena = Arena()
        self.arena.add(base, self.view)

    def close(self) -> None:
        """Close the descriptor; who has the memory mapped keeps it."""
        os.close(self.fd)


class SocketBus:
    """One function of a running server; `client` is for requests that drivers do not make.

    Implements `Bus` and `Function` of `guest.bus.interface`. When the server is gone, loads
    return all ones and stores vanish, as in a guest.
    """

    def __init__(
        self, path: Path, ram: Ram | None = None, bars: Mapping[int, int] | None = None
    ) -> None:
        """Connect to the function's socket; without `ram` it gets memory that is its own.

        `bars` has the bus addresses of its 64-bit BARs by their index. Raises `OSError`, with EBUSY
        when another client has the function.
        """
        self.client = Client(path)
        memory = ram or Ram()
        self.ram = memory.view
        self._arena = memory.arena
        self._bars = dict(bars or {})
        self._fds: list[int] = []
        self._lock = threading.RLock()
        self.client.dma_map(memory.base, memory.size, memory.fd)
        if ram is None:
            memory.close()
        self._place()

    def read32(self, bar: int, offset: int) -> int:
        """Load a big-endian 32-bit register."""
        return int.from_bytes(self._load(bar, offset, 4), "big")

    def write32(self, bar: int, offset: int, value: int) -> None:
        """Store a big-endian 32-bit register."""
        self.store_bytes(bar, offset, value.to_bytes(4, "big"))

    def write64(self, bar: int, offset: int, value: int) -> None:
        """Store a big-endian 64-bit register."""
        self.store_bytes(bar, offset, value.to_bytes(8, "big"))

    def load(self, bar: int, offset: int, width: int) -> int:
        """Load a little-endian register of `width` bytes."""
        return int.from_bytes(self._load(bar, offset, width), "little")

    def store(self, bar: int, offset: int, width: int, value: int) -> None:
        """Store a little-endian register of `width` bytes."""
        self.store_bytes(bar, offset, value.to_bytes(width, "little"))

    def load_bytes(self, bar: int, offset: int, length: int) -> bytes:
        """Load bytes by one message."""
        return self._load(bar, offset, length)

    def store_bytes(self, bar: int, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Store bytes by one posted message."""
        with self._lock, contextlib.suppress(OSError):
            self.client.write(bar, offset, bytes(data), posted=True)

    def mapping(self, bar: int) -> memoryview | None:
        """Return None: every access is a message."""
        return None

    def load_config(self, offset: int, width: int) -> int:
        """Load a register of config space."""
        return int.from_bytes(self._load(CONFIG, offset, width), "little")

    def bar(self, index: int) -> tuple[int, int]:
        """Return bus address and size of a BAR that was placed."""
        with self._lock:
            return self._bars[index], self.client.region_info(index).size

    def allocate(self, length: int, align: int = 4096) -> DmaMemory:
        """Return zeroed DMA memory; raises `MemoryError`."""
        memory = self._arena.allocate(length, align)
        if memory is None:
            raise MemoryError(f"{length} bytes do not fit into the DMA memory of this side")
        return memory

    def enable_interrupts(self, vectors: int) -> list[int]:
        """Set up MSI-X vectors 0 … vectors-1; return one readable eventfd for each."""
        self._drop_interrupts()
        self._fds = [os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) for _ in range(vectors)]
        with self._lock:
            self.client.enable_irqs(MSIX, self._fds)
        return list(self._fds)

    def reset(self) -> None:
        """Reset the device (DEVICE_RESET) and restore config space, as the kernel does."""
        with self._lock:
            self.client.reset()
            self._place()

    def enable_master(self) -> None:
        """Set memory and master enable in the command register, and the BARs' addresses."""
        with self._lock, contextlib.suppress(OSError):
            self._place()

    def settle(self) -> None:
        """Return after the server has seen every store sent so far."""
        with self._lock:
            self.client.info()

    def available(self) -> int:
        """Return the bytes of DMA memory that are free."""
        return self._arena.available

    def abandon(self) -> None:
        """Do nothing: no call here waits for a dead server."""

    def close(self) -> None:
        """Close the connection and the eventfds, as a machine that is switched off would."""
        self.client.close()
        self._drop_interrupts()

    def _load(self, region: int, offset: int, length: int) -> bytes:
        with self._lock:
            try:
                return self.client.read(region, offset, length)
            except OSError:
                return b"\xff" * length

    def _place(self) -> None:
        for index, base in self._bars.items():
            self.client.write(CONFIG, _BARS[index], (base & 0xFFFFFFFF).to_bytes(4, "little"))
            self.client.write(CONFIG, _BARS[index + 1], (base >> 32).to_bytes(4, "little"))
        self.client.write(CONFIG, _COMMAND, _MEMORY_AND_MASTER)

    def _drop_interrupts(self) -> None:
        for fd in self._fds:
            os.close(fd)
        self._fds = []
