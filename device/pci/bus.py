"""The interfaces between a PCI function and its device model: `HostBus` and `Model`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from bluebridge.device import pieces
from bluebridge.device.layout.buslog import Kind, What

Run = pieces.Run


class DmaError(Exception):
    """A bus address without guest memory."""

    def __init__(self, address: int, length: int) -> None:
        super().__init__(f"no guest memory at {address:#x} for {length} bytes")
        self.address = address
        self.length = length


class Timer(Protocol):
    """A call that is due later."""

    def cancel(self) -> None:
        """Cancel the call; no effect when it already ran."""


class HostBus(Protocol):
    """The accesses of a device model to its guest.

    All calls are in one thread. Addresses are guest-physical. The guest can change its memory at
    any time: read once, check, then use. Views must not be kept past the current call, since the
    guest can unmap the memory.
    """

    @property
    def name(self) -> str:
        """Short name of the device in the log: `a`, `b`."""

    def read(self, address: int, length: int, what: What, obj: int = 0) -> bytes:
        """Copy of guest memory, logged as a DMA read; raises `DmaError`."""

    def write(
        self, address: int, data: bytes | bytearray | memoryview, what: What, obj: int = 0
    ) -> None:
        """Write guest memory, logged as a DMA write; raises `DmaError` before a byte is written."""

    def views(self, runs: Sequence[Run]) -> Sequence[memoryview]:
        """Writable views of the runs, not logged; raises `DmaError` if any byte is not memory."""

    def note_dma(
        self,
        kind: Kind,
        address: int,
        length: int,
        data: bytes | memoryview,
        what: What,
        obj: int = 0,
    ) -> None:
        """Log a transfer that was made through views; `data` are its first bytes."""

    def note_transfers(
        self,
        kind: Kind,
        runs: Sequence[Run],
        views: Sequence[memoryview],
        count: int,
        most: int,
        what: What,
        obj: int,
    ) -> None:
        """Log the first `count` runs, a transfer each, with at most `most` of its first bytes.

        `views` are those of all runs, in the same order.
        """

    def note(self, kind: Kind, text: str, address: int = 0, obj: int = 0) -> None:
        """Log a line of text: a command, a NAK, a retry."""

    def concern(self, qpn: int, index: int) -> None:
        """Attribute the following log events to the send work request `index` of queue pair `qpn`.

        Until the next access by the guest or the next call of this or `resume`.
        """

    def resume(self, work: int) -> None:
        """As `concern`, with the `work` of a message, which names its sender's work request."""

    def interrupt(self, vector: int) -> None:
        """Assert MSI-X `vector` (logged); one the guest has not set up is dropped and noted."""

    def call_later(self, seconds: float, action: Callable[[], None]) -> Timer:
        """Run `action` in the server's loop after `seconds`."""

    def call_soon(self, action: Callable[[], None]) -> None:
        """Run `action` in the server's loop after the current message, before sleeping."""

    def call_next_turn(self, action: Callable[[], None]) -> None:
        """Run `action` in the next turn of the server's loop, however much others have to do.

        For short calls of which a function makes one of each kind at a time.
        """


class Model(Protocol):
    """A device model, as the PCI endpoint calls it.

    An exception of a call fails that access (the guest reads all ones) and is logged with its
    traceback; the server goes on.
    """

    def bar_read(self, bar: int, offset: int, length: int) -> bytes:
        """`length` bytes (1, 2, 4 or 8) at `offset` of BAR `bar`."""

    def bar_write(self, bar: int, offset: int, data: bytes) -> None:
        """Write bytes to BAR `bar`, in the order of the bus."""

    def reset(self) -> None:
        """Return to power-on state: after a function-level or vfio-user reset, or a lost client."""
