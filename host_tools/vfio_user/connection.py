"""A client's connection to a vfio-user server: messages out, messages in, its memory.

`request` sends a command and waits for its reply; with `expect=errno` the reply must be that
error, so a hostile message is one line. Requests of the server that arrive in between (DMA_READ,
DMA_WRITE) are answered from the mapped memory.
"""

from __future__ import annotations

import array
import errno
import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntFlag
from mmap import mmap
from pathlib import Path

from bluebridge.device.pyvfio_user.constants import HEADER, VfioUserCommand

REPLY = 1
NO_REPLY = 0x10
ERROR = 0x20
TIMEOUT = 10.0

CONFIG = 7
INTX, MSI, MSIX = 0, 1, 2
DMA_RW = 3


class IrqFlag(IntFlag):
    """linux/vfio.h: VFIO_IRQ_SET_*."""

    DATA_NONE = 1
    DATA_BOOL = 2
    DATA_EVENTFD = 4
    MASK = 8
    UNMASK = 16
    TRIGGER = 32


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


class ServerConnection:
    """One socket, one thread. Nothing is sent on construction."""

    def __init__(self, path: str | os.PathLike[str], timeout: float = TIMEOUT) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(timeout)
        self.socket.connect(os.fspath(Path(path)))
        self._msg_id = 0
        self._memory: dict[int, mmap] = {}

    def close(self) -> None:
        """Close the socket without a message, as a killed QEMU would."""
        self.socket.close()

    def pack(
        self, command: int, body: bytes = b"", *, flags: int = 0, size: int | None = None
    ) -> bytes:
        """Return a request with a new message number; `size` overrides the header's."""
        self._msg_id = (self._msg_id + 1) & 0xFFFF
        total = HEADER.size + len(body) if size is None else size
        return HEADER.pack(self._msg_id, command, total, flags, 0) + body

    def send(self, data: bytes, fds: Sequence[int] = ()) -> None:
        """Send raw bytes, with file descriptors."""
        if not fds:
            self.socket.sendall(data)
            return
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds).tobytes())]
        sent = self.socket.sendmsg([data], ancillary)
        self.socket.sendall(data[sent:])

    def receive(self) -> Message:
        """Return the next message; raises ConnectionResetError when the server has hung up."""
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
        """Return the reply with this number; requests that the server sends first are answered."""
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
        if found and message.command == VfioUserCommand.DMA_WRITE:
            memory, offset = found
            memory[offset : offset + count] = message.body[16:]
        elif found and message.command == VfioUserCommand.DMA_READ:
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
