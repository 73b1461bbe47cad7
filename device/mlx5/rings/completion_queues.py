"""Completion queues: entries in guest memory, doorbells that arm, events that announce entries.

Rules: Linux `include/linux/mlx5/cq.h: mlx5_cq_arm`, `core/eq.c: mlx5_eq_comp_int`.
"""

from __future__ import annotations

from typing import Final

from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.mlx5.commands import Status
from bluebridge.device.layout.mlx5.contexts import CQC, PAGE_SHIFT, RING_UNIT
from bluebridge.device.layout.mlx5.cqe import CQE_SIZE, OWNER_BIT, OWNER_OFFSET
from bluebridge.device.layout.mlx5.event_queues import (
    COMPLETION_EQE,
    CQ_ERROR_EQE,
    DATA_BYTES,
    DATA_OFFSET,
    EventType,
)
from bluebridge.device.layout.mlx5.objects import CqField
from bluebridge.device.mlx5.numbers import Numbers
from bluebridge.device.mlx5.rings.event_queues import EventQueues
from bluebridge.device.mlx5.rings.page_lists import PageLists
from bluebridge.device.mlx5.settings.refused import Refused
from bluebridge.device.pci.bus import DmaError, HostBus
from bluebridge.device.rings.queue_buffer import QueueBuffer

INDEX_MASK: Final = 0xFFFFFF  # indices run freely in 24 bits
MAX_LOG_SIZE: Final = 22
FIRST_CQ: Final = 0x400
MAX_CQS: Final = 1 << 16
SHORTEST_TIMER: Final = 500
"""Shortest timer in microseconds, as the server's loop sleeps in milliseconds."""
OVERRUN: Final = 1
ACCESS: Final = 2
NOT_ARMED: Final = 0
ARMED_FOR_ANY: Final = 1
ARMED_FOR_SOLICITED: Final = 2
_NUMBERS: Final = 3
"""Mask of the numbers of requests for events, which count modulo four."""
_STATES: Final = {NOT_ARMED: 10, ARMED_FOR_ANY: 9, ARMED_FOR_SOLICITED: 6}


class CompletionQueue:
    """One completion queue; its driver gave all entries to hardware before it made the queue."""

    def __init__(
        self, bus: HostBus, eqs: EventQueues, cqn: int, context: bytes, buffer: QueueBuffer
    ) -> None:
        self._bus = bus
        self._eqs = eqs
        self._event = bytes(COMPLETION_EQE.pack(type=EventType.COMPLETION, cqn=cqn))
        self.cqn = cqn
        self._context = context
        self._overwrites = bool(CQC.get(context, "ignore_overrun"))
        self.buffer = buffer
        self.size = 1 << CQC.get(context, "log_size")
        self.eqn = CQC.get(context, "eqn") & 0xFF
        self.record = CQC.get(context, "doorbell_record") & ~7
        self.period = CQC.get(context, "period")
        self.max_count = CQC.get(context, "max_count")
        self.producer = 0
        self.broken = False
        self.consumer = 0  # the one in the doorbell record at the last look
        self.armed = NOT_ARMED
        self._unreported = 0  # entries that moderation holds back
        self._delayed = False  # whether their time runs
        self._sn = 0  # number of the last request
        self._request = (0, 0)  # number and consumer index of the last request that was taken
        self._answered = (-1, 0)  # and of the one that the last event answered
        self._unseen = 0  # events that software has not counted yet, by its numbers
        self._notified = 0  # producer index when the last event fired
        self._last_solicited: int | None = None  # producer index of the newest solicited entry

    def post(self, cqe: bytes, solicited: bool = False, error: bool = False) -> None:
        """Append an entry; its owner bit is set here and its last byte is written last.

        `solicited`: a receive whose sender asked for an event. A full ring or vanished memory
        breaks the queue: an event CQ_ERROR, and no entry ever again.
        """
        if self.broken:
            return
        index = self.producer
        self._append([cqe])
        if self.broken:
            return
        urgent = solicited or error
        if urgent:
            self._last_solicited = index
        if urgent and self.armed:
            self._fire()
        elif self.armed == ARMED_FOR_ANY:
            self._due(1)

    def post_many(self, entries: list[bytes]) -> None:
        """Append entries that are neither solicited nor errors; an event comes after the last.

        Software looks at entries in order, so the first one of a page is written last: until then
        none of them is seen.
        """
        if not entries or self.broken:
            return
        self._append(entries)
        if self.armed == ARMED_FOR_ANY and not self.broken:
            self._due(len(entries))

    def _append(self, entries: list[bytes]) -> None:
        position = 0
        while position < len(entries):
            slot = self.producer & (self.size - 1)
            # The record in guest memory is read only when the index known from it leaves no room.
            room = self.size - ((self.producer - self.consumer) & INDEX_MASK)
            if room <= 0:
                if self._full():
                    self._break(OVERRUN)
                    return
                continue
            # Neither beyond the ring's end, where the owner bit changes, nor into another page.
            page = self.buffer.contiguous(slot * CQE_SIZE) // CQE_SIZE
            count = min(room, self.size - slot, len(entries) - position, page)
            if not self._write(slot, entries[position : position + count]):
                return
            position += count

    def _write(self, slot: int, entries: list[bytes]) -> bool:
        """Store entries that lie in one page, the first one's last byte after all others."""
        image = bytearray(b"".join(entries))
        if self.producer & self.size:
            for at in range(OWNER_OFFSET, len(image), CQE_SIZE):
                image[at] |= OWNER_BIT
        try:
            offset = slot * CQE_SIZE
            self.buffer.write_entries(offset, bytes(image), CQE_SIZE, What.CQE, self.cqn)
        except DmaError as fault:
            self._bus.tell(Fact.CQ_LOST, cqn=self.cqn, reason=str(fault))
            self._break(ACCESS)
            return False
        self.producer = (self.producer + len(entries)) & INDEX_MASK
        return True

    def arm(self, sn: int, solicited: bool, consumer: int) -> None:
        """Ask for an event (CQ doorbell); entries since the last event fire it at once.

        A repetition of the request that the last event answered is ignored: software has not
        handled that event yet. A request with the same number but a later consumer index is taken
        once: a driver that empties its queue by polling arms it before the interrupt was served,
        and would get no further event. Not while two events wait for software: its number, of two
        bits, may be the same again when it has counted four. Entries that an event announced cause
        no second one, even while they are unread: perftest arms before it reads, and counts each
        event as a new entry (ctx_notify_events).
        """
        if self.broken:
            return
        if sn == self._answered[0]:
            if self._unseen > 1 or consumer == self._answered[1]:
                return
        else:
            self._unseen = max(0, self._unseen - ((sn - self._sn) & _NUMBERS))
        self._sn = sn
        if not solicited:
            self.armed = ARMED_FOR_ANY
        elif self.armed != ARMED_FOR_ANY:
            self.armed = ARMED_FOR_SOLICITED
        self._request = (sn, consumer)
        waiting = (self.producer - consumer) & INDEX_MASK
        fresh = min(waiting, (self.producer - self._notified) & INDEX_MASK)
        if self.armed == ARMED_FOR_ANY:
            due = fresh != 0
        else:
            newest = self._last_solicited
            due = newest is not None and (self.producer - 1 - newest) & INDEX_MASK < fresh
        if due:
            self._fire()

    def query(self) -> bytes:
        """Return the present context (QUERY_CQ)."""
        context = bytearray(self._context)
        CQC.set(context, "status", 9 if self.broken else 0)
        CQC.set(context, "state", _STATES[self.armed])
        CQC.set(context, "period", self.period)
        CQC.set(context, "max_count", self.max_count)
        CQC.set(context, "last_notified", self._notified)
        CQC.set(context, "consumer", self.consumer)
        CQC.set(context, "producer", self.producer)
        return bytes(context)

    def modify(self, fields: int, context: bytes) -> None:
        """Change moderation and overrun (MODIFY_CQ)."""
        if fields & CqField.PERIOD:
            self.period = CQC.get(context, "period")
        if fields & CqField.COUNT:
            self.max_count = CQC.get(context, "max_count")
        if fields & CqField.OVERRUN:
            self._overwrites = bool(CQC.get(context, "ignore_overrun"))

    def _full(self) -> bool:
        if self._overwrites:
            self.consumer = self.producer
            return False
        try:
            word = self._bus.read(self.record, 4, What.DOORBELL_RECORD, self.cqn)
        except DmaError as fault:
            self._bus.tell(Fact.CQ_LOST, cqn=self.cqn, reason=str(fault))
        else:
            self.consumer = int.from_bytes(word, "big") & INDEX_MASK
        return (self.producer - self.consumer) & INDEX_MASK >= self.size

    def _due(self, entries: int) -> None:
        """Send an event for new entries, at once or moderated as software asked.

        Periods are in microseconds. Those too short for a timer end when the server's loop has no
        other work left, since no more entries can come before that.
        """
        if self.max_count <= 1 or not self.period:
            self._fire()
            return
        self._unreported += entries
        if self._unreported >= self.max_count:
            self._fire()
        elif not self._delayed:
            self._delayed = True
            if self.period < SHORTEST_TIMER:
                self._bus.call_soon(self._expire)
            else:
                self._bus.call_later(self.period / 1e6, self._expire)

    def _expire(self) -> None:
        self._delayed = False
        if self._unreported and self.armed == ARMED_FOR_ANY and not self.broken:
            self._fire()

    def _fire(self) -> None:
        self._unseen += 1
        self._answered, self.armed, self._unreported = self._request, NOT_ARMED, 0
        self._notified = self.producer
        self._eqs.post(self.eqn, self._event)

    def _break(self, syndrome: int) -> None:
        self.broken = True
        event = CQ_ERROR_EQE.pack(cqn=self.cqn, syndrome=syndrome)
        data = bytes(event[DATA_OFFSET : DATA_OFFSET + DATA_BYTES])
        self._eqs.post_async(EventType.CQ_ERROR, data)


class CompletionQueues:
    """The completion queues of one adapter."""

    def __init__(self, bus: HostBus, pages: PageLists, eqs: EventQueues) -> None:
        self._bus = bus
        self._pages = pages
        self._eqs = eqs
        self._numbers = Numbers("CQ", FIRST_CQ, MAX_CQS)
        self._queues: dict[int, CompletionQueue] = {}

    def reset(self) -> None:
        """Forget all queues."""
        for queue in self._queues.values():
            queue.broken = True  # a timer may still refer to it
        self._queues.clear()
        self._numbers.reset()

    def __len__(self) -> int:
        return len(self._queues)

    def numbers(self) -> list[int]:
        """The numbers of all queues, oldest first."""
        return list(self._queues)

    def get(self, cqn: int) -> CompletionQueue | None:
        """Return the queue `cqn`; None without one."""
        return self._queues.get(cqn)

    def known(self, cqn: int) -> CompletionQueue:
        """Return the queue `cqn`; raises `Refused` (BAD_RES) without one."""
        queue = self._queues.get(cqn)
        if queue is None:
            raise Refused(Status.BAD_RES, f"CQ {cqn:#x}")
        return queue

    def create(self, context: bytes, listed: bytes) -> int:
        """Make a queue in the pages of a list (CREATE_CQ); returns its number.

        Raises `Refused`: BAD_PARAM, BAD_RES for an unknown event queue, LIM_ERR.
        """
        log_size, eqn = CQC.get(context, "log_size"), CQC.get(context, "eqn") & 0xFF
        if log_size > MAX_LOG_SIZE:
            raise Refused(Status.BAD_PARAM, f"2**{log_size} completions")
        if CQC.get(context, "cqe_size") or CQC.get(context, "compressed"):
            raise Refused(Status.BAD_PARAM, "entries of 64 bytes without compression only")
        if CQC.get(context, "collapsed"):
            raise Refused(Status.BAD_PARAM, "collapsed CQs are not offered")
        if self._eqs.get(eqn) is None:
            raise Refused(Status.BAD_RES, f"EQ {eqn:#x}")
        start = CQC.get(context, "page_offset") * RING_UNIT
        shift = CQC.get(context, "log_page_size") + PAGE_SHIFT
        buffer = self._pages.buffer(listed, shift, CQE_SIZE << log_size, start)
        cqn = self._numbers.take()
        self._queues[cqn] = CompletionQueue(self._bus, self._eqs, cqn, context, buffer)
        return cqn

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
            queue.arm(request >> 28 & 3, bool(request >> 24 & 1), request & INDEX_MASK)
