"""Virtio NICs of guests on the first network of a server, each at a UNIX socket for QEMU."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bluebridge.device.fabric.interface import Fabric
from bluebridge.device.pci.loop import EventLoop
from bluebridge.device.underlay.stream import NicPort

REST_SECONDS = 1.0
"""Pause in seconds before a connection is taken that cannot be taken now."""


@dataclass(frozen=True, slots=True)
class NicSpec:
    """A NIC: its guest's name in the log, the socket that QEMU connects to, its MAC address."""

    name: str
    socket: Path
    mac: bytes


class Nic:
    """The port of a NIC, and the socket at which its QEMU is awaited: one at a time, the newest.

    Connections are closed in a thread, since a descriptor that its peer has left in them may take
    long to close; no other connection is taken meanwhile. Raises `OSError` when the socket cannot
    be served.
    """

    def __init__(self, spec: NicSpec, cable: Fabric, loop: EventLoop) -> None:
        self._spec = spec
        self._loop = loop
        self._watched = -1
        self._closer: threading.Thread | None = None
        self._socket = _listening(spec.socket)
        self.port = NicPort(cable, spec.mac, loop.call_soon, loop.call_later, self._drop)
        self._listen()

    def _listen(self) -> None:
        self._loop.add_reader(self._socket.fileno(), self._accept)

    def _accept(self) -> None:
        try:
            client = None if self._is_closing() else self._socket.accept()[0]
        except BlockingIOError:
            return
        except OSError:  # there is no descriptor for it
            client = None
        if client is None:
            self._loop.remove_reader(self._socket.fileno())
            self._loop.call_later(REST_SECONDS, self._listen)
            return
        self._drop(())
        client.setblocking(False)
        self._watched = client.fileno()
        self.port.connect(client)
        self._loop.add_reader(self._watched, self.port.receive_all)

    def _is_closing(self) -> bool:
        return self._closer is not None and self._closer.is_alive()

    def _drop(self, descriptors: Sequence[int]) -> None:
        if self._watched >= 0:
            self._loop.remove_reader(self._watched)
            self._watched = -1
        client = self.port.disconnect()
        if client is not None:
            arguments = (client, tuple(descriptors))
            self._closer = threading.Thread(target=_close, args=arguments, daemon=True)
            self._closer.start()

    def report(self, spoofed: Callable[[NicPort], tuple[int, int]]) -> str:
        """Return a line with what went through the port."""
        port = self.port
        state = "" if self._watched >= 0 else ", not connected"
        counts = {
            "no room for": port.dropped,
            "refused": port.refused,
            "from addresses of others": spoofed(port)[0],
        }
        more = "".join(f", {name} {count}" for name, count in counts.items() if count)
        return f"NIC {self._spec.name}: sent {port.sent}, received {port.received}{more}{state}"

    def close(self) -> None:
        """Leave the network, close and remove the socket."""
        self._drop(())
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        self._spec.socket.unlink(missing_ok=True)
        self.port.leave()


def _close(client: socket.socket, descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    client.close()


def _listening(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    before = os.umask(0o177)  # never open to others, not even between bind and a chmod
    try:
        listener.bind(str(path))
        listener.listen(1)
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"NIC socket {path}: {error.strerror}") from None
    finally:
        os.umask(before)
    return listener
