"""A vfio-user client for tests: what QEMU does to a device, message by message, and worse.

One socket, one thread. `request` sends a command and waits for its reply; with `expect=errno` the
reply must be that error, so a hostile message is one line. Requests of the server that arrive in
between (DMA_READ, DMA_WRITE) are answered from the mapped memory.
"""

from __future__ import annotations

import array
import errno
import json
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from mmap import mmap
from pathlib import Path
from types import TracebackType

HEADER = struct.Struct("<HHIII")
REPLY = 1
NO_REPLY = 0x10
ERROR = 0x20
TIMEOUT = 10.0


class Command(IntEnum):
    """Commands of the vfio-user protocol, version 0.1."""

    VERSION = 1
    DMA_MAP = 2
    DMA_UNMAP = 3
    GET_INFO = 4
    GET_REGION_INFO = 5
    GET_REGION_IO_FDS = 6
    GET_IRQ_INFO = 7
    SET_IRQS = 8
    REGION_READ = 9
    REGION_WRITE = 10
    DMA_READ = 11
    DMA_WRITE = 12
    RESET = 13
    DIRTY_PAGES = 14


class IrqFlag(IntFlag):
    """linux/vfio.h: VFIO_IRQ_SET_*."""

    DATA_NONE = 1
    DATA_BOOL = 2
    DATA_EVENTFD = 4
    MASK = 8
    UNMASK = 16
    TRIGGER = 32


CONFIG = 7
INTX, MSI, MSIX = 0, 1, 2
DMA_RW = 3


class ServerError(OSError):
    """The server answered a request with an error."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message as received; `flags` and `error` as in the header."""

    msg_id: int
    command: int
    flags: int
    error: int
    body: bytes


@dataclass(frozen=True, slots=True)
class RegionInfo:
    """Answer to DEVICE_GET_REGION_INFO; flags: 1 readable, 2 writable, 4 mappable."""

    index: int
    flags: int
    size: int
    offset: int


class Client:
    """Connected on construction; `negotiate=False` leaves the version exchange to the caller."""

    def __init__(
        self, path: str | os.PathLike[str], *, negotiate: bool = True, timeout: float = TIMEOUT
    ) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(timeout)
        self.socket.connect(os.fspath(Path(path)))
        self._msg_id = 0
        self._memory: dict[int, mmap] = {}
        self.capabilities: dict[str, object] = {}
        if negotiate:
            self.negotiate()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Vanish, as a killed QEMU would."""
        self.socket.close()

    # Messages -------------------------------------------------------------------------------

    def pack(
        self, command: int, body: bytes = b"", *, flags: int = 0, size: int | None = None
    ) -> bytes:
        """The bytes of a request with a new message number; `size` overrides the header's."""
        self._msg_id = (self._msg_id + 1) & 0xFFFF
        total = HEADER.size + len(body) if size is None else size
        return HEADER.pack(self._msg_id, command, total, flags, 0) + body

    def send(self, data: bytes, fds: Sequence[int] = ()) -> None:
        """Raw bytes, with file descriptors."""
        if not fds:
            self.socket.sendall(data)
            return
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds).tobytes())]
        sent = self.socket.sendmsg([data], ancillary)
        self.socket.sendall(data[sent:])

    def receive(self) -> Message:
        """The next message; raises ConnectionResetError when the server has hung up."""
        msg_id, command, size, flags, error = HEADER.unpack(self._exactly(HEADER.size))
        return Message(msg_id, command, flags, error, self._exactly(size - HEADER.size))

    def _exactly(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            part = self.socket.recv(length - len(data))
            if not part:
                raise ConnectionResetError(errno.ECONNRESET, "the server has hung up")
            data += part
        return data

    def request(
        self,
        command: int,
        body: bytes = b"",
        *,
        fds: Sequence[int] = (),
        expect: int = 0,
        size: int | None = None,
        flags: int = 0,
    ) -> bytes:
        """Send a request, wait for its reply, return the reply's body.

        With `expect` the reply must carry that errno; another answer is an AssertionError.
        """
        self.send(self.pack(command, body, size=size, flags=flags), fds)
        reply = self.reply_to(self._msg_id)
        found = reply.error if reply.flags & ERROR else 0
        if expect:
            wanted, got = errno.errorcode[expect], errno.errorcode.get(found, str(found))
            assert found == expect, f"command {command}: {wanted} expected, {got} received"
        elif found:
            raise ServerError(found, f"command {command}: {os.strerror(found)}")
        return reply.body

    def reply_to(self, msg_id: int) -> Message:
        """The reply with this number; requests of the server that come first are answered."""
        while True:
            message = self.receive()
            if message.flags & 0xF == REPLY:
                assert message.msg_id == msg_id, f"reply {message.msg_id}, {msg_id} expected"
                return message
            self.answer(message)

    def answer(self, message: Message) -> None:
        """Serve a DMA_READ or DMA_WRITE of the server out of the mapped memory."""
        address, count = struct.unpack_from("<QQ", message.body)
        found = self._find(address, count)
        error = 0 if found else errno.EFAULT
        body = message.body[:16]
        if found and message.command == Command.DMA_WRITE:
            memory, offset = found
            memory[offset : offset + count] = message.body[16:]
        elif found and message.command == Command.DMA_READ:
            memory, offset = found
            body += memory[offset : offset + count]
        else:
            error = error or errno.ENOTSUP
        if message.flags & NO_REPLY:
            return
        flags, body = (REPLY | ERROR, b"") if error else (REPLY, body)
        size = HEADER.size + len(body)
        self.send(HEADER.pack(message.msg_id, message.command, size, flags, error) + body)

    def _find(self, address: int, count: int) -> tuple[mmap, int] | None:
        for start, memory in self._memory.items():
            if start <= address and address + count <= start + len(memory):
                return memory, address - start
        return None

    # Commands -------------------------------------------------------------------------------

    def negotiate(self, major: int = 0, minor: int = 1, expect: int = 0) -> None:
        """Exchange versions; the server's capabilities end up in `capabilities`."""
        offer = {"capabilities": {"max_msg_fds": 8, "max_data_xfer_size": 1 << 20}}
        body = struct.pack("<HH", major, minor) + json.dumps(offer).encode() + b"\0"
        answer = self.request(Command.VERSION, body, expect=expect)
        if not expect:
            self.capabilities = json.loads(answer[4:].rstrip(b"\0"))["capabilities"]

    def info(self) -> tuple[int, int, int]:
        """DEVICE_GET_INFO: flags, number of regions, number of interrupt kinds."""
        body = self.request(Command.GET_INFO, struct.pack("<IIII", 16, 0, 0, 0))
        _, flags, regions, irqs = struct.unpack_from("<IIII", body)
        return flags, regions, irqs

    def region_info(self, index: int, expect: int = 0) -> RegionInfo:
        """DEVICE_GET_REGION_INFO."""
        request = struct.pack("<IIIIQQ", 32, 0, index, 0, 0, 0)
        body = self.request(Command.GET_REGION_INFO, request, expect=expect)
        if expect:
            return RegionInfo(index, 0, 0, 0)
        _, flags, found, _, size, offset = struct.unpack_from("<IIIIQQ", body)
        return RegionInfo(found, flags, size, offset)

    def irq_count(self, index: int) -> int:
        """DEVICE_GET_IRQ_INFO: number of vectors of a kind (INTX, MSI, MSIX)."""
        body = self.request(Command.GET_IRQ_INFO, struct.pack("<IIII", 16, 0, index, 0))
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
        """DEVICE_SET_IRQS as it goes over the wire."""
        body = struct.pack("<IIIII", 20 + len(data), flags, index, start, count) + data
        self.request(Command.SET_IRQS, body, fds=fds, expect=expect)

    def enable_irqs(self, index: int, fds: Sequence[int], start: int = 0) -> None:
        """Let the server signal these eventfds for the vectors from `start` on."""
        flags = IrqFlag.DATA_EVENTFD | IrqFlag.TRIGGER
        # No more descriptors at once than the server's max_msg_fds.
        for first in range(0, len(fds), 8):
            part = fds[first : first + 8]
            self.set_irqs(index, flags, start + first, len(part), fds=part)

    def disable_irqs(self, index: int) -> None:
        """Take all eventfds of a kind back."""
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
        """DMA_MAP of `size` bytes of the file `fd` at bus address `address`."""
        body = struct.pack("<IIQQQ", 32, protection, offset, address, size)
        fds = () if fd is None else (fd,)
        self.request(Command.DMA_MAP, body, fds=fds, expect=expect)
        if fd is not None and not expect:
            self._memory[address] = mmap(fd, size, offset=offset)

    def dma_unmap(self, address: int, size: int, *, flags: int = 0, expect: int = 0) -> None:
        """DMA_UNMAP."""
        body = struct.pack("<IIQQ", 24, flags, address, size)
        self.request(Command.DMA_UNMAP, body, expect=expect)
        if not expect:
            self._memory.pop(address, None)

    def memory(self, address: int) -> mmap:
        """This side's mapping of the memory that was mapped at bus address `address`."""
        return self._memory[address]

    def share(self, address: int, size: int) -> mmap:
        """New memory of `size` bytes, mapped for the server at bus address `address`."""
        fd = os.memfd_create("guest")
        try:
            os.truncate(fd, size)
            self.dma_map(address, size, fd)
        finally:
            os.close(fd)
        return self._memory[address]

    def read(self, region: int, offset: int, length: int, expect: int = 0) -> bytes:
        """REGION_READ."""
        body = struct.pack("<QII", offset, region, length)
        return self.request(Command.REGION_READ, body, expect=expect)[16:]

    def write(
        self, region: int, offset: int, data: bytes, *, expect: int = 0, posted: bool = False
    ) -> None:
        """REGION_WRITE; a `posted` one asks for no reply, as QEMU's memory writes do."""
        body = struct.pack("<QII", offset, region, len(data)) + data
        if posted:
            self.send(self.pack(Command.REGION_WRITE, body, flags=NO_REPLY))
        else:
            self.request(Command.REGION_WRITE, body, expect=expect)

    def read32(self, region: int, offset: int) -> int:
        """A little-endian 32-bit register."""
        return int.from_bytes(self.read(region, offset, 4), "little")

    def write32(self, region: int, offset: int, value: int) -> None:
        """A little-endian 32-bit register."""
        self.write(region, offset, value.to_bytes(4, "little"))

    def reset(self, expect: int = 0) -> None:
        """DEVICE_RESET."""
        self.request(Command.RESET, expect=expect)

    def alive(self) -> bool:
        """Whether the server still answers on this connection."""
        try:
            self.info()
        except (OSError, ServerError):
            return False
        return True


@contextmanager
def eventfds(count: int) -> Iterator[list[int]]:
    """That many non-blocking eventfds, closed at the end."""
    fds = [os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) for _ in range(count)]
    try:
        yield fds
    finally:
        for fd in fds:
            os.close(fd)
