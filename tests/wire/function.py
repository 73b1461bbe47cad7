"""`guest.drivers.bus.interface.Function` over a vfio-user socket: bridge or DMA engine."""

from __future__ import annotations

import mmap
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from bluebridge.device.layout import pci as layout
from bluebridge.guest.drivers.bus.dma_memory import Arena
from bluebridge.guest.drivers.bus.interface import DmaMemory
from bluebridge.host_tools.vfio_user.client import Client, sealed_memory
from bluebridge.host_tools.vfio_user.connection import CONFIG, MSIX

RAM_BASE = 0x1_0000_0000
RAM_SIZE = 16 << 20
MEMORY_AND_MASTER = 6
COMMAND = 4
FUNCTION_RESET = 0x8000


class GuestRam:
    """The memory of one guest, for all of its functions."""

    def __init__(self, size: int = RAM_SIZE) -> None:
        self.fd = sealed_memory(size)
        self.size = size
        self.arena = Arena()
        self.arena.add(RAM_BASE, memoryview(mmap.mmap(self.fd, size)))

    def close(self) -> None:
        """Forget the descriptor; who has it mapped keeps it."""
        os.close(self.fd)


class WireFunction:
    """One function of a running server, its BARs placed at `bars` (64-bit ones)."""

    def __init__(self, path: Path, ram: GuestRam, bars: Mapping[int, int]) -> None:
        self.client = Client(path)
        self._ram = ram
        self._bars = dict(bars)
        self._fds: list[int] = []
        self._lock = threading.Lock()
        self._away_until, self._away_byte = 0.0, b""
        self.client.dma_map(RAM_BASE, ram.size, ram.fd)
        self._place()

    def _place(self) -> None:
        for index, base in self._bars.items():
            for half, value in ((0, base & 0xFFFFFFFF), (4, base >> 32)):
                where = 0x10 + 4 * index + half
                self.client.write(CONFIG, where, value.to_bytes(4, "little"))
        self.client.write(CONFIG, COMMAND, MEMORY_AND_MASTER.to_bytes(2, "little"))

    def reset_function(self, seconds: float = 0.0, byte: bytes = b"\xff") -> None:
        """Reset the function as Linux does for `echo 1 > reset`, under whoever drives it.

        For so many `seconds` its memory space stays off: stores are lost, loads return that byte.
        """
        with self._lock:
            self._away_until, self._away_byte = time.monotonic() + seconds, byte
            offset = self.client.read(CONFIG, layout.HEADER.field("capabilities").offset, 1)[0]
            while self.client.read(CONFIG, offset, 1)[0] != layout.CAP_ID_EXPRESS:
                offset = self.client.read(CONFIG, offset + 1, 1)[0]
            where = offset + layout.EXPRESS_CAPABILITY.field("device_control").offset
            self.client.write(CONFIG, where, FUNCTION_RESET.to_bytes(2, "little"))
            self._place()

    @property
    def _away(self) -> bool:
        return time.monotonic() < self._away_until

    def load(self, bar: int, offset: int, width: int) -> int:
        """One load."""
        with self._lock:
            if self._away:
                return int.from_bytes(self._away_byte * width, "little")
            return int.from_bytes(self.client.read(bar, offset, width), "little")

    def store(self, bar: int, offset: int, width: int, value: int) -> None:
        """One store, posted as QEMU's are."""
        with self._lock:
            if self._away:
                return
            self.client.write(bar, offset, value.to_bytes(width, "little"), posted=True)

    def load_bytes(self, bar: int, offset: int, length: int) -> bytes:
        """Bytes."""
        with self._lock:
            return self.client.read(bar, offset, length)

    def store_bytes(self, bar: int, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Bytes in one posted message."""
        with self._lock:
            self.client.write(bar, offset, bytes(data), posted=True)

    def mapping(self, bar: int) -> memoryview | None:
        """There is no bus to map."""
        return None

    def load_config(self, offset: int, width: int) -> int:
        """A register of config space."""
        with self._lock:
            return int.from_bytes(self.client.read(CONFIG, offset, width), "little")

    def bar(self, index: int) -> tuple[int, int]:
        """Bus address and size."""
        return self._bars[index], self.client.region_info(index).size

    def allocate(self, length: int, align: int = 4096) -> DmaMemory:
        """Zeroed memory of the guest."""
        memory = self._ram.arena.allocate(length, align)
        if memory is None:
            raise MemoryError(f"{length} bytes do not fit into the test's DMA memory")
        return memory

    def enable_interrupts(self, vectors: int) -> list[int]:
        """MSI-X vectors as eventfds."""
        self._fds = [os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) for _ in range(vectors)]
        with self._lock:
            self.client.enable_irqs(MSIX, self._fds)
        return list(self._fds)

    def close(self) -> None:
        """Vanish."""
        self.client.close()
        for fd in self._fds:
            os.close(fd)
        self._fds = []
