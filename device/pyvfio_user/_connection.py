"""One client that is connected to the library: negotiation, messages and disconnection."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import signal
import socket
from collections.abc import Sequence
from typing import Final

from ._files import Closer
from ._library import Library, Pointer
from ._message_filter import MessageFilter, Verdict
from .constants import (
    DEVICE_TYPE_PCI,
    FLAG_ATTACH_NON_BLOCKING,
    FLAG_NO_REPLY,
    HEADER,
    LARGEST_MEMORY_WRITE,
    MEMORY_WRITE,
    TRANSPORT_SOCKET,
    Header,
    VfioUserCommand,
    own_limit,
)

PERIOD_SECONDS: Final = 0.005
"""Seconds for which a write may block at most."""

log: Final = logging.getLogger(__name__)

_LONGEST_REPLY: Final = 65536
"""Bytes that are received of a reply of the library.

They are more than `LONGEST_ACCESS`, the longest data of a reply, and fit into the queue of its
socket.
"""
BLOCKING: Final = "an eventfd, and then made it blocking and filled it"
_SENDING: Final = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL


class Interrupter:
    """The timer of the process; it does nothing until `enable`.

    Only the main thread may call `enable`.
    """

    def __init__(self) -> None:
        self._enabled = False
        self._ticking = False
        self._writing = False
        self._written = False

    def enable(self) -> None:
        """Take SIGALRM and the timer that sends it (ITIMER_REAL)."""
        signal.signal(signal.SIGALRM, self._tick)
        self._enabled = True

    def begin(self) -> None:
        """Start the timer for a write that may block; `end` must be called after the write."""
        self._writing = self._written = True
        if not self._ticking and self._enabled:
            self._ticking = True
            signal.setitimer(signal.ITIMER_REAL, PERIOD_SECONDS, PERIOD_SECONDS)

    def end(self) -> None:
        """Note that the write has returned."""
        self._writing = False

    def rest(self) -> None:
        """Stop the timer, so that a process that ends gets no signal that it does not expect."""
        if self._ticking:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            self._ticking = False

    def _tick(self, *_: object) -> None:
        # It may run between `begin` and the write, whatever time passes there.
        if not self._writing and not self._written:
            self.rest()
        self._written = False


interrupter: Final = Interrupter()
"""The only instance: a process has one such timer."""


class LibrarySocket:
    """The library's context, and the socket from which it takes its connections.

    The library blocks in a read or write of its socket, and after a failed reply it closes its
    descriptor without saying so. So it gets a private connection for each client, whose other end
    is in this process: replies always fit, nobody but this process closes it, and messages are
    passed on between it and the client.
    """

    def __init__(self, library: Library) -> None:
        self.context: Pointer = library.calls.vfu_create_ctx(
            TRANSPORT_SOCKET, b"", FLAG_ATTACH_NON_BLOCKING, library.null, DEVICE_TYPE_PCI
        )
        if self.context == library.null:
            raise library.failure("vfu_create_ctx")
        self._socket_fd = library.calls.vfu_get_poll_fd(self.context)
        self._library = library

    def attach(self, client: socket.socket, first_message: bytes) -> socket.socket | None:
        """Let the library answer the VERSION message of `client`; return its private connection.

        None when the library refuses the client. Raises OSError when the process has no
        descriptor left.
        """
        private, given = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with given:
                # adopt.h: the library duplicates what is in the place of its socket.
                os.dup2(given.fileno(), self._socket_fd, inheritable=False)
            private.sendall(first_message)
            attached = self._library.calls.vfu_attach_ctx(self.context) == 0
            try:
                reply = private.recv(_LONGEST_REPLY, socket.MSG_DONTWAIT)
                client.send(own_limit(reply), _SENDING)
            except OSError as error:
                log.debug("a client left during its introduction: %s", error)
        except BaseException:
            private.close()
            raise
        if attached:
            return private
        private.close()
        return None

    def close(self) -> None:
        """Destroy the library's context; its callbacks may still be called meanwhile."""
        self._library.calls.vfu_destroy_ctx(self.context)


class Connection:
    """A client the library has accepted. `private` is its connection to the library."""

    def __init__(
        self,
        library: Library,
        context: Pointer,
        client: socket.socket,
        private: socket.socket,
        message_filter: MessageFilter,
        closer: Closer,
    ) -> None:
        self._library = library
        self._closer = closer
        self._context = context
        self._client = client
        self._private = private
        self.filter = message_filter
        self._inspect = message_filter.inspect
        self._number = 0
        self.blocked = False
        """Whether one of the client's eventfds has blocked: the connection is over."""
        self._run = library.calls.vfu_run_ctx

    def fileno(self) -> int:
        """Return the client's socket, which is readable when a message waits."""
        return self._client.fileno()

    def next_message(self) -> bool | None:
        """Handle a message.

        Returns True when one was handled, False if none waits, and None if the client left.
        """
        verdict = Verdict.DROP if self.blocked else self._inspect()
        if verdict is Verdict.PASS:
            try:
                self._pass_on()
                return True
            except InterruptedError:
                verdict = self.filter.drop(BLOCKING)
            except OSError as error:
                log.debug("the client has gone: %s", error)
                verdict = Verdict.DROP
        if verdict is Verdict.DROP:
            self._hang_up()
            return None
        return verdict is Verdict.HANDLED

    def _pass_on(self) -> None:
        """Pass the message to the library, and the library's reply to the client; raises OSError.

        The library writes to eventfds, too: only its reply tells that one has blocked, so it
        replies to every SET_IRQS.
        """
        gate = self.filter
        header = Header._make(HEADER.unpack_from(gate.message))
        message = gate.message
        if header.command == VfioUserCommand.SET_IRQS:
            loud = header._replace(flags=header.flags & ~FLAG_NO_REPLY)
            message = HEADER.pack(*loud) + message[HEADER.size :]
        try:
            _send_whole(self._private, message, gate.files)
        finally:
            for fd in gate.files:  # eventfds, or memory that `DmaMap.offer` holds: never the last
                os.close(fd)
        self._run_library()
        try:
            reply = self._private.recv(_LONGEST_REPLY, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return  # no reply was wanted
        if HEADER.unpack_from(reply)[-1] == errno.EINTR:
            raise InterruptedError
        if not header.flags & FLAG_NO_REPLY:
            _send_whole(self._client, reply)

    def _run_library(self) -> None:
        interrupter.begin()
        try:
            if self._run(self._context) < 0:
                raise self._library.failure("vfu_run_ctx")
        finally:
            interrupter.end()

    def condemn(self) -> None:
        """Drop the client at the next call of `next_message`: one of its eventfds has blocked."""
        self.blocked = True
        self.filter.drop(BLOCKING)
        with contextlib.suppress(OSError):
            self._client.shutdown(socket.SHUT_RDWR)  # readable, therefore

    def write_memory(self, address: int, data: bytes) -> bool:
        """Send a DMA_WRITE without reply; False when the client has disconnected."""
        if len(data) > LARGEST_MEMORY_WRITE:
            raise ValueError(f"{len(data)} bytes are too many for one memory write")
        self._number = (self._number + 1) & 0xFFFF
        size = HEADER.size + MEMORY_WRITE.size + len(data)
        message = HEADER.pack(self._number, VfioUserCommand.DMA_WRITE, size, FLAG_NO_REPLY, 0)
        message += MEMORY_WRITE.pack(address, len(data)) + data
        try:
            # AF_UNIX sends so few bytes whole or not at all.
            self._client.send(message, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except BlockingIOError:
            raise
        except OSError:
            return False
        return True

    def _hang_up(self) -> None:
        """Make the library read the end of its stream, so that it resets device and context."""
        self._private.close()
        if self._run(self._context) >= 0 or self._library.errno != errno.ENOTCONN:
            log.error("libvfio-user did not notice that its client is gone")

    def close(self) -> None:
        """Hang up, and close what the client has sent."""
        self.filter.close()
        self._closer.hang_up(self._client)
        self._private.close()


def _send_whole(to: socket.socket, data: bytes, fds: Sequence[int] = ()) -> None:
    """Send without waiting; raises OSError when not all of `data` fits into the socket."""
    sent = socket.send_fds(to, [data], fds, _SENDING) if fds else to.send(data, _SENDING)
    if sent < len(data):
        raise BlockingIOError(errno.EAGAIN, f"room for {sent} of {len(data)} bytes")
