"""Checks each message of a client before libvfio-user reads it.

libvfio-user checks too little: it blocks on an incomplete message, loses the message boundaries
after one that is too long, writes beyond its interrupt table on a vector count that wraps around,
maps any file (touching what is gone from it kills the process), writes to any file as an interrupt
(which blocks), and answers a read with more bytes than its socket holds (which blocks). The filter
peeks at each message, leaves valid ones in the socket for the library, and answers the others.

It never blocks: an incomplete message stays in the socket, which therefore stays readable, so the
server's loop calls again, with all its other work in between, until the rest has arrived or
`MESSAGE_SECONDS` are over. The loop does not sleep meanwhile.
"""

from __future__ import annotations

import array
import errno
import fcntl
import logging
import os
import select
import socket
import termios
import time
from collections.abc import Callable
from enum import Enum
from typing import Final

from ._files import closer, interrupt_fault, memory_fault
from ._messages import (
    ACCESS,
    BODY_SIZES,
    DMA_MAP,
    DMA_UNMAP,
    FLAG_ERROR,
    HEADER,
    IRQ_SET,
    LONGEST_ACCESS,
    UNMAP_GET_DIRTY_BITMAP,
    Header,
    VfioUserCommand,
)

log: Final = logging.getLogger(__name__)

MESSAGE_SECONDS: Final = 0.5
"""Seconds a message may take from its first byte to its last."""
LARGEST: Final = 65536
"""Bytes of the largest message; every socket's queue holds that many."""
PAGE: Final = 4096
_PEEK: Final = socket.MSG_PEEK | socket.MSG_DONTWAIT
_unpack_header: Final = HEADER.unpack_from
_unpack_access: Final = ACCESS.unpack_from


class Verdict(Enum):
    """What the caller has to do next."""

    IDLE = 0  # no message, or only a part of one, has arrived
    PASS = 1  # leave the message to the library
    HANDLED = 2  # the message was answered here
    DROP = 3  # the client is gone, or its stream of messages cannot be followed any more


class MessageFilter:
    """The message filter of one client.

    `mapped(address, size)` tells whether a DMA region overlaps those bytes, `irq_count(index)` how
    many interrupts of a kind the device has; `complain` logs a line, or not, if there were many.
    """

    def __init__(
        self,
        client: socket.socket,
        mapped: Callable[[int, int], bool],
        irq_count: Callable[[int], int],
        complain: Callable[[str], None],
    ) -> None:
        self._client = client
        self._complain = complain
        self._receive = client.recv_into
        self._mapped = mapped
        self._irq_count = irq_count
        self._buffer = bytearray(64)
        self._deadline = 0.0  # for the rest of an incomplete message; 0 without one
        self._hangup = select.poll()
        self._hangup.register(client, select.POLLRDHUP)
        self.on_file: Callable[[int, int, int], None] | None = None
        """Called for each file before it is mapped: bus address, descriptor, offset in the file."""
        self.with_files = False
        """Whether the message just inspected may bring descriptors to the library."""
        self.more = True
        """Whether more than the message just inspected may be waiting; saves a system call."""

    def inspect(self) -> Verdict:
        """Check the next message; region accesses, the most frequent ones, cost one system call."""
        self.more = True
        self.with_files = False
        try:
            count = self._receive(self._buffer, 0, _PEEK)
        except BlockingIOError:
            return Verdict.IDLE
        except OSError:
            return Verdict.DROP
        if count >= 32:
            _, command, size, flags, _, _, _, length = _unpack_access(self._buffer)
            if (
                flags & 0xF == 0
                and 9 <= command <= 10
                and 32 <= size <= count
                and length <= LONGEST_ACCESS
            ):
                self._deadline = 0.0
                self.more = count > size
                return Verdict.PASS
        try:
            return self._judge(count) if count else Verdict.DROP
        except OSError as error:
            return self._drop(f"something that could not be read: {error}")

    def connected(self) -> bool:
        """Whether the client has not closed the connection; messages may wait even if it has."""
        return not self._hangup.poll(0)

    def _judge(self, count: int) -> Verdict:
        if count < HEADER.size:
            if _queued(self._client) < HEADER.size:
                return self._unfinished("a header that never ended")
            if self._receive(self._buffer, HEADER.size, _PEEK) < HEADER.size:
                return self._drop("descriptors in the middle of a header")
        header = Header._make(_unpack_header(self._buffer))
        if not HEADER.size <= header.size <= LARGEST:
            return self._drop(f"a message of {header.size} bytes")
        if _queued(self._client) < header.size:
            return self._unfinished(
                f"command {header.command} without all of its {header.size} bytes"
            )
        self._deadline = 0.0
        if header.is_reply:
            if header.flags & FLAG_ERROR:
                self._complain(f"the client refused command {header.command}: {_why(header)}")
            return self._consume(header, b"")
        error = self._fault(header)
        return self._consume(header, header.refusal(error)) if error else Verdict.PASS

    def _fault(self, header: Header) -> int:
        """The errno to refuse a complete message with; 0 lets the library decide."""
        body = header.size - HEADER.size
        if not header.is_command or body < BODY_SIZES.get(header.command, 0):
            return errno.EINVAL
        if header.command == VfioUserCommand.DMA_MAP:
            return self._with_files(HEADER.size + DMA_MAP.size, self._dma_map_fault)
        # Fewer bytes than asked for when descriptors are attached in the middle of the message.
        message = self._client.recv(HEADER.size + max(BODY_SIZES.values()), _PEEK)
        if len(message) < HEADER.size + BODY_SIZES.get(header.command, 0):
            return errno.EINVAL
        if header.command in (VfioUserCommand.REGION_READ, VfioUserCommand.REGION_WRITE):
            length = ACCESS.unpack_from(message)[-1]
            return errno.EINVAL if length > LONGEST_ACCESS else 0
        if header.command == VfioUserCommand.DMA_UNMAP:
            _, flags, _, _ = DMA_UNMAP.unpack_from(message, HEADER.size)
            return errno.ENOTSUP if flags & UNMAP_GET_DIRTY_BITMAP else 0
        if header.command == VfioUserCommand.DEVICE_SET_IRQS:
            _, _, index, start, count = IRQ_SET.unpack_from(message, HEADER.size)
            if start + count > self._irq_count(index):
                return errno.EINVAL
            return self._with_files(len(message), lambda _, fds: self._interrupt_fault(fds))
        return 0

    def _with_files(self, length: int, check: Callable[[bytes, list[int]], int]) -> int:
        """`check(message, descriptors)` of a message of which the first `length` bytes count."""
        if not closer.ready():
            return errno.EBUSY
        message, fds = _peek_with_fds(self._client, length)
        error = errno.EIO
        try:
            error = check(message, fds)
        finally:
            closer.close(fds)
        self.with_files = not error
        return error

    def _interrupt_fault(self, fds: list[int]) -> int:
        return interrupt_fault(fds, self._complain)

    def _dma_map_fault(self, message: bytes, fds: list[int]) -> int:
        if len(message) < HEADER.size + DMA_MAP.size:
            return errno.EINVAL
        _, _, offset, address, size = DMA_MAP.unpack_from(message, HEADER.size)
        if size == 0 or (address | size | offset) % PAGE or address + size > 1 << 64:
            return errno.EINVAL
        if error := memory_fault(fds, offset + size, self._complain):
            return error
        if self._mapped(address, size):
            return errno.EEXIST
        if fds and self.on_file is not None:
            self.on_file(address, fds[0], offset)
        return 0

    def _consume(self, header: Header, reply: bytes) -> Verdict:
        """Take the message off the socket (attached descriptors are closed) and answer it."""
        left = header.size
        while left:  # a message with descriptors may come off in two pieces
            left -= len(self._client.recv(left, socket.MSG_DONTWAIT))
        log.debug("refused command %d of %d bytes", header.command, header.size)
        try:
            if reply:
                self._client.send(reply, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except OSError:
            return Verdict.DROP
        return Verdict.HANDLED

    def _unfinished(self, what: str) -> Verdict:
        """An incomplete message: wait for the rest, unless the time or the connection is over."""
        now = time.monotonic()
        if not self._deadline:
            self._deadline = now + MESSAGE_SECONDS
        if now > self._deadline or not self.connected():
            return self._drop(what)
        return Verdict.IDLE

    def _drop(self, what: str) -> Verdict:
        self._complain(f"dropping the client: it sent {what}")
        return Verdict.DROP


def _why(header: Header) -> str:
    return os.strerror(header.error)


def _queued(client: socket.socket) -> int:
    """Bytes that wait to be read (FIONREAD; for AF_UNIX streams the sum over the queue)."""
    return int.from_bytes(fcntl.ioctl(client, termios.FIONREAD, bytes(4)), "little")


def _peek_with_fds(client: socket.socket, length: int) -> tuple[bytes, list[int]]:
    """The message without taking it, and duplicates of its descriptors for the caller to close."""
    space = socket.CMSG_SPACE(253 * array.array("i").itemsize)  # SCM_MAX_FD
    data, ancillary, _, _ = client.recvmsg(length, space, _PEEK | socket.MSG_CMSG_CLOEXEC)
    fds = array.array("i")
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
    return data, list(fds)
