"""Copies between two bus addresses: memory, windows or registers."""

from __future__ import annotations

from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.ioat.registers import ChannelError
from bluebridge.device.pci.host import CLOSED, MasterBus, Place, clip


class CopyFault(Exception):
    """No device or memory answers at an address of a copy."""

    def __init__(self, error: ChannelError, address: int) -> None:
        super().__init__(f"{error.name} at {address:#x}")
        self.error = error


class Copier:
    """Copies for one engine. `strict` makes faults of accesses that hardware would not notice.

    A posted write into a closed window succeeds as far as its sender can tell; `dropped` counts the
    bytes. A read of a closed window returns all ones. When strict, both are faults, as accesses to
    addresses that nothing answers always are.
    """

    def __init__(self, bus: MasterBus, strict: bool = False) -> None:
        self._bus = bus
        self._strict = strict
        self.dropped = 0

    def copy(self, source: int, target: int, length: int, channel: int) -> None:
        """Copy in ascending order. Raises `CopyFault`; bytes before the fault are copied."""
        while length:
            here, there = self._pair(source, target, length)
            data = self._load(here, source)
            self._log(Kind.DMA_READ, here, source, data, channel)
            self._store(there, target, data)
            self._log(Kind.DMA_WRITE, there, target, data, channel)
            source += len(data)
            target += len(data)
            length -= len(data)

    def _pair(self, source: int, target: int, length: int) -> tuple[Place, Place]:
        """Both ends of the next piece, of one length: a register makes it a short one."""
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
