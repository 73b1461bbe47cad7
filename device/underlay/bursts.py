"""A UDP socket that sends and receives many datagrams of one size in a system call.

Linux cuts what is sent to pieces of a size (UDP_SEGMENT), and hands out datagrams that came one
after the other as one (UDP_GRO). Peers need not know.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
from collections.abc import Iterator, Sequence
from typing import Final

from bluebridge.device.underlay.tunnel import Endpoint

UDP_SEGMENT: Final = 103
UDP_GRO: Final = 104
"""Options of linux/udp.h that the module `socket` has no names for."""
MOST_SEGMENTS: Final = 64
"""UDP_MAX_SEGMENTS of Linux before 6.9."""
MOST_BYTES: Final = 65000
"""Most bytes of a burst, a little less than what an IP packet holds."""
BUFFER_BYTES: Final = 4 << 20
"""Bytes that the kernel is asked to keep in either direction; it may grant less."""
_SIZE: Final = struct.Struct("i")
_SEGMENT: Final = struct.Struct("H")
_MTU_DISCOVER: Final = {
    socket.AF_INET: (socket.IPPROTO_IP, 10),  # IP_MTU_DISCOVER
    socket.AF_INET6: (socket.IPPROTO_IPV6, 23),  # IPV6_MTU_DISCOVER
}
_DONT: Final = 0  # IP_PMTUDISC_DONT: what is longer than the path is sent in fragments
_TOO_LONG: Final = (errno.EMSGSIZE, errno.EINVAL)
_BLOCKS: Final = (errno.EAGAIN, errno.ENOBUFS)


class BurstSocket:
    """A socket bound to `own`. Raises `OSError` when it cannot be."""

    def __init__(self, own: Endpoint) -> None:
        family = socket.AF_INET6 if ":" in own.host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                self._socket.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
            self._socket.setsockopt(*_MTU_DISCOVER[family], _DONT)
            with contextlib.suppress(OSError):  # Linux before 5.0: datagrams come one by one
                self._socket.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
            self._socket.bind(own)
        except BaseException:
            self._socket.close()
            raise
        self._whole_from: dict[Endpoint, int] = {}
        """Of each peer the size from which its path takes no bursts, since it makes fragments."""

    def fileno(self) -> int:
        """Return the descriptor, which is readable when something came."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def send(self, peer: Endpoint, datagrams: Sequence[bytes]) -> int:
        """Send the first of `datagrams`, and those behind it that fit into the same call.

        Returns how many were sent, 0 when the kernel has no room now. Raises `OSError`.
        """
        burst = datagrams[: self._alike(peer, datagrams)]
        ancillary = []
        if len(burst) > 1:
            ancillary = [(socket.IPPROTO_UDP, UDP_SEGMENT, _SEGMENT.pack(len(burst[0])))]
        try:
            self._socket.sendmsg(burst, ancillary, 0, peer)
        except OSError as error:
            if error.errno in _BLOCKS:
                return 0
            if error.errno not in _TOO_LONG or len(burst) == 1:
                raise
            self._whole_from[peer] = len(burst[0])
            return self.send(peer, burst[:1])
        return len(burst)

    def _alike(self, peer: Endpoint, datagrams: Sequence[bytes]) -> int:
        """Return how many may go in one call: of one size, of which the last may be shorter."""
        size = len(datagrams[0])
        if size >= self._whole_from.get(peer, MOST_BYTES):
            return 1
        most = min(len(datagrams), MOST_SEGMENTS, MOST_BYTES // size)
        for count in range(1, most):
            if len(datagrams[count]) != size:
                return count + (len(datagrams[count]) < size)
        return most

    def receive(self) -> Iterator[tuple[Endpoint, bytes]]:
        """Yield the datagrams of one call, each with its source; none when nothing is there."""
        try:
            data, ancillary, _, source = self._socket.recvmsg(1 << 16, 64)
        except OSError:  # nothing is there, or an error that the network reported
            return
        sender = Endpoint(source[0], source[1])
        size = len(data)
        for level, kind, value in ancillary:
            if (level, kind) == (socket.IPPROTO_UDP, UDP_GRO):
                (size,) = _SIZE.unpack_from(value)
        for at in range(0, max(1, len(data)), max(1, size)):
            yield sender, data[at : at + size]
