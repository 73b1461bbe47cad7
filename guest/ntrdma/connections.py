"""Connections by IP address over NTRDMA: messages travel as commands to the peer's driver.

Addresses are those of the interface of the Ethernet device, if there is one, else any that a
connection manager is opened with.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import threading
import time
from collections import deque

from bluebridge.device.layout.net.roce import ip_gid, ipv4_number
from bluebridge.device.layout.ntrdma.commands import IPV6
from bluebridge.guest.cm.interface import LocalPort, Peer, PeersLost, Received
from bluebridge.guest.cm.manager import ConnectionManager
from bluebridge.guest.ntrdma.interface import mac_of
from bluebridge.guest.ntrdma.provider.device import NtrdmaDevice
from bluebridge.guest.verbs import VerbsError

MAD_HEAD = bytes((1, 7, 2, 3, 0, 0, 0, 0))
"""The first 8 bytes of every CM MAD: versions, management class, method Send, no status."""


NO_MANAGER = (
    "the peer speaks version 0.1 of NTRDMA, which has no connection manager: "
    "exchange numbers of queue pairs, and address and key of memory, by a socket"
)
NO_IPV6 = "the peer's NTRDMA connects by IPv4 addresses only: choose one"
MOST_ARRIVED = 1024
"""The most messages that wait; further ones are lost, and their sender repeats them."""


class CommandTransport:
    """`MadTransport` and `Resolver` by commands of NTRDMA, for the own address of GID `gid`.

    Messages do not say to which of several addresses they go, so a device has one of these.
    """

    def __init__(self, device: NtrdmaDevice, gid: bytes) -> None:
        """Take the device's connection manager; raises `VerbsError` when it has one already."""
        self._device, self._gid = device, gid
        self._found = b""
        """The peer's IPv6 address that was found last."""
        self._service = device.service
        self._arrived: deque[Received | PeersLost] = deque()
        self._lock = threading.Lock()
        with self._service.lock:
            if self._service.correspondent is not None:
                raise VerbsError(f"{device.name} has a connection manager already")
            self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            if device.network is None:
                self._service.addresses.add(gid)
            self._service.correspondent = self

    def fileno(self) -> int:
        return self._fd

    def receive(self) -> list[Received | PeersLost]:
        self._device.health.check()
        with self._lock:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._fd)
            found = list(self._arrived)
            self._arrived.clear()
            return found

    def send(self, mad: bytes, peer: Peer) -> None:
        service = self._service
        with service.lock:
            if not service.engine.own.send_cm(mad[len(MAD_HEAD) :], self._gid):
                known = service.engine.ready
                raise OSError(errno.ENETDOWN, NO_MANAGER if known else "NTRDMA has no peer")
            service.run()

    def flush(self, timeout: float) -> None:
        """Do nothing: commands leave as they are posted."""

    def close(self) -> None:
        with self._service.lock:
            self._service.correspondent = None
            self._service.addresses.discard(self._gid)
        with self._lock:
            os.close(self._fd)
            self._fd = -1

    def resolve(self, ip: str, timeout: float = 2.0) -> bytes:
        """Return a value that stands for the peer's MAC address.

        Raises `TimeoutError` when it is not `ip`.
        """
        gid = ip_gid(ipaddress.ip_address(ip).packed)
        own = self._service.engine.own
        deadline = time.monotonic() + timeout
        while True:
            if self._service.wait_ready(max(0.0, deadline - time.monotonic())) and self._is(gid):
                self._found = self._found if ipv4_number(gid) else gid
                return mac_of(gid)
            if self._service.engine.ready and own.knows() is False:
                raise OSError(errno.EOPNOTSUPP, NO_MANAGER)
            if self._service.engine.ready and not ipv4_number(gid) and not own.knows(IPV6):
                raise OSError(errno.EAFNOSUPPORT, NO_IPV6)
            if time.monotonic() >= deadline:
                raise TimeoutError(errno.ETIMEDOUT, f"nobody answers at {ip}")
            time.sleep(0.02)

    def _is(self, gid: bytes) -> bool:
        own = self._service.engine.own
        try:
            self._service.call(lambda: own.resolve(gid, self._gid), "address")
        except VerbsError:
            self._device.health.check()
            return False
        return True

    def came(self, mad: bytes, sender: bytes) -> None:
        gid = sender if ipv4_number(sender) else self._found or sender
        with self._lock:
            if len(self._arrived) < MOST_ARRIVED:
                self._arrives(Received(MAD_HEAD + mad, Peer(gid, mac_of(gid))))

    def peer_lost(self) -> None:
        with self._lock:
            if not (self._arrived and isinstance(self._arrived[-1], PeersLost)):
                self._arrives(PeersLost())

    def _arrives(self, news: Received | PeersLost) -> None:
        if self._fd >= 0:
            self._arrived.append(news)
            os.eventfd_write(self._fd, 1)


def open_ntrdma_cm(device: NtrdmaDevice, ip: str) -> ConnectionManager:
    """Open a connection manager for the IP address `ip` of this side.

    With an Ethernet device it is an address of its interface, else any. Raises `VerbsError`.
    """
    address = ipaddress.ip_address(ip)
    gid = ip_gid(address.packed)
    network = device.network
    if network is not None and not network.port.has_address(gid):
        mend = f"ip addr add {ip}/{24 if address.version == 4 else 64} dev {network.port.name}"
        raise VerbsError(f"{network.port.name} has no address {ip}: {mend}")
    transport = CommandTransport(device, gid)
    guid = device.query_device().node_guid
    port = LocalPort(str(address), mac_of(gid), gid, 0, guid)
    return ConnectionManager(port, transport, transport, lambda _: device.peer())
