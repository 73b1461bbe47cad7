"""A vfio-user client with the requests that QEMU makes of a device."""

from __future__ import annotations

import fcntl
import json
import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from mmap import mmap

from bluebridge.device.pyvfio_user.constants import VfioUserCommand
from bluebridge.host_tools.vfio_user.connection import (
    DMA_RW,
    NO_REPLY,
    TIMEOUT,
    IrqFlag,
    RegionInfo,
    ServerConnection,
    ServerError,
)


class Client(ServerConnection):
    """Connected on construction; `negotiate=False` leaves the version exchange to the caller."""

    def __init__(
        self, path: str | os.PathLike[str], *, negotiate: bool = True, timeout: float = TIMEOUT
    ) -> None:
        super().__init__(path, timeout)
        self.capabilities: dict[str, object] = {}
        if negotiate:
            self.negotiate()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def negotiate(self, major: int = 0, minor: int = 1, expect: int = 0) -> None:
        """Exchange versions; the server's capabilities end up in `capabilities`."""
        offer = {"capabilities": {"max_msg_fds": 8, "max_data_xfer_size": 1 << 20}}
        body = struct.pack("<HH", major, minor) + json.dumps(offer).encode() + b"\0"
        answer = self.request(VfioUserCommand.VERSION, body, expect=expect)
        if not expect:
            self.capabilities = json.loads(answer[4:].rstrip(b"\0"))["capabilities"]

    def info(self) -> tuple[int, int, int]:
        """Send DEVICE_GET_INFO; return flags, number of regions, number of interrupt kinds."""
        body = self.request(VfioUserCommand.GET_INFO, struct.pack("<IIII", 16, 0, 0, 0))
        _, flags, regions, irqs = struct.unpack_from("<IIII", body)
        return flags, regions, irqs

    def region_info(self, index: int, expect: int = 0) -> RegionInfo:
        """Return size, offset and flags of a region (DEVICE_GET_REGION_INFO)."""
        request = struct.pack("<IIIIQQ", 32, 0, index, 0, 0, 0)
        body = self.request(VfioUserCommand.GET_REGION_INFO, request, expect=expect)
        if expect:
            return RegionInfo(index, 0, 0, 0)
        _, flags, found, _, size, offset = struct.unpack_from("<IIIIQQ", body)
        return RegionInfo(found, flags, size, offset)

    def irq_count(self, index: int) -> int:
        """Send DEVICE_GET_IRQ_INFO; return the number of vectors of a kind (INTX, MSI, MSIX)."""
        body = self.request(VfioUserCommand.GET_IRQ_INFO, struct.pack("<IIII", 16, 0, index, 0))
        return int(struct.unpack_from("<IIII", body)[3])

    def set_irqs(
        self,
        index: int,
        flags: int,
        start: int,
        count: int,
        *,
        data: bytes = b"",
        fds: Sequence[int] = (),
        expect: int = 0,
    ) -> None:
        """Send DEVICE_SET_IRQS with the given fields."""
        body = struct.pack("<IIIII", 20 + len(data), flags, index, start, count) + data
        self.request(VfioUserCommand.SET_IRQS, body, fds=fds, expect=expect)

    def enable_irqs(self, index: int, fds: Sequence[int], start: int = 0) -> None:
        """Let the server signal these eventfds for the vectors from `start` on."""
        flags = IrqFlag.DATA_EVENTFD | IrqFlag.TRIGGER
        # No more descriptors at once than the server's max_msg_fds.
        for first in range(0, len(fds), 8):
            part = fds[first : first + 8]
            self.set_irqs(index, flags, start + first, len(part), fds=part)

    def disable_irqs(self, index: int) -> None:
        """Disconnect all eventfds of an interrupt kind."""
        self.set_irqs(index, IrqFlag.DATA_NONE | IrqFlag.TRIGGER, 0, 0)

    def dma_map(
        self,
        address: int,
        size: int,
        fd: int | None = None,
        *,
        offset: int = 0,
        protection: int = DMA_RW,
        expect: int = 0,
    ) -> None:
        """Map `size` bytes of the file `fd` at bus address `address` (DMA_MAP)."""
        body = struct.pack("<IIQQQ", 32, protection, offset, address, size)
        fds = () if fd is None else (fd,)
        self.request(VfioUserCommand.DMA_MAP, body, fds=fds, expect=expect)
        if fd is not None and not expect:
            self._memory[address] = mmap(fd, size, offset=offset)

    def dma_unmap(self, address: int, size: int, *, flags: int = 0, expect: int = 0) -> None:
        """Send DMA_UNMAP."""
        body = struct.pack("<IIQQ", 24, flags, address, size)
        self.request(VfioUserCommand.DMA_UNMAP, body, expect=expect)
        if not expect:
            self._memory.pop(address, None)

    def memory(self, address: int) -> mmap:
        """Return this side's mapping of the memory at bus address `address`."""
        return self._memory[address]

    def share(self, address: int, size: int) -> mmap:
        """Return new memory of `size` bytes, mapped for the server at bus address `address`."""
        fd = sealed_memory(size)
        try:
            self.dma_map(address, size, fd)
        finally:
            os.close(fd)
        return self._memory[address]

    def read(self, region: int, offset: int, length: int, expect: int = 0) -> bytes:
        """Send REGION_READ; returns the bytes."""
        body = struct.pack("<QII", offset, region, length)
        return self.request(VfioUserCommand.REGION_READ, body, expect=expect)[16:]

    def write(
        self, region: int, offset: int, data: bytes, *, expect: int = 0, posted: bool = False
    ) -> None:
        """Send REGION_WRITE; a `posted` one asks for no reply, as QEMU's memory writes do."""
        body = struct.pack("<QII", offset, region, len(data)) + data
        if posted:
            self.send(self.pack(VfioUserCommand.REGION_WRITE, body, flags=NO_REPLY))
        else:
            self.request(VfioUserCommand.REGION_WRITE, body, expect=expect)

    def read32(self, region: int, offset: int) -> int:
        """Read a little-endian 32-bit register."""
        return int.from_bytes(self.read(region, offset, 4), "little")

    def write32(self, region: int, offset: int, value: int) -> None:
        """Write a little-endian 32-bit register."""
        self.write(region, offset, value.to_bytes(4, "little"))

    def reset(self, expect: int = 0) -> None:
        """Send DEVICE_RESET."""
        self.request(VfioUserCommand.RESET, expect=expect)

    def alive(self) -> bool:
        """Whether the server still answers on this connection."""
        try:
            self.info()
        except (OSError, ServerError):
            return False
        return True


def sealed_memory(size: int) -> int:
    """Return a memfd that cannot shrink, as that of a guest's memory: servers map no other."""
    fd = os.memfd_create("guest", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.truncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    return fd


@contextmanager
def eventfds(count: int) -> Iterator[list[int]]:
    """Return that many non-blocking eventfds, closed at the end."""
    fds = [os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) for _ in range(count)]
    try:
        yield fds
    finally:
        for fd in fds:
            os.close(fd)
