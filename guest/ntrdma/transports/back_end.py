"""The transport of a service, which can sleep until something happens, and its memory."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from bluebridge.guest.bus.dma_memory import Arena
from bluebridge.guest.bus.interface import DmaMemory, Function
from bluebridge.guest.ntrdma.engine.transport import Message, Transport

_UNUSED = 4096
"""The bytes at the beginning of a piece that nobody gets: no address is 0."""

_CAPABILITIES = 0x34
_MSIX = 0x11
_TABLE = 4
_ENTRY_BYTES = 16
_INTERRUPTS = range(0xFEE00000, 0xFEF00000)


@dataclass(slots=True)
class News:
    """The events since the last look: links down or up in order, signals, lost stores."""

    links: list[bool] = field(default_factory=list)
    signalled: bool = False
    failed: bool = False
    """Whether stores were not carried out, which ends what is between the peers."""


class BackEnd(Transport, Protocol):
    """A transport with descriptors to wait for. Not safe for threads."""

    seen_in_memory: bool
    """Whether stores of the peer are there without `serve`."""

    @property
    def wait_for(self) -> list[tuple[int, int]]:
        """Descriptors, each with the events of `select.poll` that want `serve`."""

    @property
    def pause(self) -> float:
        """The time in seconds to sleep at most."""

    def serve(self, silent: bool = False) -> News:
        """Take what has come; never waits, but for a device that is being reset.

        The peer has been `silent` for a while: the way to it may be broken. Raises `DeviceError`
        when the device is gone.
        """

    def drain(self) -> None:
        """Wait until all stores are carried out, for a second at most."""

    def close(self) -> None:
        """Let what was asked for leave, and give everything back."""


class Mapped:
    """A piece of memory that is found by its address until it is freed."""

    def __init__(self, memory: DmaMemory, forget: Callable[[int], None]) -> None:
        self.address = memory.address
        self.view = memory.view
        self._memory = memory
        self._forget = forget

    def free(self) -> None:
        self._forget(self.address)
        self._memory.free()


class Mappings:
    """Pieces of memory, found by address."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._views: dict[int, memoryview] = {}

    def add(self, memory: DmaMemory) -> Mapped:
        """Remember a piece."""
        insort(self._starts, memory.address)
        self._views[memory.address] = memory.view
        return Mapped(memory, self._forget)

    def _forget(self, address: int) -> None:
        if self._views.pop(address, None) is not None:
            self._starts.remove(address)

    def view(self, address: int, length: int) -> memoryview | None:
        """The bytes at an address; None when they are not within one piece."""
        place = bisect_right(self._starts, address) - 1
        if place < 0:
            return None
        start = self._starts[place]
        view = self._views[start]
        offset = address - start
        return view[offset : offset + length] if offset + length <= len(view) else None


class Shown:
    """A piece of memory that is all that a peer reaches; its addresses begin at `origin`."""

    def __init__(self, piece: DmaMemory, origin: int) -> None:
        self.address, self.size = piece.address, len(piece.view)
        self._arena = Arena()
        self._arena.add(origin + _UNUSED, piece.view[_UNUSED:])

    def allocate(self, length: int, align: int) -> DmaMemory:
        """Take contiguous zeroed memory out of the piece. Raises `MemoryError`."""
        memory = self._arena.allocate(length, align)
        if memory is None:
            raise MemoryError(
                f"no {length} contiguous bytes are left of the {self.size:#x} that the window shows"
            )
        return memory


def message_of(function: Function, vector: int) -> Message | None:
    """Address and data of a vector's message; None when the table does not show them."""
    where = _capability(function, _MSIX)
    if not where:
        return None
    table = function.load_config(where + _TABLE, 4)
    bar, offset = table & 7, (table & ~7) + vector * _ENTRY_BYTES
    try:
        address = function.load(bar, offset, 4) | function.load(bar, offset + 4, 4) << 32
        data = function.load(bar, offset + 8, 4)
    except (KeyError, OSError, ValueError):
        return None
    return Message(address, data) if address in _INTERRUPTS else None


def _capability(function: Function, wanted: int) -> int:
    """Where a capability is in config space; 0 when there is none."""
    where = function.load_config(_CAPABILITIES, 1)
    for _ in range(48):
        if not where:
            return 0
        if function.load_config(where, 1) == wanted:
            return where
        where = function.load_config(where + 1, 1)
    return 0
