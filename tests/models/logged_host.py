"""A host that lives in the test process and keeps a bus log, as the server's endpoints do."""

from __future__ import annotations

from typing import Final

from bluebridge.device.buslog.record import INDEX_MASK, WORK_DEVICE_SHIFT, WORK_QPN_SHIFT
from bluebridge.device.buslog.writer import EventLog
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.events import Fact, Value
from tests.models.fake_host import FakeHost

_MEMORY: Final = 8 << 20


class LoggedHost(FakeHost):
    """A host whose device is called `name` in `log`, with the name of its `card`."""

    def __init__(self, name: str, log: EventLog, card: str, memory: int = _MEMORY) -> None:
        super().__init__(name, size=memory)
        self._log = log
        self._device = log.device(name, card)

    def store(self, bar: int, offset: int, data: bytes) -> None:
        """Log a store of the guest; what follows belongs to no work request."""
        self._log.work = 0
        self._log.record(self._device, Kind.MMIO_WRITE, bar, offset, len(data), data)

    def read(self, address: int, length: int, what: What, obj: int = 0) -> bytes:
        data = super().read(address, length, what, obj)
        self._log.record(self._device, Kind.DMA_READ, 0, address, length, data, what, obj)
        return data

    def note_dma(
        self,
        kind: Kind,
        address: int,
        length: int,
        data: bytes | memoryview,
        what: What,
        obj: int = 0,
    ) -> None:
        super().note_dma(kind, address, length, data, what, obj)
        self._log.record(self._device, kind, 0, address, length, data, what, obj)

    def tell(self, fact: Fact, **values: Value) -> None:
        super().tell(fact, **values)
        self._log.tell(self._device, fact, **values)

    def concern(self, qpn: int, index: int) -> None:
        head = self._device + 1 << WORK_DEVICE_SHIFT
        self._log.work = head | qpn << WORK_QPN_SHIFT | index & INDEX_MASK

    def resume(self, work: int) -> None:
        self._log.work = work

    def interrupt(self, vector: int) -> None:
        super().interrupt(vector)
        self._log.record(self._device, Kind.IRQ, 0, vector, 0, b"")
