"""A port of NTRDMA's Ethernet device without a kernel interface: frames are datagrams of a socket.

As a program it is the other end of a TCP connection and sends every frame back:

    python -m tests.models.ntrdma_port ADDRESS:PORT
"""

from __future__ import annotations

import contextlib
import socket
import sys

from bluebridge.guest.ntrdma.interface import Interface, Tap
from bluebridge.guest.ntrdma.provider.device import NtrdmaDevice
from bluebridge.guest.ntrdma.transports.tcp import TcpTransport

FRAME_BYTES = 9014
FRAME_COUNT = 64
END = b"the last frame"


class SocketPort(Tap):
    """A `Tap` without a kernel: what a kernel would have is at the other end of `user`."""

    def __init__(self, *addresses: bytes) -> None:
        self.name = "test0"
        self.addresses = addresses
        self.carrier: list[bool] = []
        self.user, self._own = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._own.setblocking(False)
        self._own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)

    def fileno(self) -> int:
        return self._own.fileno()

    def read_into(self, space: memoryview) -> int:
        try:
            return self._own.recv_into(space)
        except BlockingIOError:
            return 0

    def write(self, frame: memoryview) -> bool:
        try:
            self._own.send(frame)
        except OSError:
            return False
        return True

    def set_carrier(self, up: bool) -> None:
        self.carrier.append(up)

    def has_address(self, gid: bytes) -> bool:
        return gid in self.addresses

    def close(self) -> None:
        self._own.close()


def with_port(place: str, port: SocketPort) -> NtrdmaDevice:
    """A device over TCP whose frames are those of a port."""
    return NtrdmaDevice(TcpTransport(place), network=Interface(port, FRAME_BYTES, FRAME_COUNT))


def main() -> None:
    """Send back what comes, up to the last frame; end with standard input."""
    port = SocketPort()
    with contextlib.closing(port.user), with_port(f"c:{sys.argv[1]}", port) as device:
        device.wait_ready(20.0)
        frame = b""
        while frame != END:
            frame = port.user.recv(FRAME_BYTES)
            port.user.send(frame)
        sys.stdin.read()
        print(device.network.counters() if device.network is not None else "")


if __name__ == "__main__":
    main()
