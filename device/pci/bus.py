"""The interfaces between a PCI function and its device model: `HostBus` and `Model`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Protocol

from bluebridge.device import pieces
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.events import Fact, Value

Run = pieces.Run


class DmaError(Exception):
    """A DMA access to a bus address at which there is no guest memory."""

    def __init__(self, address: int, length: int) -> None:
        super().__init__(f"no guest memory at {address:#x} for {length} bytes")
        self.address = address
        self.length = length


class Presence(Enum):
    """The parts of a function that answer on the bus."""

    HERE = auto()
    NO_REGISTERS = auto()
    """Accesses to BARs are not completed: reads return all ones, writes are lost."""
    GONE = auto()
    """Nothing is: neither BARs nor configuration space, and the function reaches no memory."""


class Timer(Protocol):
    """A scheduled call that can be cancelled, as `HostBus.call_later` returns it."""

    def cancel(self) -> None:
        """Cancel the call; this has no effect when the call has already run."""


class HostBus(Protocol):
    """The accesses of a device model to its guest.

    All calls are in one thread. Addresses are guest-physical. The guest can change its memory at
    any time: read once, check, then use. Views must not be kept past the current call, since the
    guest can unmap the memory.
    """

    @property
    def name(self) -> str:
        """Short name of the device in the log, such as `a` or `b`."""

    def read(self, address: int, length: int, what: What, obj: int = 0) -> bytes:
        """Return a copy of guest memory, logged as a DMA read; raises `DmaError`."""

    def write(
        self, address: int, data: bytes | bytearray | memoryview, what: What, obj: int = 0
    ) -> None:
        """Write guest memory, logged as a DMA write; raises `DmaError` before it writes a byte."""

    def views(self, runs: Sequence[Run]) -> Sequence[memoryview]:
        """Return writable views of the runs, without a log event.

        Raises `DmaError` if any byte is not guest memory.
        """

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
        """Log the first `count` runs as one transfer each.

        Of each transfer at most `most` first bytes are kept. `views` are those of all runs, in the
        same order.
        """

    def tell(self, fact: Fact, **values: Value) -> None:
        """Log a fact with the values of its fields; those that are not given are 0 or empty."""

    def concern(self, qpn: int, index: int) -> None:
        """Attribute the following log events to the send work request `index` of queue pair `qpn`.

        This holds until the next access by the guest or the next call of `concern` or `resume`.
        """

    def resume(self, work: int) -> None:
        """Attribute the following log events to the work request that `work` of a message names.

        `work` names the work request of the message's sender; the effect lasts as that of
        `concern`.
        """

    def interrupt(self, vector: int) -> None:
        """Assert MSI-X `vector`, with a log event.

        A vector that the guest has not set up is dropped with a note in the log.
        """

    def refuse(self, page: int, *, refused: bool) -> None:
        """Let no access reach the page of 4 KiB at bus address `page`, or let them again."""

    def set_presence(self, presence: Presence) -> None:
        """Say what of the function answers on the bus from now on."""

    def reset_function(self) -> None:
        """Reset the function as a function-level reset does, without having been asked."""

    def call_later(self, seconds: float, action: Callable[[], None]) -> Timer:
        """Run `action` in the server's loop after `seconds`."""

    def call_soon(self, action: Callable[[], None]) -> None:
        """Run `action` in the server's loop after the current message, before sleeping."""

    def call_next_turn(self, action: Callable[[], None]) -> None:
        """Run `action` in the next turn of the server's loop, however much other work is due.

        Meant for short calls: a function may have one of each kind pending at a time.
        """


class Model(Protocol):
    """A device model, as the PCI endpoint calls it.

    An exception in one of these methods fails that access (the guest reads all ones) and is logged
    with its traceback; the server goes on.
    """

    def bar_read(self, bar: int, offset: int, length: int) -> bytes:
        """Return `length` bytes (1, 2, 4 or 8) from `offset` of BAR `bar`."""

    def bar_write(self, bar: int, offset: int, data: bytes) -> None:
        """Write bytes to BAR `bar`, in the order in which they were on the bus."""

    def reset(self) -> None:
        """Return to power-on state.

        This is called after a function-level or vfio-user reset and when the client is lost.
        """
