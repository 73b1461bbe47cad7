"""The port of a network at which a virtio NIC of a guest is, behind QEMU's `-netdev stream`.

On the stream each frame follows its length, four bytes, big-endian (QEMU's net/stream.c); it
begins at the destination address and has no FCS.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from time import monotonic
from typing import Final

from bluebridge.device.fabric.interface import Fabric
from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.fabric.messages import Frames, Message, Train
from bluebridge.device.layout.net.ethernet import HEADER_SIZE
from bluebridge.device.pci.loop import EventLoop
from bluebridge.device.server.networks import Listener
from bluebridge.device.server.settings import HcaSpec
from bluebridge.device.server.underlay import AGAIN_SECONDS, MOST_WAITING, TURN_SECONDS
from bluebridge.device.underlay.tunnel import LONGEST, MAC_SIZE

LENGTH: Final = struct.Struct(">I")
MOST_LENGTH: Final = 69632
"""Most bytes of a frame that QEMU sends (net.h: NET_BUFSIZE)."""
_READ: Final = 1 << 18
_DESCRIPTORS: Final = 253
"""Most descriptors of one message (SCM_MAX_FD): with room for all, none is closed by receiving."""
_BURST: Final = 64
"""Frames that are sent in one call at most."""


class FrameReader:
    """Finds the frames in what arrives on a stream."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes | None]:
        """Yield the frames that are whole now, and None for what is as long as no frame can be.

        Raises `ValueError` for a stream out of step. All are taken before the next `data`.
        """
        data = self._rest + data
        at = 0
        while at + LENGTH.size <= len(data):
            (length,) = LENGTH.unpack_from(data, at)
            if length > MOST_LENGTH:
                raise ValueError(f"a frame of {length} bytes")
            end = at + LENGTH.size + length
            if end > len(data):
                break
            whole = HEADER_SIZE <= length <= LONGEST
            yield data[at + LENGTH.size : end] if whole else None
            at = end
        self._rest = data[at:]


class Nic:
    """A `FabricPort` for a NIC, and the socket at which its QEMU is awaited: one, the newest.

    It is on `network`, behind the decorators of `cable`, and owns what its guest sends from. The
    link is up while QEMU is connected and the cable in. Connections are closed in a thread, since a
    descriptor that its peer has left in them may take long to close (QEMU sends none); no other
    connection is taken meanwhile. Raises `OSError` when the socket cannot be served.
    """

    def __init__(self, spec: HcaSpec, network: LocalFabric, cable: Fabric, loop: EventLoop) -> None:
        self._name = spec.name
        self._network = network
        self._fabric = cable
        self._addresses = frozenset([spec.mac])
        self._loop = loop
        self._closer: threading.Thread | None = None
        self._listener = Listener("NIC", spec.socket, loop, self._take, 1, self._is_ready)
        self._socket: socket.socket | None = None
        self._reader = FrameReader()
        self._frames: Iterator[bytes | None] = iter(())
        """What has arrived and was not handed on yet."""
        self._continues = False
        self._cable = True
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._flushing = False
        self._sent = self._received = self._dropped = self._refused = 0
        cable.attach(self)
        network.learn_from(self)
        self._announce()

    def _take(self, client: socket.socket) -> None:
        self._drop()
        self._socket = client
        self._reader = FrameReader()
        self._announce()
        self._loop.add_reader(client.fileno(), self._receive_all)

    def _is_ready(self) -> bool:
        return self._closer is None or not self._closer.is_alive()

    def _drop(self, descriptors: Sequence[int] = ()) -> None:
        """End the connection, if there is one, with what came on it; what waits is lost."""
        client, self._socket = self._socket, None
        self._frames = iter(())
        if client is not None:
            self._loop.remove_reader(client.fileno())
            self._announce()
            self._dropped += len(self._waiting)
            self._waiting.clear()
            self._bytes = 0
            arguments = (client, tuple(descriptors))
            self._closer = threading.Thread(target=_close, args=arguments, daemon=True)
            self._closer.start()

    def plug(self, cable: bool) -> None:
        """Put the cable in or pull it out; QEMU is not told, frames are lost."""
        self._cable = cable
        self._announce()

    def _announce(self) -> None:
        up = self._cable and self._socket is not None
        self._fabric.announce(self, self._addresses, up=up)

    def report(self) -> str:
        """Return a line with what went through the port."""
        state = "" if self._cable else ", cable out"
        state += ", not connected" if self._socket is None else ""
        counts = {
            "no room for": self._dropped,
            "refused": self._refused,
            "from addresses of others": self._network.trespasses(self)[0],
        }
        more = "".join(f", {name} {count}" for name, count in counts.items() if count)
        return f"NIC {self._name}: sent {self._sent}, received {self._received}{more}{state}"

    def close(self) -> None:
        """Leave the network, close and remove the socket."""
        self._drop()
        self._listener.close()
        self._fabric.detach(self)

    # -- from the network to the guest ----------------------------------------------------------

    def receive(self, message: Message) -> int:
        """Let frames wait for the guest, until the end of this turn."""
        if isinstance(message, Frames):
            for train in message.trains:
                for frame in train.frames:
                    self._wait(frame)
            if not self._flushing:
                self._flushing = True
                self._loop.call_soon(self._flush)
        return 0

    def _wait(self, frame: bytes) -> None:
        if self._socket is None or self._bytes + len(frame) > MOST_WAITING:
            self._dropped += 1
            return
        self._bytes += LENGTH.size + len(frame)
        self._waiting.append(LENGTH.pack(len(frame)) + frame)

    def _flush(self) -> None:
        """Send what waits for a bounded time; the rest waits on."""
        self._flushing = False
        end = monotonic() + TURN_SECONDS
        while self._waiting and self._socket is not None:
            try:
                self._retire(self._socket.sendmsg(islice(self._waiting, _BURST)))
            except BlockingIOError:
                self._flushing = True
                self._loop.call_later(AGAIN_SECONDS, self._flush)
                return
            except OSError:
                self._drop()
                return
            if monotonic() > end:
                self._flushing = True
                self._loop.call_soon(self._flush)
                return

    def _retire(self, count: int) -> None:
        """Take the first `count` bytes from what waits; of a part that was cut, the rest stays."""
        self._bytes -= count
        while count:
            part = self._waiting.popleft()
            if len(part) > count:
                self._waiting.appendleft(part[count:])
                return
            count -= len(part)
            self._sent += 1

    # -- from the guest to the network ----------------------------------------------------------

    def _receive_all(self) -> None:
        """Hand the guest's frames to the network for a bounded time; more wait in the socket."""
        if self._continues:
            return
        end = monotonic() + TURN_SECONDS
        while self._hand_on(end) and self._socket is not None:
            try:
                data, descriptors, _, _ = socket.recv_fds(self._socket, _READ, _DESCRIPTORS)
            except BlockingIOError:
                return
            except OSError:
                data, descriptors = b"", []
            if not data or descriptors:
                self._drop(descriptors)
                return
            self._frames = self._reader.feed(data)

    def _hand_on(self, end: float) -> bool:
        """Hand on what has arrived; returns False when time is over, and goes on in the next turn.

        One read holds thousands of small frames, each of which may go to all ports.
        """
        try:
            for frame in self._frames:
                if frame is None:
                    self._refused += 1
                else:
                    self._received += 1
                    self._fabric.send(self, Frames(frame[:MAC_SIZE], [Train([frame])]))
                if monotonic() > end:
                    self._continues = True
                    self._loop.call_next_turn(self._go_on)
                    return False
        except ValueError:
            self._drop()
        return True

    def _go_on(self) -> None:
        self._continues = False
        self._receive_all()


def _close(client: socket.socket, descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    client.close()
