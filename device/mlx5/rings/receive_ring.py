"""Receive queues: rings whose entries a doorbell record in guest memory announces."""

from __future__ import annotations

from struct import Struct
from typing import Final

from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.mlx5.wqe import INVALID_LKEY, SEGMENT_BYTES
from bluebridge.device.pci.bus import DmaError, HostBus
from bluebridge.device.rdma.memory.scatter_gather import Sge
from bluebridge.device.rdma.pairs.queues import OwnReceiveQueue
from bluebridge.device.rdma.work import ReceiveWork
from bluebridge.device.rings.queue_buffer import QueueBuffer

COUNTER_MASK: Final = 0xFFFF
LENGTH_MASK: Final = 0x7FFFFFFF
_DATA: Final = Struct(">IIQ")


def parse_receive(raw: bytes) -> list[Sge]:
    """Return the scatter list of an entry: its segments up to the one that ends it."""
    sges: list[Sge] = []
    for offset in range(0, len(raw) - SEGMENT_BYTES + 1, SEGMENT_BYTES):
        length, lkey, address = _DATA.unpack_from(raw, offset)
        if not length and lkey == INVALID_LKEY:
            break
        if length:
            sges.append((lkey, address, length & LENGTH_MASK))
    return sges


class ReceiveRing(OwnReceiveQueue):
    """The entries of one RQ, `1 << log_size` of `1 << shift` bytes each.

    The doorbell record is read only when the entries known of are used up.
    """

    def __init__(
        self,
        bus: HostBus,
        rqn: int,
        pd: int,
        buffer: QueueBuffer,
        log_size: int,
        shift: int,
        record: int,
    ) -> None:
        self._bus = bus
        self._rqn = rqn
        self._pd = pd
        self.buffer = buffer
        self.mask = (1 << log_size) - 1
        self.shift = shift
        self.record = record
        self.index = 0
        self.head = 0

    def restart(self) -> None:
        """Begin anew at the first entry, with none posted."""
        self.index = self.head = 0

    def waiting(self) -> bool:
        """Return True if an entry is posted; reads the doorbell record if need be.

        A look that finds nothing new stays out of the log, since some callers poll.
        """
        return self.head != self.index or self._look()

    def _look(self) -> bool:
        """Read the doorbell record; returns True if it holds a new number."""
        try:
            word = b"".join(self._bus.views([(self.record, 4)]))
        except DmaError:
            return False
        head = int.from_bytes(word[2:], "big")
        if head == self.head:
            return False
        self.head = head
        self._bus.note_dma(Kind.DMA_READ, self.record, 4, word, What.DOORBELL_RECORD, self._rqn)
        return True

    def take(self) -> ReceiveWork | None:
        """Consume and return the next entry; None when there is none. Raises `DmaError`."""
        taken = self.take_many(1)
        return taken[0] if taken else None

    def take_many(self, count: int) -> list[ReceiveWork]:
        """Consume and return the next entries, at most `count`. Raises `DmaError`."""
        taken: list[ReceiveWork] = []
        size = 1 << self.shift
        while len(taken) < count and self.available(count - len(taken)):
            slot = self.index & self.mask
            some = min(count - len(taken), (self.head - self.index) & COUNTER_MASK)
            some = min(some, self.mask + 1 - slot)
            raw = self.buffer.read(slot << self.shift, some << self.shift, What.RQ_WQE, self._rqn)
            for at in range(0, some << self.shift, size):
                taken.append(ReceiveWork(self.index, parse_receive(raw[at : at + size]), self._pd))
                self.index = (self.index + 1) & COUNTER_MASK
        return taken

    def available(self, wanted: int) -> int:
        """Return the number of posted entries; reads the doorbell record if it knows too few."""
        known = (self.head - self.index) & COUNTER_MASK
        if known < wanted:
            self._look()
            known = (self.head - self.index) & COUNTER_MASK
        return known

    def drop(self) -> int:
        """Consume the next entry without reading it, to flush it; returns its index."""
        index = self.index
        self.index = (index + 1) & COUNTER_MASK
        return index
