"""Completion queues as contexts and doorbells of a ConnectX-5 have them.

Rules: Linux `include/linux/mlx5/cq.h: mlx5_cq_arm`, `core/eq.c: mlx5_eq_comp_int`.
"""

from __future__ import annotations

from typing import Final

from bluebridge.device.layout.mlx5.commands import Status
from bluebridge.device.layout.mlx5.contexts import CQC
from bluebridge.device.layout.mlx5.cqe import CQE_SIZE, OWNER_BIT, CqeOpcode
from bluebridge.device.layout.mlx5.event_queues import (
    COMPLETION_EQE,
    CQ_ERROR_EQE,
    DATA_BYTES,
    DATA_OFFSET,
    EventType,
)
from bluebridge.device.layout.mlx5.objects import ENTRY, LIST, CqField
from bluebridge.device.layout.mlx5.user_contexts import RING_UMEM
from bluebridge.device.mlx5.numbers import Numbers
from bluebridge.device.mlx5.rings.event_queues import EventQueues
from bluebridge.device.mlx5.rings.page_lists import PageLists, Ring
from bluebridge.device.mlx5.settings.refused import Refused
from bluebridge.device.pci.bus import HostBus
from bluebridge.device.rings.completion_ring import (
    FOR_ANY,
    FOR_SOLICITED,
    INDEX_MASK,
    MAX_LOG_SIZE,
    NOT_ARMED,
    CompletionRing,
    CompletionRings,
)
from bluebridge.device.rings.queue_buffer import QueueBuffer

FIRST_CQ: Final = 0x400
MAX_CQS: Final = 1 << 16
_STATES: Final = {NOT_ARMED: 10, FOR_ANY: 9, FOR_SOLICITED: 6}


class CompletionQueue(CompletionRing):
    """One completion queue; its driver gave all entries to hardware before it made the queue."""

    def __init__(
        self, bus: HostBus, eqs: EventQueues, cqn: int, context: bytes, ring: Ring
    ) -> None:
        get = CQC.get
        log_size, (buffer, record) = get(context, "log_size"), ring
        stride = CQE_SIZE << get(context, "cqe_size")
        super().__init__(bus, cqn, buffer, log_size, stride, CQE_SIZE, OWNER_BIT, record & ~7)
        self._eqs = eqs
        self._event = bytes(COMPLETION_EQE.pack(type=EventType.COMPLETION, cqn=cqn))
        self._context = context
        self.overwrites = bool(get(context, "ignore_overrun"))
        self.eqn = get(context, "eqn") & 0xFF
        self.period = get(context, "period")
        self.max_count = get(context, "max_count")

    def announce(self) -> None:
        self._eqs.post(self.eqn, self._event)

    def report(self, syndrome: int) -> None:
        event = CQ_ERROR_EQE.pack(cqn=self.cqn, syndrome=syndrome)
        data = bytes(event[DATA_OFFSET : DATA_OFFSET + DATA_BYTES])
        self._eqs.post_async(EventType.CQ_ERROR, data)

    def query(self) -> bytes:
        """Return the present context (QUERY_CQ)."""
        context = bytearray(self._context)
        CQC.set(context, "status", 9 if self.broken else 0)
        CQC.set(context, "state", _STATES[self.armed])
        CQC.set(context, "period", self.period)
        CQC.set(context, "max_count", self.max_count)
        CQC.set(context, "last_notified", self.notified)
        CQC.set(context, "consumer", self.consumer)
        CQC.set(context, "producer", self.producer)
        return bytes(context)

    def resize(self, buffer: QueueBuffer, context: bytes) -> None:
        """Move to another buffer that a context describes (MODIFY_CQ); raises as `move`."""
        self.move(buffer, CQC.get(context, "log_size"), CqeOpcode.RESIZE << 4)
        self._take(context, "log_size", "page_offset", "log_page_size")

    def _take(self, context: bytes, *names: str) -> None:
        """Take fields of a context over into that of the queue."""
        own = bytearray(self._context)
        CQC.take(own, context, *names)
        self._context = bytes(own)

    def modify(self, fields: int, context: bytes) -> None:
        """Change moderation and overrun (MODIFY_CQ)."""
        if fields & CqField.PERIOD:
            self.period = CQC.get(context, "period")
        if fields & CqField.COUNT:
            self.max_count = CQC.get(context, "max_count")
        if fields & CqField.PERIOD_MODE:
            self._take(context, "period_mode")
        if fields & CqField.OVERRUN:
            self.overwrites = bool(CQC.get(context, "ignore_overrun"))


class CompletionQueues(CompletionRings[CompletionQueue]):
    """The completion queues of one adapter."""

    def __init__(self, bus: HostBus, pages: PageLists, eqs: EventQueues) -> None:
        super().__init__()
        self._bus = bus
        self._pages = pages
        self._eqs = eqs
        self._numbers = Numbers("CQ", FIRST_CQ, MAX_CQS)

    def reset(self) -> None:
        super().reset()
        self._numbers.reset()

    def known(self, cqn: int) -> CompletionQueue:
        """Return the queue `cqn`; raises `Refused` (BAD_RES) without one."""
        queue = self._queues.get(cqn)
        if queue is None:
            raise Refused(Status.BAD_RES, f"CQ {cqn:#x}")
        return queue

    def create(self, data: bytes) -> int:
        """Make a queue by the input of CREATE_CQ; returns its number.

        Raises `Refused`: BAD_PARAM, BAD_RES for an unknown event queue, LIM_ERR.
        """
        context = data[ENTRY : ENTRY + CQC.size]
        log_size, eqn = CQC.get(context, "log_size"), CQC.get(context, "eqn") & 0xFF
        if log_size > MAX_LOG_SIZE:
            raise Refused(Status.BAD_PARAM, f"2**{log_size} completions")
        # A device may leave entries as they are where it may compress: DPDK asks for it unasked.
        if CQC.get(context, "cqe_size") > 1:
            raise Refused(Status.BAD_PARAM, "entries of 64 or 128 bytes only")
        if CQC.get(context, "collapsed"):
            raise Refused(Status.BAD_PARAM, "collapsed CQs are not offered")
        if self._eqs.get(eqn) is None:
            raise Refused(Status.BAD_RES, f"EQ {eqn:#x}")
        length = CQE_SIZE << (log_size + CQC.get(context, "cqe_size"))
        pages, offset = CQC.get(context, "log_page_size"), CQC.get(context, "page_offset")
        place = self._pages.place(RING_UMEM, data, data[LIST:], pages, offset)
        ring = Ring(self._pages.buffer(place, length), self._pages.record(CQC, context))
        cqn = self._numbers.take()
        self._queues[cqn] = CompletionQueue(self._bus, self._eqs, cqn, context, ring)
        return cqn

    def resize(self, cqn: int, data: bytes) -> None:
        """Move a queue to another ring, by the input of MODIFY_CQ.

        Raises `Refused`: BAD_INP_LEN, BAD_PARAM, BAD_RES, LIM_ERR; `Refusal` when what is unread
        has no place.
        """
        if len(data) < LIST:
            raise Refused(Status.BAD_INP_LEN, f"{len(data)} bytes of input of {LIST}")
        context = data[ENTRY : ENTRY + CQC.size]
        queue, log_size = self.known(cqn), CQC.get(context, "log_size")
        if log_size > MAX_LOG_SIZE:
            raise Refused(Status.BAD_PARAM, f"2**{log_size} completions")
        if CQE_SIZE << CQC.get(context, "cqe_size") != queue.stride:
            raise Refused(Status.BAD_PARAM, "a ring of completions of another size")
        pages, offset = CQC.get(context, "log_page_size"), CQC.get(context, "page_offset")
        place = self._pages.place(RING_UMEM, data, data[LIST:], pages, offset)
        queue.resize(self._pages.buffer(place, queue.stride << log_size), context)

    def destroy(self, cqn: int) -> None:
        """Destroy a queue, which gets no entry and no event from now on; raises `Refused`."""
        queue = self.known(cqn)
        del self._queues[cqn]
        self._numbers.free(cqn)
        queue.broken = True  # a timer may still refer to it

    def doorbell(self, request: int, cqn: int) -> None:
        """Take the two words of a request for an event (`CQ_ARM`), of any page of doorbells."""
        queue = self._queues.get(cqn & INDEX_MASK)
        if queue is not None:
            wanted = FOR_SOLICITED if request >> 24 & 1 else FOR_ANY
            queue.arm(request >> 28 & 3, wanted, request & INDEX_MASK)
