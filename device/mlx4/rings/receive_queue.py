"""Receive queues, whose entries a doorbell record in guest memory announces."""

from __future__ import annotations

from typing import Final

from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.mlx4.rings.ring_buffer import QueueBuffer
from bluebridge.device.mlx4.rings.work_requests import parse_receive
from bluebridge.device.pci.bus import DmaError, HostBus
from bluebridge.device.rdma.pairs.queues import OwnReceiveQueue
from bluebridge.device.rdma.work import ReceiveWork

COUNTER_MASK: Final = 0xFFFF


class ReceiveRing(OwnReceiveQueue):
    """The receive queue of one queue pair, in guest memory.

    `base` is the byte offset of the ring in `buffer`, `shift` the logarithm of its stride.
    The doorbell record is read only when the entries known of are used up.
    """

    __slots__ = (
        "_bus",
        "_pd",
        "_qpn",
        "base",
        "buffer",
        "head",
        "index",
        "mask",
        "record",
        "shift",
    )

    def __init__(
        self,
        bus: HostBus,
        qpn: int,
        pd: int,
        buffer: QueueBuffer,
        base: int,
        log_size: int,
        shift: int,
        record: int,
    ) -> None:
        self._bus = bus
        self._qpn = qpn
        self._pd = pd
        self.buffer = buffer
        self.base = base
        self.mask = (1 << log_size) - 1
        self.shift = shift
        self.record = record
        self.index = 0
        self.head = 0

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
        self._bus.note_dma(Kind.DMA_READ, self.record, 4, word, What.DOORBELL_RECORD, self._qpn)
        return True

    def take(self) -> ReceiveWork | None:
        """Consume and return the next entry; None when there is none. Raises `DmaError`."""
        if not self.waiting():
            return None
        index = self.index
        offset = self.base + ((index & self.mask) << self.shift)
        raw = self.buffer.read(offset, 1 << self.shift, What.RQ_WQE, self._qpn)
        self.index = (index + 1) & COUNTER_MASK
        return ReceiveWork(index, parse_receive(raw), self._pd)

    def take_many(self, count: int) -> list[ReceiveWork]:
        """Consume and return the next entries, at most `count`. Raises `DmaError`."""
        taken: list[ReceiveWork] = []
        size = 1 << self.shift
        while len(taken) < count and self.available(count - len(taken)):
            slot = self.index & self.mask
            some = min(count - len(taken), self.head - self.index & COUNTER_MASK)
            some = min(some, self.mask + 1 - slot)
            offset = self.base + (slot << self.shift)
            raw = self.buffer.read(offset, some << self.shift, What.RQ_WQE, self._qpn)
            for at in range(0, some << self.shift, size):
                taken.append(ReceiveWork(self.index, parse_receive(raw[at : at + size]), self._pd))
                self.index = (self.index + 1) & COUNTER_MASK
        return taken

    def available(self, wanted: int) -> int:
        """Return the number of posted entries; reads the doorbell record if it knows too few."""
        known = self.head - self.index & COUNTER_MASK
        if known < wanted:
            self._look()
            known = self.head - self.index & COUNTER_MASK
        return known

    def drop(self) -> int:
        """Consume the next entry without reading it, to flush it; returns its index."""
        index = self.index
        self.index = (index + 1) & COUNTER_MASK
        return index
