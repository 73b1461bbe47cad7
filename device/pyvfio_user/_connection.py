"""One client, connected to the library: negotiation, messages, disconnection."""

from __future__ import annotations

import errno
import logging
import os
import socket
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from ._library import Library, Pointer
from ._message_filter import MessageFilter, Verdict
from ._messages import FLAG_NO_REPLY, HEADER, LARGEST_MEMORY_WRITE, MEMORY_WRITE, VfioUserCommand
from ._region_filter import RegionFilter
from ._regions import BulkRegion, RegisterRegion
from .constants import DEVICE_TYPE_PCI, FLAG_ATTACH_NON_BLOCKING, TRANSPORT_SOCKET

log: Final = logging.getLogger(__name__)

# libvfio-user reads bodies and writes replies with blocking calls; a client that does not read
# its replies blocks them for one second once and is then dropped.
_TIMEOUT: Final = struct.pack("ll", 1, 0)


class LibrarySocket:
    """The library's own listening socket, which only this process can reach.

    The library cannot be given a connection, it only accepts. So each client's VERSION message is
    exchanged over a private one, which `dup2` then replaces by the client's own socket.
    """

    def __init__(self, library: Library) -> None:
        with TemporaryDirectory(prefix="vfu-") as folder:
            path = Path(folder, "s")
            self.context: Pointer = library.calls.vfu_create_ctx(
                TRANSPORT_SOCKET,
                os.fsencode(path),
                FLAG_ATTACH_NON_BLOCKING,
                library.null,
                DEVICE_TYPE_PCI,
            )
            if self.context == library.null:
                raise library.failure("vfu_create_ctx")
            self._socket_fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        self._library = library

    def attach(self, client: socket.socket, first_message: bytes) -> int:
        """Let the library answer the VERSION message of `client`; its descriptor for it, or -1."""
        calls = self._library.calls
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as proxy:
            # The file is unlinked; a descriptor of the socket's inode still reaches it.
            proxy.connect(f"/proc/self/fd/{self._socket_fd}")
            proxy.sendall(first_message)
            attached = calls.vfu_attach_ctx(self.context) == 0
            try:
                client.send(proxy.recv(65536, socket.MSG_DONTWAIT), socket.MSG_NOSIGNAL)
            except OSError as error:
                log.debug("a client left during its introduction: %s", error)
            if not attached:
                return -1
            inner = calls.vfu_get_poll_fd(self.context)
            os.dup2(client.fileno(), inner, inheritable=False)
        return inner

    def close(self) -> None:
        """Destroy the library's context; its callbacks may still be called meanwhile."""
        self._library.calls.vfu_destroy_ctx(self.context)
        os.close(self._socket_fd)


class Connection:
    """A client the library has accepted."""

    def __init__(
        self,
        library: Library,
        context: Pointer,
        client: socket.socket,
        inner: int,
        mapped: Callable[[int, int], bool],
        irq_count: Callable[[int], int],
        windows: Mapping[int, BulkRegion],
        registers: Mapping[int, RegisterRegion],
    ) -> None:
        client.setblocking(True)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIMEOUT)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _TIMEOUT)
        self._library = library
        self._context = context
        self._client = client
        self._inner = inner
        self.filter: MessageFilter = RegionFilter(client, mapped, irq_count, windows, registers)
        self._inspect = self.filter.inspect
        self._number = 0
        self._run = library.calls.vfu_run_ctx

    def fileno(self) -> int:
        """The client's socket, readable when a message waits."""
        return self._client.fileno()

    def next_message(self) -> bool | None:
        """Handle a message: True when done, False if none waits, None if the client left."""
        verdict = self._inspect()
        if verdict is Verdict.PASS:
            if self._run(self._context) >= 0:
                return True
            if self._library.errno == errno.ENOTCONN:
                return None
            log.warning("dropping the client: %s", self._library.failure("vfu_run_ctx"))
            verdict = Verdict.DROP
        if verdict is Verdict.DROP:
            self._hang_up()
            return None
        return verdict is Verdict.HANDLED

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
        """Make the library read the end of the stream, so that it resets device and context."""
        dead, other = socket.socketpair()
        other.close()
        with dead:
            os.dup2(dead.fileno(), self._inner, inheritable=False)
        if self._run(self._context) >= 0 or self._library.errno != errno.ENOTCONN:
            log.error("libvfio-user did not notice that its client is gone")

    def close(self) -> None:
        """Close this process's descriptor of the client's socket."""
        self._client.close()
