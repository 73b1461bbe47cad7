"""Shared receive queues: lists of entries, whose number a doorbell record announces.

An entry begins with 16 bytes, of which bytes 2 and 3 are the index of the next one (big-endian);
its scatter list follows. Linux `mlx4/srq.c`, `ib/srq.c`.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.pci.bus import DmaError, HostBus
from bluebridge.device.rdma.pairs.queues import SharedReceiveQueue
from bluebridge.device.rdma.work import ReceiveWork
from bluebridge.device.rings.queue_buffer import QueueBuffer
from bluebridge.device.rings.receive_ring import COUNTER_MASK, parse_receive

NEXT_SIZE: Final = 16
"""Bytes in front of the scatter list of an entry, with the index of the next one."""


class SharedRing(SharedReceiveQueue):
    """One SRQ of `1 << log_size` entries of `1 << shift` bytes; `current` is the next entry.

    `consumed` counts those taken, `known` those posted at the last look, both modulo 2**16.
    `record` is the guest-physical address of the doorbell record. `cyclic`: entries follow each
    other in the order of the ring, whatever they say; `head` are the bytes before their lists.
    """

    cyclic = False
    head = NEXT_SIZE

    def __init__(
        self,
        bus: HostBus,
        srqn: int,
        pd: int,
        buffer: QueueBuffer,
        log_size: int,
        shift: int,
        record: int,
    ) -> None:
        self._bus = bus
        self.srqn = srqn
        self.pd = pd
        self.buffer = buffer
        self.log_size = log_size
        self.shift = shift
        self.record = record
        self.limit = self.current = self.consumed = self.known = 0

    @abstractmethod
    def announce(self) -> None:
        """Post the event that fewer entries are left than software wants."""

    def waiting(self) -> bool:
        """Return True if an entry is posted."""
        return self.known != self.consumed or self._available() > 0

    def take(self) -> ReceiveWork | None:
        """Consume and return the next entry of the list, or None. Raises `DmaError`."""
        if not self.waiting():
            return None
        index = self.current
        raw = self.buffer.read(index << self.shift, 1 << self.shift, What.SRQ_WQE, self.srqn)
        following = index + 1 if self.cyclic else int.from_bytes(raw[2:4], "big")
        self.current = following & ((1 << self.log_size) - 1)
        self.consumed = (self.consumed + 1) & COUNTER_MASK
        if self.limit:
            self._check_limit()
        return ReceiveWork(index, parse_receive(raw[self.head :]), self.pd)

    def take_many(self, count: int) -> list[ReceiveWork]:
        """Consume and return the next entries, at most `count`, as `ReceiveRing` does."""
        taken: list[ReceiveWork] = []
        try:
            while len(taken) < count and (entry := self.take()) is not None:
                taken.append(entry)
        except DmaError:
            if not taken:
                raise
        return taken

    def arm(self, limit: int) -> None:
        """Ask for one event when fewer than `limit` entries are left; at once if so already."""
        self.limit = limit
        if limit:
            self._check_limit()

    def _check_limit(self) -> None:
        if self._available() < self.limit:
            self.limit = 0
            self.announce()

    def _available(self) -> int:
        try:
            word = b"".join(self._bus.views([(self.record, 4)]))
        except DmaError:
            return 0
        known = int.from_bytes(word[2:], "big")
        if known != self.known:
            self.known = known
            self._bus.note_dma(Kind.DMA_READ, self.record, 4, word, What.DOORBELL_RECORD, self.srqn)
        return (known - self.consumed) & COUNTER_MASK
