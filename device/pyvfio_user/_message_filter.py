"""Checks each message of a client before libvfio-user reads it.

libvfio-user checks too little: it blocks on an incomplete message, loses the message boundaries
after one that is too long, writes beyond its interrupt table on a vector count that wraps around,
maps any file (touching what is gone from it kills the process), writes to any file as an interrupt
(which blocks), and answers a read with more bytes than its socket holds (which blocks). The filter
receives the messages, leaves valid ones to the library, and answers the others.

It never blocks: what has come of an incomplete message is kept, and the server's loop calls again,
with all its other work in between, until the rest has arrived or `MESSAGE_SECONDS` are over. The
loop does not sleep meanwhile.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
import time
from collections.abc import Callable
from enum import Enum
from typing import Final

from ._files import LARGEST, Closer, Inbox, interrupt_fault, memory_fault
from .constants import (
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
PAGE: Final = 4096
_unpack_header: Final = HEADER.unpack_from


class Verdict(Enum):
    """The next action of a filter's caller."""

    IDLE = 0  # no message, or only a part of one, has arrived
    PASS = 1  # `message` is for the library
    HANDLED = 2  # the message was answered here
    DROP = 3  # the client is gone, or its stream of messages cannot be followed any more


class MessageFilter:
    """The message filter of one client.

    `mapped(address, size)` tells whether a DMA region overlaps those bytes, `irq_count(index)` how
    many interrupts of a kind the device has; `complain` logs a line unless there were too many;
    `closer` closes the client's descriptors.
    """

    def __init__(
        self,
        client: socket.socket,
        mapped: Callable[[int, int], bool],
        irq_count: Callable[[int], int],
        complain: Callable[[str], None],
        closer: Closer,
    ) -> None:
        self._client = client
        self._complain = complain
        self._closer = closer
        self._inbox = Inbox(client, closer)
        self._mapped = mapped
        self._irq_count = irq_count
        self._deadline = 0.0  # for the rest of an incomplete message; 0 without one
        self._hangup = select.poll()
        self._hangup.register(client, select.POLLRDHUP)
        self.on_file: Callable[[int, int, int], None] | None = None
        """Called for each file before it is mapped: bus address, descriptor, offset in the file."""
        self.message = b""
        """The message that was just inspected, if the library is to handle it."""
        self.files: list[int] = []
        """Descriptors that the library gets with the message; the caller closes them."""
        self.more = True
        """Whether the next message has been received, and may be inspected at once."""

    @property
    def waiting(self) -> bool:
        """Whether received data is not handled yet, which no poll of the socket shows."""
        return self._inbox.start < self._inbox.end

    def inspect(self) -> Verdict:
        """Check the next message."""
        verdict = self._complete()
        return self._judge() if verdict is None else verdict

    def connected(self) -> bool:
        """Return whether the client has not closed the connection.

        Messages may wait even if it has.
        """
        return not self._hangup.poll(0)

    def close(self) -> None:
        """Close the descriptors of messages that are not handled any more."""
        self._inbox.close()

    def _complete(self) -> Verdict | None:
        """Receive until the first message is complete; return None if it is."""
        inbox = self._inbox
        needed, what = HEADER.size, "a header that never ended"
        while True:
            waiting = inbox.end - inbox.start
            if waiting >= HEADER.size:
                _, command, needed, _, _ = _unpack_header(inbox.data, inbox.start)
                if not HEADER.size <= needed <= LARGEST:
                    return self.drop(f"a message of {needed} bytes")
                what = f"command {command} without all of its {needed} bytes"
            if waiting >= needed:
                self._deadline = 0.0
                return None
            verdict = self._receive(needed, what)
            if verdict is not None:
                return verdict

    def _receive(self, needed: int, what: str) -> Verdict | None:
        """Receive a part of a message of `needed` bytes; return None when data came."""
        inbox = self._inbox
        try:
            if inbox.receive(needed):
                return None
        except BlockingIOError:
            if inbox.held:
                return self._unfinished("descriptors whose files take long to close")
            if inbox.start < inbox.end:
                return self._unfinished(what)
            self._deadline = 0.0
            return Verdict.IDLE
        except ConnectionError:
            return Verdict.DROP
        except OSError as error:
            return self.drop(f"{error.strerror}")
        return self.drop(what) if inbox.start < inbox.end else Verdict.DROP

    def _judge(self) -> Verdict:
        """Check the first message, which is complete, and answer it or leave it to the library."""
        inbox = self._inbox
        start = inbox.start
        header = Header._make(_unpack_header(inbox.data, start))
        message = bytes(inbox.view[start : start + header.size])
        files = inbox.handled(start + header.size)
        self.more = self.waiting
        error = errno.EIO
        try:
            error = self._fault(header, message, files)
        except OSError as raised:
            return self.drop(f"something that could not be read: {raised}")
        finally:
            if error or not header.brings_files:
                self._closer.close(files)
                files = []
        if error:
            return self._refuse(header, error)
        if header.is_reply:
            return Verdict.HANDLED
        self.message, self.files = message, files
        return Verdict.PASS

    def _fault(self, header: Header, message: bytes, files: list[int]) -> int:
        """Return the errno to refuse a complete message with; 0 leaves it to the library."""
        if header.is_reply:
            if header.flags & FLAG_ERROR:
                self._complain(f"the client refused command {header.command}: {_why(header)}")
            return 0
        body = header.size - HEADER.size
        if not header.is_command or body < BODY_SIZES.get(header.command, 0):
            return errno.EINVAL
        if header.command == VfioUserCommand.DMA_MAP:
            return self._dma_map_fault(message, files)
        if header.command in (VfioUserCommand.REGION_READ, VfioUserCommand.REGION_WRITE):
            length = ACCESS.unpack_from(message)[-1]
            return errno.EINVAL if length > LONGEST_ACCESS else 0
        if header.command == VfioUserCommand.DMA_UNMAP:
            _, flags, _, _ = DMA_UNMAP.unpack_from(message, HEADER.size)
            return errno.ENOTSUP if flags & UNMAP_GET_DIRTY_BITMAP else 0
        if header.command == VfioUserCommand.SET_IRQS:
            _, _, index, start, count = IRQ_SET.unpack_from(message, HEADER.size)
            if start + count > self._irq_count(index):
                return errno.EINVAL
            return interrupt_fault(files, self._complain)
        return 0

    def _dma_map_fault(self, message: bytes, files: list[int]) -> int:
        _, _, offset, address, size = DMA_MAP.unpack_from(message, HEADER.size)
        if size == 0 or (address | size | offset) % PAGE or address + size > 1 << 64:
            return errno.EINVAL
        if error := memory_fault(files, offset + size, self._complain):
            return error
        if self._mapped(address, size):
            return errno.EEXIST
        if files and self.on_file is not None:
            self.on_file(address, files[0], offset)
        return 0

    def _refuse(self, header: Header, error: int) -> Verdict:
        log.debug("refused command %d of %d bytes", header.command, header.size)
        try:
            if reply := header.refusal(error):
                self._client.send(reply, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except OSError:
            return Verdict.DROP
        return Verdict.HANDLED

    def _unfinished(self, what: str) -> Verdict:
        """Wait for the rest of a message, unless the time or the connection is over."""
        now = time.monotonic()
        if not self._deadline:
            self._deadline = now + MESSAGE_SECONDS
        if now > self._deadline or not self.connected():
            return self.drop(what)
        return Verdict.IDLE

    def drop(self, what: str) -> Verdict:
        """Log that the client is dropped, and why."""
        self._complain(f"dropping the client: it sent {what}")
        return Verdict.DROP


def _why(header: Header) -> str:
    return os.strerror(header.error)
