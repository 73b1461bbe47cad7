"""The port of a network at which a virtio NIC of a guest is, behind QEMU's `-netdev stream`.

On the stream each frame follows its length, four bytes, big-endian (QEMU's net/stream.c); it
begins at the destination address and has no FCS.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from time import monotonic
from typing import Final

from bluebridge.device.fabric.interface import Fabric, Later, Soon
from bluebridge.device.fabric.messages import Frames, Message, Train
from bluebridge.device.layout.net.ethernet import HEADER_SIZE
from bluebridge.device.underlay.port import AGAIN_SECONDS, MOST_WAITING, TURN_SECONDS
from bluebridge.device.underlay.tunnel import LONGEST, MAC_SIZE

LENGTH: Final = struct.Struct(">I")
MOST_LENGTH: Final = 69632
"""Most bytes of a frame that QEMU sends (net.h: NET_BUFSIZE)."""
_READ: Final = 1 << 18
_DESCRIPTORS: Final = 253
"""Most descriptors of one message (SCM_MAX_FD): with room for all, none is closed by receiving."""
_BURST: Final = 64
"""Frames that are sent in one call at most."""


Lost = Callable[[Sequence[int]], None]


class FrameReader:
    """Finds the frames in what arrives on a stream; `refused` counts those that are no frames."""

    def __init__(self) -> None:
        self.refused = 0
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the frames that are whole now. Raises `ValueError` for a stream out of step."""
        data = self._rest + data
        at = 0
        while at + LENGTH.size <= len(data):
            (length,) = LENGTH.unpack_from(data, at)
            if length > MOST_LENGTH:
                raise ValueError(f"a frame of {length} bytes")
            end = at + LENGTH.size + length
            if end > len(data):
                break
            if HEADER_SIZE <= length <= LONGEST:
                yield data[at + LENGTH.size : end]
            else:
                self.refused += 1
            at = end
        self._rest = data[at:]


class NicPort:
    """A `FabricPort` for the NIC with address `mac`, whose link is up while QEMU is connected.

    `soon` and `later` call actions. `lost` is called when the connection has to end, with the
    descriptors that came on it (QEMU sends none): closing them may take as long as they like.
    """

    def __init__(self, fabric: Fabric, mac: bytes, soon: Soon, later: Later, lost: Lost) -> None:
        self._fabric = fabric
        self._addresses = frozenset([mac])
        self._soon = soon
        self._later = later
        self._lost = lost
        self._socket: socket.socket | None = None
        self._reader = FrameReader()
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._flushing = False
        self.sent = self.received = self.dropped = self.refused = 0
        fabric.attach(self)
        fabric.announce(self, self._addresses, up=False)

    def connect(self, client: socket.socket) -> None:
        """Take a connection of QEMU, which must not block; the NIC's link is up."""
        self._socket = client
        self._reader = FrameReader()
        self._fabric.announce(self, self._addresses, up=True)

    def disconnect(self) -> socket.socket | None:
        """Take the connection away and return it, if there is one; what waits is lost."""
        client, self._socket = self._socket, None
        if client is not None:
            self._fabric.announce(self, self._addresses, up=False)
            self.dropped += len(self._waiting)
            self._waiting.clear()
            self._bytes = 0
        return client

    def leave(self) -> None:
        """Leave the network."""
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
                self._soon(self._flush)
        return 0

    def _wait(self, frame: bytes) -> None:
        if self._socket is None or self._bytes + len(frame) > MOST_WAITING:
            self.dropped += 1
            return
        self._bytes += LENGTH.size + len(frame)
        self._waiting.append(LENGTH.pack(len(frame)) + frame)

    def _flush(self) -> None:
        """Send what waits for a bounded time; the rest waits on."""
        self._flushing = False
        end = monotonic() + TURN_SECONDS
        while self._waiting and self._socket is not None:
            try:
                self._sent(self._socket.sendmsg(islice(self._waiting, _BURST)))
            except BlockingIOError:
                self._flushing = True
                self._later(AGAIN_SECONDS, self._flush)
                return
            except OSError:
                self._lost(())
                return
            if monotonic() > end:
                self._flushing = True
                self._soon(self._flush)
                return

    def _sent(self, count: int) -> None:
        """Take the first `count` bytes from what waits; of a part that was cut, the rest stays."""
        self._bytes -= count
        while count:
            part = self._waiting.popleft()
            if len(part) > count:
                self._waiting.appendleft(part[count:])
                return
            count -= len(part)
            self.sent += 1

    # -- from the guest to the network ----------------------------------------------------------

    def receive_all(self) -> None:
        """Hand the guest's frames to the network for a bounded time; more wait in the socket."""
        end = monotonic() + TURN_SECONDS
        while self._socket is not None:
            try:
                data, descriptors, _, _ = socket.recv_fds(self._socket, _READ, _DESCRIPTORS)
            except BlockingIOError:
                return
            except OSError:
                data, descriptors = b"", []
            if not data or descriptors or not self._arrive(data):
                self._lost(descriptors)
                return
            if monotonic() > end:
                return

    def _arrive(self, data: bytes) -> bool:
        """Hand on the frames in `data`; returns whether the stream is in step."""
        before = self._reader.refused
        try:
            for frame in self._reader.feed(data):
                self.received += 1
                self._fabric.send(self, Frames(frame[:MAC_SIZE], [Train([frame])]))
        except ValueError:
            return False
        finally:
            self.refused += self._reader.refused - before
        return True
