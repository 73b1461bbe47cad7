"""A VXLAN tunnel endpoint: frames to datagrams for peers and back, and the socket of bursts.

The socket sends and receives many datagrams of one size in a system call: Linux cuts what is sent
to pieces of a size (UDP_SEGMENT), and hands out datagrams that came one after the other as one
(UDP_GRO). Peers need not know.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from bluebridge.device.fabric.addresses import is_group
from bluebridge.device.layout.net.ethernet import HEADER_SIZE
from bluebridge.device.layout.net.ip import VNI_VALID, VXLAN

MAC_SIZE: Final = 6
LONGEST: Final = 9600
"""Most bytes of a frame: those of the adapter's largest MTU, with room for tags."""

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


class Refusal(StrEnum):
    """Why a datagram was dropped."""

    STRANGER = "unknown host"
    PORT = "other port"
    SHORT = "truncated"
    LONG = "too long"
    FORM = "no VXLAN"
    NETWORK = "other network"
    SOURCE = "no source"


class Endpoint(NamedTuple):
    """An address of UDP: a numeric host, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Tunnel:
    """The tunnel of the network `vni` to `peers`; `refused` counts what was dropped, by reason."""

    def __init__(self, vni: int, peers: Sequence[Endpoint]) -> None:
        self.peers = tuple(peers)
        self.header: Final = bytes(VXLAN.pack(flags=VNI_VALID, vni=vni))
        self.refused = dict.fromkeys(Refusal, 0)
        self._hosts = frozenset(peer.host for peer in peers)

    def admits(self, source: Endpoint) -> bool:
        """Return True if a datagram is from a peer's own port; count it if it is not."""
        if source in self.peers:
            return True
        self.refused[Refusal.PORT if source.host in self._hosts else Refusal.STRANGER] += 1
        return False

    def read(self, datagram: bytes) -> bytes | None:
        """Return the frame in a datagram of a peer; None, counted, for anything else."""
        why = self._objection(datagram)
        if why is not None:
            self.refused[why] += 1
            return None
        return datagram[VXLAN.size :]

    def _objection(self, datagram: bytes) -> Refusal | None:
        if len(datagram) < VXLAN.size + HEADER_SIZE:
            return Refusal.SHORT
        if len(datagram) > VXLAN.size + LONGEST:
            return Refusal.LONG
        if datagram[0] != VNI_VALID:
            return Refusal.FORM
        if datagram[4:7] != self.header[4:7]:
            return Refusal.NETWORK
        source = datagram[VXLAN.size + MAC_SIZE : VXLAN.size + 2 * MAC_SIZE]
        return Refusal.SOURCE if is_group(source) or not any(source) else None


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
        """Send those of `datagrams` that fit into one call; returns how many, 0 without room."""
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
