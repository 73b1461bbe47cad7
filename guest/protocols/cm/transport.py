"""The ground of the connection manager: a port, datagrams, MAC addresses of neighbours."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of a MAD: 16-byte GID, 6-byte MAC address, traffic class.

    Two that differ in the traffic class only are the same peer.
    """

    gid: bytes
    mac: bytes
    traffic_class: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Received:
    """A MAD of 256 bytes with its sender."""

    mad: bytes
    peer: Peer


@dataclass(frozen=True, slots=True)
class LocalPort:
    """This device's port: IP address, 6-byte MAC, 16-byte GID and its index, node GUID."""

    ip: str
    mac: bytes
    gid: bytes
    gid_index: int
    guid: int


class Resolver(Protocol):
    """Finds the MAC address behind an IP address (bluebridge.guest.netif.NetInterface)."""

    def resolve(self, ip: str, timeout: float = ...) -> bytes:
        """6 bytes; raises `OSError` when nobody answers, `ValueError` for no neighbour."""


class MadTransport(Protocol):
    """Unreliable datagrams between general service interfaces."""

    def fileno(self) -> int:
        """Readable when `receive` may have something."""

    def receive(self) -> list[Received]:
        """Everything that arrived; never waits. Must be called once before polling `fileno`.

        Raises `DeviceLost` when the device is gone; it wants to be asked every few seconds.
        """

    def send(self, mad: bytes, peer: Peer) -> None:
        """Post one MAD; it may be lost. Raises `OSError` when it cannot even be posted."""

    def flush(self, timeout: float) -> None:
        """Wait up to `timeout` seconds until everything posted has left."""

    def close(self) -> None:
        """Give the queue pair back."""
