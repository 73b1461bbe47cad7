"""Receive queues: rings whose entries a doorbell record in guest memory announces.

An entry is a list of segments of 16 bytes: `>` length (32), key (32), address (64). The list ends
at the key 0x100, which no memory has.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.pci.bus import DmaError, HostBus
from bluebridge.device.rdma.memory.scatter_gather import Sge
from bluebridge.device.rdma.pairs.queues import OwnReceiveQueue
from bluebridge.device.rdma.work import ReceiveWork
from bluebridge.device.rings.queue_buffer import QueueBuffer

COUNTER_MASK: Final = 0xFFFF
LENGTH_MASK: Final = 0x7FFFFFFF
END_OF_LIST: Final = 0x100
SEGMENT: Final = Struct(">IIQ")
PAIR: Final = Struct(">IIQ4xI8x")
"""Layout of two segments, of which the second one shows only its key."""


def parse_receive(raw: bytes) -> list[Sge]:
    """Return the scatter list of a receive entry: its segments up to the one that ends it."""
    if len(raw) >= PAIR.size:  # mostly there is one segment and then the end
        count, lkey, address, end = PAIR.unpack_from(raw)
        if end == END_OF_LIST and lkey != END_OF_LIST and 0 < count <= LENGTH_MASK:
            return [(lkey, address, count)]
    sges: list[Sge] = []
    for position in range(0, len(raw) - 15, 16):
        count, lkey, address = SEGMENT.unpack_from(raw, position)
        if lkey == END_OF_LIST:
            break
        if count & LENGTH_MASK:
            sges.append((lkey, address, count & LENGTH_MASK))
    return sges


class ReceiveRing(OwnReceiveQueue):
    """The entries of the receive queue `number`: `1 << log_size` of `1 << shift` bytes each.

    `base` is the byte offset of the ring in `buffer`, `record` the guest-physical address of the
    doorbell record, which is read only when the entries known of are used up.
    """

    def __init__(
        self,
        bus: HostBus,
        number: int,
        pd: int,
        buffer: QueueBuffer,
        base: int,
        log_size: int,
        shift: int,
        record: int,
    ) -> None:
        self._bus = bus
        self._number = number
        self._pd = pd
        self.buffer = buffer
        self.base = base
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
        self._bus.note_dma(Kind.DMA_READ, self.record, 4, word, What.DOORBELL_RECORD, self._number)
        return True

    def take(self) -> ReceiveWork | None:
        """Consume and return the next entry; None when there is none. Raises `DmaError`."""
        if not self.waiting():
            return None
        index = self.index
        offset = self.base + ((index & self.mask) << self.shift)
        raw = self.buffer.read(offset, 1 << self.shift, What.RQ_WQE, self._number)
        self.index = (index + 1) & COUNTER_MASK
        return ReceiveWork(index, parse_receive(raw), self._pd)

    def take_many(self, count: int) -> list[ReceiveWork]:
        """Consume and return the next entries, at most `count`.

        Raises `DmaError` where the first of them cannot be read; those that were read before one
        that cannot are returned, since they are consumed.
        """
        taken: list[ReceiveWork] = []
        size = 1 << self.shift
        while len(taken) < count and self.available(count - len(taken)):
            slot = self.index & self.mask
            some = min(count - len(taken), (self.head - self.index) & COUNTER_MASK)
            some = min(some, self.mask + 1 - slot)
            offset = self.base + (slot << self.shift)
            try:
                raw = self.buffer.read(offset, some << self.shift, What.RQ_WQE, self._number)
            except DmaError:
                if taken:
                    break
                raise
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
