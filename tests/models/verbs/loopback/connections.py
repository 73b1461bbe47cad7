"""Connection managers of loopback devices: their MADs go from queue to queue."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import threading
from collections import deque

from bluebridge.device.layout.net.roce import ipv4_gid
from bluebridge.guest.protocols.cm import ConnectionManager
from bluebridge.guest.protocols.cm.path_qp import Rtr
from bluebridge.guest.protocols.cm.qp import RcPathQp
from bluebridge.guest.protocols.cm.transport import LocalPort, Peer, Received
from bluebridge.guest.verbs import AddressVector, QueuePair
from tests.models.verbs.loopback.completions import LoopbackHealth
from tests.models.verbs.loopback.device import LoopbackDevice
from tests.models.verbs.loopback.network import LoopbackAddress


class LoopbackTransport:
    """`MadTransport` to the other transports of a neighbourhood."""

    def __init__(
        self, own: Peer, others: dict[bytes, LoopbackTransport], health: LoopbackHealth
    ) -> None:
        self._own, self._others, self._health = own, others, health
        self._lock = threading.Lock()
        self._arrived: deque[Received] = deque()
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        others[own.gid] = self

    def fileno(self) -> int:
        """An eventfd."""
        return self._fd

    def receive(self) -> list[Received]:
        """Everything that arrived."""
        self._health.check()
        with self._lock:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._fd)
            found = list(self._arrived)
            self._arrived.clear()
            return found

    def send(self, mad: bytes, peer: Peer) -> None:
        """To a peer that is there; to any other it is lost."""
        if (other := self._others.get(peer.gid)) is not None:
            other.arrive(Received(mad, self._own))

    def arrive(self, received: Received) -> None:
        """Another transport has sent something."""
        with self._lock:
            self._arrived.append(received)
            os.eventfd_write(self._fd, 1)

    def flush(self, timeout: float) -> None:
        """Nothing stays behind."""

    def close(self) -> None:
        """Leave the neighbourhood."""
        del self._others[self._own.gid]
        os.close(self._fd)


class Neighbourhood:
    """IPv4 addresses of loopback devices, and who has them."""

    def __init__(self) -> None:
        self._devices: dict[bytes, bytes] = {}
        """Device address by GID."""
        self._transports: dict[bytes, LoopbackTransport] = {}

    def manager(self, device: LoopbackDevice, ip: str) -> ConnectionManager:
        """A connection manager for `device` at the address `ip`."""
        gid = ipv4_gid(ipaddress.IPv4Address(ip).packed)
        self._devices[gid] = device.address
        own = Peer(gid, device.address[-6:])
        transport = LoopbackTransport(own, self._transports, device.health)
        guid = device.query_device().node_guid
        port = LocalPort(ip, own.mac, gid, 0, guid)
        return ConnectionManager(port, transport, self, self._path_qp)

    def resolve(self, ip: str, timeout: float = 0.0) -> bytes:
        """The last bytes of the device's address; raises `TimeoutError` for an unknown one."""
        gid = ipv4_gid(ipaddress.IPv4Address(ip).packed)
        if gid not in self._devices:
            raise TimeoutError(f"{ip} is not there")
        return self._devices[gid][-6:]

    def _path_qp(self, qp: QueuePair) -> RcPathQp:
        return RcPathQp(qp, self._address_vector)

    def _address_vector(self, rtr: Rtr) -> AddressVector:
        return LoopbackAddress(self._devices[rtr.peer.gid])
