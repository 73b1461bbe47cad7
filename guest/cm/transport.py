"""What the connection manager needs of the queue pair 1 below it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Peer:
    """Where a MAD goes to or came from: 16-byte GID and 6-byte MAC address."""

    gid: bytes
    mac: bytes


@dataclass(frozen=True, slots=True)
class Received:
    """A MAD of 256 bytes with its sender."""

    mad: bytes
    peer: Peer


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
