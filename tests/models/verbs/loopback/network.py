"""What joins loopback devices: a lock for all of them, and their queue pairs by address."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from bluebridge.guest.verbs import AddressVector, WcStatus

Pieces = Sequence[memoryview]
"""Memory, piece by piece."""


@dataclass(frozen=True, slots=True)
class LoopbackAddress(AddressVector):
    """The way to the device with that address."""

    device: bytes


@dataclass(frozen=True, slots=True)
class Message:
    """What takes a receive: the data of a SEND, or the immediate of a WRITE_WITH_IMM.

    `written` is the length of a WRITE, whose data went elsewhere; None says that `data` goes into
    the receive's own buffers.
    """

    data: bytes
    imm: int | None = None
    invalidate: int | None = None
    solicited: bool = False
    written: int | None = None


class Responder(Protocol):
    """A queue pair as its peer sees it; refusals put it into the error state.

    Each method gives the status for the peer's completion, or None to wait for a receive.
    """

    def accepts(self, device: bytes, qpn: int) -> bool:
        """Whether it is connected to that queue pair, and able to receive."""

    def take_message(self, message: Message) -> WcStatus | None:
        """Put a message where the next receive wants it."""

    def take_write(self, address: int, rkey: int, data: bytes) -> WcStatus:
        """Write into a region."""

    def give_read(self, address: int, rkey: int, target: Pieces) -> WcStatus:
        """Read from a region into the peer's memory."""

    def may_take_message(self) -> bool:
        """Whether there is a receive."""

    def when_receiving(self, qpn: int) -> None:
        """The queue pair `qpn` waits for a receive: resume it when there is one."""

    def resume(self) -> None:
        """A receive was posted at the peer: go on with what waits for it."""


class Network:
    """Devices that reach each other. Queue pairs are found by device address and number."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        """Held by every verb of every device."""
        self.pairs: dict[tuple[bytes, int], Responder] = {}
        self._devices = 0

    def new_address(self) -> bytes:
        """16 bytes that no other device has."""
        self._devices += 1
        return self._devices.to_bytes(16, "big")
