"""Shared receive queues: lists of entries, whose number a doorbell record announces."""

from __future__ import annotations

from typing import Final

from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.mlx4.commands import Status
from bluebridge.device.layout.mlx4.contexts import SRQC, WORK_RING_UNIT
from bluebridge.device.layout.mlx4.eqe import EventType
from bluebridge.device.mlx4.rings.event_queues import EventQueues
from bluebridge.device.mlx4.rings.ring_buffer import RingPages
from bluebridge.device.mlx4.settings.parameters import CommandError, Parameters
from bluebridge.device.pci.bus import DmaError, HostBus
from bluebridge.device.rdma.pairs.queues import SharedReceiveQueue, SharedReceiveQueues
from bluebridge.device.rdma.work import ReceiveWork
from bluebridge.device.rings.receive_ring import COUNTER_MASK, parse_receive

NEXT_SIZE: Final = 16


class SharedReceiveRing(SharedReceiveQueue):
    """One SRQ; `current` is the next entry.

    `consumed` counts those taken, `known` those posted at the last look, both modulo 2**16.
    """

    def __init__(
        self, bus: HostBus, eqs: EventQueues, pages: RingPages, srqn: int, context: bytes
    ) -> None:
        get = SRQC.get
        self._bus = bus
        self._eqs = eqs
        self.srqn = srqn
        self._context = context
        self.log_size = get(context, "log_size")
        self.shift = get(context, "log_stride") + 4
        self.pd = get(context, "pd")
        self.xrcd = get(context, "xrcd")
        self.cqn = get(context, "cqn")
        self.record = get(context, "doorbell_record") & ~3
        self.limit = 0
        self.current = 0
        self.consumed = 0
        self.known = 0
        if 1 << self.shift <= NEXT_SIZE:
            raise CommandError(Status.BAD_PARAM, "an SRQ entry has room for a segment")
        self.buffer = pages.buffer(
            get(context, "mtt_addr"),
            get(context, "log_page_size") + 12,
            1 << (self.log_size + self.shift),
            get(context, "page_offset") * WORK_RING_UNIT,
        )

    def query(self) -> bytes:
        """Return the present context (QUERY_SRQ)."""
        context = bytearray(self._context)
        SRQC.set(context, "srqn", self.srqn)
        SRQC.set(context, "limit_watermark", self.limit)
        SRQC.set(context, "wqe_counter", self.consumed)
        return bytes(context)

    def waiting(self) -> bool:
        """Return True if an entry is posted."""
        return self.known != self.consumed or self._available() > 0

    def take(self) -> ReceiveWork | None:
        """Consume and return the next entry of the list, or None. Raises `DmaError`."""
        if not self.waiting():
            return None
        index = self.current
        raw = self.buffer.read(index << self.shift, 1 << self.shift, What.SRQ_WQE, self.srqn)
        self.current = int.from_bytes(raw[2:4], "big") & ((1 << self.log_size) - 1)
        self.consumed = (self.consumed + 1) & COUNTER_MASK
        if self.limit:
            self._check_limit()
        return ReceiveWork(index, parse_receive(raw[NEXT_SIZE:]), self.pd)

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
            self._eqs.post_numbered(EventType.SRQ_LIMIT, self.srqn)

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


class SharedReceiveRings(SharedReceiveQueues):
    """The shared receive queues of one HCA."""

    def __init__(
        self, bus: HostBus, pages: RingPages, eqs: EventQueues, parameters: Parameters
    ) -> None:
        self._bus = bus
        self._pages = pages
        self._eqs = eqs
        self._parameters = parameters
        self._queues: dict[int, SharedReceiveRing] = {}

    def reset(self) -> None:
        """Forget all queues."""
        self._queues.clear()

    def numbers(self) -> list[int]:
        """The numbers of all queues, oldest first."""
        return list(self._queues)

    def get(self, srqn: int) -> SharedReceiveRing | None:
        """Return the queue `srqn`; None unless hardware owns it."""
        return self._queues.get(srqn)

    def create(self, srqn: int, context: bytes) -> None:
        """Make a queue (SW2HW_SRQ).

        Raises `CommandError`: BAD_INDEX, BAD_RES_STATE, BAD_PARAM, ICM_ERROR.
        """
        if srqn >> self._parameters.log_srqs:
            raise CommandError(Status.BAD_INDEX, f"SRQ {srqn:#x}")
        if srqn in self._queues:
            raise CommandError(Status.BAD_RES_STATE, f"SRQ {srqn:#x} is in use")
        self._queues[srqn] = SharedReceiveRing(self._bus, self._eqs, self._pages, srqn, context)

    def destroy(self, srqn: int) -> None:
        """Destroy a queue (HW2SW_SRQ); queue pairs that name it receive nothing any more."""
        self._queues.pop(srqn, None)
