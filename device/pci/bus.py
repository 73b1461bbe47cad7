"""The two sides of a PCI function: what a device model gets from its host, and what it offers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from bluebridge.device.layout.buslog import Kind, What

Run = tuple[int, int]
"""A stretch of guest-physical memory: address, length in bytes."""


class DmaError(Exception):
    """A bus address that no guest memory stands behind."""

    def __init__(self, address: int, length: int) -> None:
        super().__init__(f"no guest memory at {address:#x} for {length} bytes")
        self.address = address
        self.length = length


class Timer(Protocol):
    """A call that is due later."""

    def cancel(self) -> None:
        """Forget the call; harmless when it already ran."""


class HostBus(Protocol):
    """What a device model may do to the guest it is plugged into.

    All of it happens in one thread. Addresses are guest-physical. Memory is hostile: read once,
    check, then use. Views must not be kept past the current call, since the guest can unmap.
    """

    @property
    def name(self) -> str:
        """Short name of the device in the log: `a`, `b`."""

    def read(self, address: int, length: int, what: What, obj: int = 0) -> bytes:
        """Copy of guest memory, logged as a DMA read; raises `DmaError`."""

    def write(
        self, address: int, data: bytes | bytearray | memoryview, what: What, obj: int = 0
    ) -> None:
        """Write guest memory, logged as a DMA write; raises `DmaError` before a byte moves."""

    def views(self, runs: Sequence[Run]) -> list[memoryview]:
        """Writable views of the runs, not logged; raises `DmaError` if any byte is missing."""

    def note_dma(
        self,
        kind: Kind,
        address: int,
        length: int,
        data: bytes | memoryview,
        what: What,
        obj: int = 0,
    ) -> None:
        """Log a transfer that was done through views; `data` are its first bytes."""

    def note(self, kind: Kind, text: str, address: int = 0, obj: int = 0) -> None:
        """Log something else: a command, a NAK, a retry."""

    def concern(self, qpn: int, index: int) -> None:
        """What is logged from now on is for the send work request `index` of queue pair `qpn`.

        Until the guest accesses the device again, or this or `resume` is called.
        """

    def resume(self, work: int) -> None:
        """As `concern`, for a message's `work`: what it is for was said where it was sent."""

    def interrupt(self, vector: int) -> None:
        """Assert MSI-X `vector` (logged); one the guest has not set up is dropped and noted."""

    def call_later(self, seconds: float, action: Callable[[], None]) -> Timer:
        """Run `action` in the server's loop after `seconds`."""

    def call_soon(self, action: Callable[[], None]) -> None:
        """Run `action` in the server's loop after the current message, before sleeping."""


class Model(Protocol):
    """A device model, as the PCI endpoint drives it.

    An exception that leaves one of these calls fails that access (the guest reads all-ones), is
    logged with its traceback, and leaves the server alive.
    """

    def bar_read(self, bar: int, offset: int, length: int) -> bytes:
        """`length` bytes (1, 2, 4 or 8) at `offset` of BAR `bar`."""

    def bar_write(self, bar: int, offset: int, data: bytes) -> None:
        """Bytes written to BAR `bar`, as they stood on the bus."""

    def reset(self) -> None:
        """Function-level or vfio-user reset, or the guest vanished: back to power-on state."""
