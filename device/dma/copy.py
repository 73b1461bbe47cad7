"""Copies between two bus addresses: memory, windows or registers."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.ioat.registers import ChannelError
from bluebridge.device.pci.host import CLOSED, MasterBus, Place, clip


class CopyFault(Exception):
    """An address of a copy at which no device or memory answers."""

    def __init__(self, error: ChannelError, address: int) -> None:
        super().__init__(f"{error.name} at {address:#x}")
        self.error = error


class Copy:
    """A copy under way for a channel with `left` bytes to go.

    It is made in pieces, with other work of the server in between. Each address is resolved anew
    for each piece.

    Nothing is kept of an address but its number: each piece is resolved when it moves.
    """

    def __init__(self, source: int, target: int, length: int, channel: int) -> None:
        self.source = source
        self.target = target
        self.left = length
        self.channel = channel

    def cancel(self) -> None:
        """Cancel the copy, so that no further byte is copied."""
        self.left = 0


class Copier:
    """Makes the copies of one engine; `strict` turns errors that hardware would miss into faults.

    A posted write into a closed window succeeds as far as its sender can tell; `dropped` counts the
    bytes. A read of a closed window returns all ones. When strict, both are faults, as accesses to
    addresses that nothing answers always are.
    """

    def __init__(
        self, bus: MasterBus, strict: bool = False, clock: Callable[[], float] = monotonic
    ) -> None:
        self._bus = bus
        self._strict = strict
        self._clock = clock
        self.dropped = 0

    def advance(self, copy: Copy, until: float) -> None:
        """Copy in ascending order, at least a piece, until all is done or the clock is `until`.

        A piece is a register, or memory up to the length of a descriptor: a byte of a register
        takes a thousand times as long as one of memory. Raises `CopyFault`; bytes before the fault
        are copied.
        """
        while copy.left:
            self._move(copy)
            if copy.left and self._clock() >= until:
                return

    def _move(self, copy: Copy) -> None:
        source, target, channel = copy.source, copy.target, copy.channel
        here, there = self._pair(source, target, copy.left)
        data = self._load(here, source)
        self._log(Kind.DMA_READ, here, source, data, channel)
        self._store(there, target, data)
        self._log(Kind.DMA_WRITE, there, target, data, channel)
        copy.source += len(data)
        copy.target += len(data)
        copy.left = max(0, copy.left - len(data))  # the store may have cancelled the copy

    def _pair(self, source: int, target: int, length: int) -> tuple[Place, Place]:
        """Return source and target of the next piece, clipped to one length.

        A register on either side makes it a short one.
        """
        while True:
            there = self._bus.place(target, length)
            here = clip(self._bus.place(source, there.length), there.length)
            there = clip(there, here.length)
            if here.length == there.length:
                return here, there
            length = min(here.length, there.length)

    def _load(self, place: Place, address: int) -> bytes | memoryview:
        if place.view is not None:
            return place.view
        if place.load is not None:
            return place.load()
        if place.fault == CLOSED and not self._strict:
            return b"\xff" * place.length
        raise CopyFault(ChannelError.READ_DATA, address)

    def _store(self, place: Place, address: int, data: bytes | memoryview) -> None:
        if place.view is not None:
            place.view[:] = data
        elif place.store is not None:
            place.store(bytes(data))
        elif self._strict or place.fault != CLOSED:
            raise CopyFault(ChannelError.WRITE_DATA, address)
        else:
            self.dropped += len(data)

    def _log(
        self, kind: Kind, place: Place, address: int, data: bytes | memoryview, channel: int
    ) -> None:
        self._bus.note_dma(kind, address, len(data), data, What.COPY, channel)
        if place.far is not None and place.view is not None:
            bus, beyond = place.far
            bus.note_dma(kind, beyond, len(data), data, What.WINDOW, channel)
