"""Completion queues: entries in guest memory, doorbells that arm, events that announce entries.

Rules: Linux `ib/cq.c`, `mlx4/cq.c: mlx4_cq_completion`, `include/linux/mlx4/cq.h: mlx4_cq_arm`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.mlx4.commands import Status
from bluebridge.device.layout.mlx4.contexts import CQC, RING_UNIT
from bluebridge.device.layout.mlx4.cqe import CQE_SIZE, OPCODE_RESIZE, OWNER_BIT, OWNER_OFFSET
from bluebridge.device.layout.mlx4.eqe import COMP_EQE, CQ_ERROR_EQE, DATA_OFFSET, EventType
from bluebridge.device.layout.mlx4.uar import CQ_ARM_COUNT, CQ_ARM_NEXT, CQ_ARM_SOLICITED
from bluebridge.device.mlx4.rings.event_queues import EventQueues
from bluebridge.device.mlx4.rings.ring_buffer import OwnedBuffer, RingPages
from bluebridge.device.mlx4.settings.parameters import CommandError, Parameters
from bluebridge.device.pci.bus import DmaError, HostBus

INDEX_MASK: Final = 0xFFFFFF  # indices run freely in 24 bits
MAX_LOG_SIZE: Final = 22
SHORTEST_TIMER: Final = 500
"""Shortest timer in microseconds, as the server's loop sleeps in milliseconds."""
OVERRUN: Final = 1
ACCESS: Final = 2
_NUMBERS: Final = 3
"""Mask of the numbers of requests for events, which count modulo four."""


class CompletionQueue:
    """One completion queue of entries of `stride` bytes.

    `timestamps`: whoever posts an entry stamps it with the adapter's clock.
    """

    def __init__(
        self,
        bus: HostBus,
        eqs: EventQueues,
        cqn: int,
        context: bytes,
        buffer: OwnedBuffer,
        stride: int,
    ) -> None:
        self._bus = bus
        self._eqs = eqs
        self._event = bytes(COMP_EQE.pack(type=EventType.COMP, cqn=cqn))
        self.cqn = cqn
        self._context = context
        self._overwrites = bool(CQC.get(context, "overrun_ignore"))
        self.buffer = buffer
        self.timestamps = bool(CQC.get(context, "timestamps"))
        self._stride = stride
        self._lead = bytes(stride - CQE_SIZE)  # software looks at the last 32 bytes of an entry
        self.size = 1 << CQC.get(context, "log_size")
        self.eqn = CQC.get(context, "eqn")
        self.uar = CQC.get(context, "uar")
        self.record = CQC.get(context, "doorbell_record") & ~7
        self.period = CQC.get(context, "period")
        self.max_count = CQC.get(context, "max_count")
        self.producer = 0
        self.broken = False
        self.consumer = 0  # the one in the doorbell record at the last look
        self.armed = 0  # the awaited event: CQ_ARM_SOLICITED, CQ_ARM_NEXT, CQ_ARM_COUNT, or 0
        self._target = 0  # index of the entry that CQ_ARM_COUNT waits for
        self._unreported = 0  # entries that moderation holds back
        self._delayed = False  # whether their time runs
        self._sn = 0  # number of the last request
        self._request = (0, 0)  # number and consumer index of the last request that was taken
        self._answered = (0, 0)  # and of the one that the last event answered
        self._unseen = 0  # events that software has not counted yet, by its numbers
        self._notified = 0  # producer index when the last event fired (last_notified_index)
        self._last_solicited: int | None = None  # producer index of the newest solicited entry

    def post(self, cqe: bytes | bytearray, solicited: bool = False, error: bool = False) -> None:
        """Append an entry; its owner bit is set here and its last byte is written last.

        `solicited`: a receive whose sender asked for an event. A full ring or vanished memory
        breaks the queue: an event CQ_ERROR, and no entry ever again.
        """
        if self.broken:
            return
        index = self.producer
        # The record in guest memory is read only when the index known from it leaves no room.
        if (index - self.consumer) & INDEX_MASK >= self.size and self._full():
            self._break(OVERRUN)
            return
        entry = bytearray(cqe)
        # The bit changes with each lap, so that software knows a new entry from an old one.
        if index & self.size:
            entry[OWNER_OFFSET] |= OWNER_BIT
        if self._lead:
            entry[:0] = self._lead
        try:
            offset = (index & (self.size - 1)) * self._stride
            self.buffer.write_entry(offset, entry, What.CQE, self.cqn)
        except DmaError as fault:
            self._note(fault)
            self._break(ACCESS)
            return
        self.producer = (index + 1) & INDEX_MASK
        urgent = solicited or error
        if urgent:
            self._last_solicited = index
        if urgent and self.armed:
            self._fire()
        elif self.armed == CQ_ARM_NEXT:
            self._due(1)
        elif self.armed == CQ_ARM_COUNT and self._reached():
            self._fire()

    def post_many(self, entries: list[bytes]) -> None:
        """Append entries that are neither solicited nor errors; an event comes after the last.

        Software looks at entries in order, so the first one is written last: until then none of
        them is seen.
        """
        position = 0
        while position < len(entries) and not self.broken:
            index, slot = self.producer, self.producer & (self.size - 1)
            room = self.size - ((index - self.consumer) & INDEX_MASK)
            if room <= 0:
                if self._full():
                    self._break(OVERRUN)
                    return
                continue
            # Neither beyond the ring's end, where the owner bit changes, nor into another page.
            count = min(room, self.size - slot, len(entries) - position, self._page_entries(slot))
            self._write(slot, entries[position : position + count])
            position += count
        if self.armed == CQ_ARM_NEXT and entries and not self.broken:
            self._due(len(entries))
        elif self.armed == CQ_ARM_COUNT and not self.broken and self._reached():
            self._fire()

    def _page_entries(self, slot: int) -> int:
        return self.buffer.contiguous(slot * self._stride) // self._stride

    def _write(self, slot: int, entries: list[bytes]) -> None:
        """Store entries that lie in one page, the first one's last byte after all others."""
        stride = self._stride
        image = bytearray(self._lead + self._lead.join(entries))
        if self.producer & self.size:
            for at in range(stride - 1, len(image), stride):
                image[at] |= OWNER_BIT
        try:
            self.buffer.write_entries(slot * stride, bytes(image), stride, What.CQE, self.cqn)
        except DmaError as fault:
            self._note(fault)
            self._break(ACCESS)
            return
        self.producer = (self.producer + len(entries)) & INDEX_MASK

    def overrun(self) -> None:
        """Break the queue as an overrun does: an event CQ_ERROR, and no entry ever again."""
        if not self.broken:
            self._break(OVERRUN)

    def arm(self, sn: int, command: int, consumer: int) -> None:
        """Ask for an event (CQ doorbell); entries since the last event fire it at once.

        A repetition of the request that the last event answered is ignored: software has not
        handled that event yet. A request with the same number but a later consumer index is taken
        once: a driver that shuts its queue down empties it by polling and arms it before the
        interrupt was served (ipoib_ib.c: ipoib_ib_dev_stop_default); it would get no further event.
        Not while two events wait for software: its number, of two bits, may be the same again when
        it has counted four.
        Entries that an event announced cause no second one, even while they are unread: perftest
        arms before it reads, and counts each event as a new entry (ctx_notify_events). Software
        that reads everything and then arms misses nothing: later entries were not announced.
        """
        if command == CQ_ARM_COUNT and not self.broken:
            self._arm_for(consumer)
        if self.broken or command not in (CQ_ARM_SOLICITED, CQ_ARM_NEXT):
            return
        if sn == self._answered[0]:
            if self._unseen > 1 or consumer == self._answered[1]:
                return
        else:
            self._unseen = max(0, self._unseen - ((sn - self._sn) & _NUMBERS))
        self._sn = sn
        self.armed = max(self.armed, command)
        self._request = (sn, consumer)
        waiting = (self.producer - consumer) & INDEX_MASK
        fresh = min(waiting, (self.producer - self._notified) & INDEX_MASK)
        if self.armed == CQ_ARM_NEXT:
            due = fresh != 0
        else:
            newest = self._last_solicited
            due = newest is not None and (self.producer - 1 - newest) & INDEX_MASK < fresh
        if due:
            self._fire()

    def _arm_for(self, target: int) -> None:
        """Ask for an event when the entry with index `target` is written, perhaps at once."""
        self.armed, self._target = CQ_ARM_COUNT, target
        if self._reached():
            self._fire()

    def _reached(self) -> bool:
        """Return True if the entry that CQ_ARM_COUNT waits for is written, modulo 2^24."""
        return (self.producer - 1 - self._target) & INDEX_MASK <= INDEX_MASK >> 1

    def query(self) -> bytes:
        """Return the present context (QUERY_CQ)."""
        context = bytearray(self._context)
        CQC.set(context, "period", self.period)
        CQC.set(context, "max_count", self.max_count)
        CQC.set(context, "last_notified", self._notified)
        CQC.set(context, "consumer_index", self.consumer)
        CQC.set(context, "producer_index", self.producer)
        return bytes(context)

    def resize(self, buffer: OwnedBuffer, context: bytes) -> Iterator[None]:
        """Move to another buffer; a marker in the old one tells software to go on in the new.

        `context` says where it is and how large; it is prepared in portions, while entries go on
        coming into the old one. The marker takes an index like an entry: software copies what it
        has not read to the places one further in the new ring, and then counts on from there
        (libmlx4 `cq.c: mlx4_cq_resize_copy_cqes`, Linux `ib/cq.c: mlx4_ib_cq_resize_copy_cqes`).
        Raises `CommandError`, and the queue is as it was then: BAD_PARAM when what is unread would
        not fit or a ring is no memory, RESOURCE_BUSY when the old ring has no room for the marker,
        BAD_RES_STATE when the queue is broken.
        """
        log_size = CQC.get(context, "log_size")
        self._check_resize(log_size)
        following = self.producer + 1
        yield from buffer.fill_owner(self._stride, self.cqn, following)
        while missed := (self.producer + 1 - following) & INDEX_MASK:  # while others had a turn
            known, following = following, following + missed
            yield from buffer.fill_owner(self._stride, self.cqn, following, known)
        # Entries may have come while the new ring was prepared.
        self._check_resize(log_size)
        marker = bytearray(self._stride)
        marker[-1] = OPCODE_RESIZE | (OWNER_BIT if self.producer & self.size else 0)
        offset = (self.producer & (self.size - 1)) * self._stride
        try:
            self.buffer.write_entry(offset, marker, What.CQE, self.cqn)
        except DmaError as error:
            raise CommandError(Status.BAD_PARAM, f"CQ {self.cqn:#x}: {error}") from error
        self._pass_marker()
        self.buffer, self.size = buffer, 1 << log_size
        moved = bytearray(self._context)
        for name in ("log_size", "page_offset", "log_page_size", "mtt_addr"):
            CQC.set(moved, name, CQC.get(context, name))
        self._context = bytes(moved)

    def _pass_marker(self) -> None:
        """Count everything that an index refers to one further, as software will.

        Software stores its index anew only after that: completions may come before, and the marker
        takes no place in the new ring.
        """
        self.consumer = (self.consumer + 1) & INDEX_MASK
        self.producer = (self.producer + 1) & INDEX_MASK
        self._notified = (self._notified + 1) & INDEX_MASK
        self._target = (self._target + 1) & INDEX_MASK
        if self._last_solicited is not None:
            self._last_solicited = (self._last_solicited + 1) & INDEX_MASK
        (number, consumer), (answered, read) = self._request, self._answered
        self._request = number, (consumer + 1) & INDEX_MASK
        self._answered = answered, (read + 1) & INDEX_MASK

    def _check_resize(self, log_size: int) -> None:
        if self.broken:
            raise CommandError(Status.BAD_RES_STATE, f"CQ {self.cqn:#x} is broken")
        self._read_consumer()
        unread = (self.producer - self.consumer) & INDEX_MASK
        if unread > 1 << log_size:
            # Linux names BAD_SIZE (ENOMEM) for it, but a card is hardly ever asked: libmlx4 looks
            # first and says EINVAL. A guest under TCG looks before its last sends are completed,
            # so that the command refuses, and programs shall get the EINVAL of a card.
            raise CommandError(Status.BAD_PARAM, f"CQ {self.cqn:#x} holds more than 2**{log_size}")
        if unread >= self.size:
            raise CommandError(Status.RESOURCE_BUSY, f"CQ {self.cqn:#x} is full")

    def _full(self) -> bool:
        if self._overwrites:
            self.consumer = self.producer
            return False
        self._read_consumer()
        return (self.producer - self.consumer) & INDEX_MASK >= self.size

    def _read_consumer(self) -> None:
        try:
            word = self._bus.read(self.record, 4, What.DOORBELL_RECORD, self.cqn)
        except DmaError as fault:
            self._note(fault)
            return
        self.consumer = int.from_bytes(word, "big") & INDEX_MASK

    def _due(self, entries: int) -> None:
        """Send an event for new entries, at once or moderated as MODIFY_CQ asked.

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
        if self._unreported and self.armed == CQ_ARM_NEXT and not self.broken:
            self._fire()

    def _fire(self) -> None:
        self._unseen += 1
        self._answered, self.armed, self._unreported = self._request, 0, 0
        self._notified = self.producer
        self._eqs.post(self.eqn, self._event)

    def _note(self, fault: DmaError) -> None:
        self._bus.tell(Fact.CQ_LOST, cqn=self.cqn, reason=str(fault))

    def _break(self, syndrome: int) -> None:
        self.broken = True
        event = CQ_ERROR_EQE.pack(cqn=self.cqn, syndrome=syndrome)
        self._eqs.post_async(EventType.CQ_ERROR, bytes(event[DATA_OFFSET:-4]))


class CompletionQueues:
    """The completion queues of one HCA."""

    def __init__(
        self, bus: HostBus, pages: RingPages, eqs: EventQueues, parameters: Parameters
    ) -> None:
        self._bus = bus
        self._pages = pages
        self._eqs = eqs
        self._parameters = parameters
        self._queues: dict[int, CompletionQueue] = {}

    def reset(self) -> None:
        """Forget all queues."""
        for queue in self._queues.values():
            queue.broken = True  # a timer may still refer to it
        self._queues.clear()

    def numbers(self) -> list[int]:
        """The numbers of all queues, oldest first."""
        return list(self._queues)

    def get(self, cqn: int) -> CompletionQueue | None:
        """Return the queue `cqn`; None unless hardware owns it."""
        return self._queues.get(cqn)

    def create(self, cqn: int, context: bytes, *, fill: bool) -> Iterator[None]:
        """Make a queue (SW2HW_CQ), in portions; `fill` gives every entry to hardware.

        Raises `CommandError`: BAD_INDEX, BAD_RES_STATE, BAD_PARAM, BAD_RESOURCE, ICM_ERROR.
        """
        if cqn >> self._parameters.log_cqs:
            raise CommandError(Status.BAD_INDEX, f"CQ {cqn:#x}")
        if cqn in self._queues:
            raise CommandError(Status.BAD_RES_STATE, f"CQ {cqn:#x} is in use")
        if self._eqs.get(CQC.get(context, "eqn")) is None:
            raise CommandError(Status.BAD_RESOURCE, f"EQ {CQC.get(context, 'eqn'):#x}")
        if CQC.get(context, "collapsed"):
            raise CommandError(Status.BAD_PARAM, "collapsed CQs are not offered")
        buffer = self.buffer_of(context)
        if fill:
            yield from buffer.fill_owner(self._stride, cqn)
        self._queues[cqn] = CompletionQueue(
            self._bus, self._eqs, cqn, context, buffer, self._stride
        )

    def buffer_of(self, context: bytes) -> OwnedBuffer:
        """Return the ring that a CQ context describes; raises `CommandError`."""
        log_size = CQC.get(context, "log_size")
        if log_size > MAX_LOG_SIZE:
            raise CommandError(Status.BAD_PARAM, f"2**{log_size} completions")
        shift = CQC.get(context, "log_page_size") + 12
        start = CQC.get(context, "page_offset") * RING_UNIT
        if start % self._stride:
            raise CommandError(Status.BAD_PARAM, f"a CQ that begins at {start:#x} of its page")
        mtt_addr = CQC.get(context, "mtt_addr")
        return self._pages.buffer(mtt_addr, shift, self._stride << log_size, start)

    @property
    def _stride(self) -> int:
        """The size of an entry of any queue in bytes, as set by INIT_HCA."""
        return CQE_SIZE << self._parameters.large_cqes

    def destroy(self, cqn: int) -> None:
        """Destroy a queue (HW2SW_CQ), which gets no entry and no event from now on."""
        queue = self._queues.pop(cqn, None)
        if queue is not None:
            queue.broken = True  # a queue pair may still hold it

    def doorbell(self, page: int, value: int) -> None:
        """Take the 64-bit CQ doorbell of a UAR page.

        `value` has sn, command and CQN in its upper half, the consumer index in its lower one.

        A page rings only for queues whose context names it.
        """
        queue = self._queues.get(value >> 32 & INDEX_MASK)
        if queue is not None and queue.uar == page:
            queue.arm(value >> 60 & 3, value >> 56 & 3, value & INDEX_MASK)
