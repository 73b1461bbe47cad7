"""Descriptors whose close lasts: what a hostile client attaches to its messages."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading

from bluebridge.host_tools.vfio_user.client import Client

SECONDS = 60
"""How long a close lasts, unless `release` ends it: longer than any client waits for an answer."""

SMALL = 4096
"""Bytes that each side of such a connection keeps, roughly."""


class LingeringSockets:
    """TCP connections with data that nobody takes, to be closed by somebody else."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
        self._receivers: list[socket.socket] = []

    def make(self) -> int:
        """A descriptor; once it is sent, close it here: only the last close lasts."""
        sender = socket.create_connection(self._listener.getsockname())
        self._receivers.append(self._listener.accept()[0])
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL)
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, SECONDS))
        sender.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                sender.send(bytes(1 << 16))
        return sender.detach()

    def release(self) -> None:
        """End all closes."""
        for each in self._receivers:
            each.close()
        self._receivers.clear()

    def __enter__(self) -> LingeringSockets:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        self._listener.close()


def send_last(client: Client, message: bytes, fd: int) -> threading.Thread:
    """Send with a descriptor of which no other copy is kept; the server may have hung up.

    Whoever closes it last waits, which a busy machine may make this side: the thread returned.
    """
    with contextlib.suppress(BrokenPipeError):
        client.send(message, [fd])
    closing = threading.Thread(target=os.close, args=(fd,), daemon=True)
    closing.start()
    return closing
