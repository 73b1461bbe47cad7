"""The interfaces below the connection manager: a port, datagrams, MAC addresses of neighbours."""

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
        """Return a neighbour's MAC address (6 bytes).

        Raises `OSError` when nobody answers, `ValueError` for an address that is no neighbour's.
        """


class MadTransport(Protocol):
    """A transport of unreliable datagrams between general service interfaces."""

    def fileno(self) -> int:
        """Return a descriptor that is readable when `receive` may have something."""

    def receive(self) -> list[Received]:
        """Return all MADs that arrived without waiting; call once before polling `fileno`.

        Raises `DeviceLost` when the device is gone, for which it must be called every few seconds.
        """

    def send(self, mad: bytes, peer: Peer) -> None:
        """Post one MAD; it may be lost. Raises `OSError` when it cannot even be posted."""

    def flush(self, timeout: float) -> None:
        """Wait up to `timeout` seconds until everything posted has left."""

    def close(self) -> None:
        """Destroy the queue pair."""
