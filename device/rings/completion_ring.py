"""Completion queues: entries in guest memory, requests for events, events that announce entries.

Rules: Linux `include/linux/mlx4/cq.h: mlx4_cq_arm`, `include/linux/mlx5/cq.h: mlx5_cq_arm`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final, Generic, TypeVar

from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.events import Fact
from bluebridge.device.pci.bus import DmaError, HostBus
from bluebridge.device.refusal import Reason, Refusal
from bluebridge.device.rings.queue_buffer import QueueBuffer

INDEX_MASK: Final = 0xFFFFFF  # indices run freely in 24 bits
MAX_LOG_SIZE: Final = 22
SHORTEST_TIMER: Final = 500
"""Shortest timer in microseconds, as the server's loop sleeps in milliseconds."""
OVERRUN: Final = 1
ACCESS: Final = 2
NOT_ARMED: Final = 0
FOR_SOLICITED: Final = 1
FOR_ANY: Final = 2
FOR_COUNT: Final = 3
"""What an armed queue waits for, as `layout.mlx4.uar` numbers it; `FOR_COUNT`: a certain entry."""
_NUMBERS: Final = 3
"""Mask of the numbers of requests for events, which count modulo four."""


class CompletionRing(ABC):
    """The entries and events of one completion queue, whose cards read and write its context.

    An entry has `stride` bytes, of which software looks at the last `entry_bytes`; `owner_bit` is
    the bit of the last byte that changes with each lap of the ring. `record` is the guest-physical
    address of the doorbell record with the consumer index, `period` (in microseconds) and
    `max_count` moderate events, and `overwrites` says that no entry is ever one too many. Where
    software wants `timestamps`, whoever posts an entry has it stamped first.
    """

    def __init__(
        self,
        bus: HostBus,
        cqn: int,
        buffer: QueueBuffer,
        log_size: int,
        stride: int,
        entry_bytes: int,
        owner_bit: int,
        record: int,
    ) -> None:
        self._bus = bus
        self.cqn = cqn
        self.buffer = buffer
        self.size = 1 << log_size
        self.stride = stride
        self._lead = bytes(stride - entry_bytes)
        self._owner_bit = owner_bit
        self.record = record
        self.overwrites = self.timestamps = False
        self.period = 0
        self.max_count = 0
        self.producer = 0
        self.broken = False
        self.consumer = 0  # the one in the doorbell record at the last look
        self.armed = NOT_ARMED
        self._target = 0  # index of the entry that FOR_COUNT waits for
        self._unreported = 0  # entries that moderation holds back
        self._delayed = False  # whether their time runs
        self._sn = 0  # number of the last request
        self._request = (0, 0)  # number and consumer index of the last request that was taken
        self._answered = (-1, 0)  # and of the one that the last event answered
        self._unseen = 0  # events that software has not counted yet, by its numbers
        self.notified = 0  # producer index when the last event fired (last_notified_index)
        self._last_solicited: int | None = None  # producer index of the newest solicited entry

    @abstractmethod
    def announce(self) -> None:
        """Post the event that tells software of entries."""

    @abstractmethod
    def report(self, syndrome: int) -> None:
        """Post the event CQ_ERROR: `OVERRUN` or `ACCESS`."""

    def stamp(self, cqe: bytes, when: int) -> bytes:
        """Return an entry with the time of its event, monotonic time in ns."""
        return cqe

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
            self.fail(OVERRUN)
            return
        entry = bytearray(cqe)
        # The bit changes with each lap, so that software knows a new entry from an old one.
        if index & self.size:
            entry[-1] |= self._owner_bit
        if self._lead:
            entry[:0] = self._lead
        try:
            offset = (index & (self.size - 1)) * self.stride
            self.buffer.write_entry(offset, entry, What.CQE, self.cqn)
        except DmaError as fault:
            self._note(fault)
            self.fail(ACCESS)
            return
        self.producer = (index + 1) & INDEX_MASK
        urgent = solicited or error
        if urgent:
            self._last_solicited = index
        if urgent and self.armed:
            self._fire()
        elif self.armed == FOR_ANY:
            self._due(1)
        elif self.armed == FOR_COUNT and self._reached():
            self._fire()

    def post_many(self, entries: list[bytes]) -> None:
        """Append entries that are neither solicited nor errors; an event comes after the last.

        Software looks at entries in order, so the first one of a page is written last: until then
        none of them is seen.
        """
        position = 0
        while position < len(entries) and not self.broken:
            index, slot = self.producer, self.producer & (self.size - 1)
            room = self.size - ((index - self.consumer) & INDEX_MASK)
            if room <= 0:
                if self._full():
                    self.fail(OVERRUN)
                    return
                continue
            # Neither beyond the ring's end, where the owner bit changes, nor into another page.
            page = self.buffer.contiguous(slot * self.stride) // self.stride
            count = min(room, self.size - slot, len(entries) - position, page)
            self._write(slot, entries[position : position + count])
            position += count
        if self.armed == FOR_ANY and entries and not self.broken:
            self._due(len(entries))
        elif self.armed == FOR_COUNT and not self.broken and self._reached():
            self._fire()

    def _write(self, slot: int, entries: list[bytes]) -> None:
        """Store entries that lie in one page, the first one's last byte after all others."""
        stride = self.stride
        image = bytearray(self._lead + self._lead.join(entries))
        if self.producer & self.size:
            for at in range(stride - 1, len(image), stride):
                image[at] |= self._owner_bit
        try:
            self.buffer.write_entries(slot * stride, bytes(image), stride, What.CQE, self.cqn)
        except DmaError as fault:
            self._note(fault)
            self.fail(ACCESS)
            return
        self.producer = (self.producer + len(entries)) & INDEX_MASK

    def arm(self, sn: int, wanted: int, consumer: int) -> None:
        """Ask for an event (CQ doorbell); entries since the last event fire it at once.

        `wanted` is `FOR_SOLICITED` or `FOR_ANY`.

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
        if self.broken:
            return
        if sn == self._answered[0]:
            if self._unseen > 1 or consumer == self._answered[1]:
                return
        else:
            self._unseen = max(0, self._unseen - ((sn - self._sn) & _NUMBERS))
        self._sn = sn
        self.armed = max(self.armed, wanted)
        self._request = (sn, consumer)
        waiting = (self.producer - consumer) & INDEX_MASK
        fresh = min(waiting, (self.producer - self.notified) & INDEX_MASK)
        if self.armed == FOR_ANY:
            due = fresh != 0
        else:
            newest = self._last_solicited
            due = newest is not None and (self.producer - 1 - newest) & INDEX_MASK < fresh
        if due:
            self._fire()

    def arm_for(self, target: int) -> None:
        """Ask for an event when the entry with index `target` is written, perhaps at once."""
        if self.broken:
            return
        self.armed, self._target = FOR_COUNT, target
        if self._reached():
            self._fire()

    def _reached(self) -> bool:
        """Return True if the entry that `FOR_COUNT` waits for is written, modulo 2^24."""
        return (self.producer - 1 - self._target) & INDEX_MASK <= INDEX_MASK >> 1

    def check_move(self, log_size: int) -> None:
        """Raise `Refusal` unless what is unread fits into a ring of that size, and a marker here.

        BAD_PARAMETER: it does not fit. BUSY: this ring has no room. BAD_STATE: it is broken.
        """
        if self.broken:
            raise Refusal(Reason.BAD_STATE, f"CQ {self.cqn:#x} is broken")
        self.read_consumer()
        unread = (self.producer - self.consumer) & INDEX_MASK
        if unread > 1 << log_size:
            # mlx4_ib names BAD_SIZE (ENOMEM) for it, but a card is hardly ever asked: libmlx4 looks
            # first and says EINVAL. A guest under TCG looks before its last sends are completed,
            # so that the command refuses, and programs shall get the EINVAL of a card.
            raise Refusal(Reason.BAD_PARAMETER, f"CQ {self.cqn:#x} holds more than 2**{log_size}")
        if unread >= self.size:
            raise Refusal(Reason.BUSY, f"CQ {self.cqn:#x} is full")

    def move(self, buffer: QueueBuffer, log_size: int, marker: int) -> None:
        """Move to another buffer; a marker in the old one tells software to go on in the new.

        `marker` is the last byte of that entry. It takes an index like an entry: software copies
        what it has not read to the places one further in the new ring, and counts on from there.
        Raises `Refusal` as `check_move` or BAD_PARAMETER without memory, and nothing has changed.
        """
        self.check_move(log_size)
        entry = bytearray(self.stride)
        entry[-1] = marker | (self._owner_bit if self.producer & self.size else 0)
        offset = (self.producer & (self.size - 1)) * self.stride
        try:
            self.buffer.write_entry(offset, entry, What.CQE, self.cqn)
        except DmaError as error:
            raise Refusal(Reason.BAD_PARAMETER, f"CQ {self.cqn:#x}: {error}") from error
        self.pass_marker()
        self.buffer, self.size = buffer, 1 << log_size

    def pass_marker(self) -> None:
        """Count everything that an index refers to one further: a marker took one, as an entry.

        Software stores its index anew only after that: completions may come before, and the marker
        takes no place in the new ring.
        """
        self.consumer = (self.consumer + 1) & INDEX_MASK
        self.producer = (self.producer + 1) & INDEX_MASK
        self.notified = (self.notified + 1) & INDEX_MASK
        self._target = (self._target + 1) & INDEX_MASK
        if self._last_solicited is not None:
            self._last_solicited = (self._last_solicited + 1) & INDEX_MASK
        (number, consumer), (answered, read) = self._request, self._answered
        self._request = number, (consumer + 1) & INDEX_MASK
        self._answered = answered, (read + 1) & INDEX_MASK

    def read_consumer(self) -> None:
        """Read the consumer index in the doorbell record; it stays as known if that is gone."""
        try:
            word = self._bus.read(self.record, 4, What.DOORBELL_RECORD, self.cqn)
        except DmaError as fault:
            self._note(fault)
            return
        self.consumer = int.from_bytes(word, "big") & INDEX_MASK

    def fail(self, syndrome: int) -> None:
        """Break the queue: an event CQ_ERROR, and no entry ever again."""
        if not self.broken:
            self.broken = True
            self.report(syndrome)

    def _full(self) -> bool:
        if self.overwrites:
            self.consumer = self.producer
            return False
        self.read_consumer()
        return (self.producer - self.consumer) & INDEX_MASK >= self.size

    def _due(self, entries: int) -> None:
        """Send an event for new entries, at once or moderated as software asked.

        Those periods that are too short for a timer end when the server's loop has no other work
        left, since no more entries can come before that.
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
        if self._unreported and self.armed == FOR_ANY and not self.broken:
            self._fire()

    def _fire(self) -> None:
        self._unseen += 1
        self._answered, self.armed, self._unreported = self._request, NOT_ARMED, 0
        self.notified = self.producer
        self.announce()

    def _note(self, fault: DmaError) -> None:
        self._bus.tell(Fact.CQ_LOST, cqn=self.cqn, reason=str(fault))


Ring = TypeVar("Ring", bound=CompletionRing, covariant=True)


class CompletionRings(Generic[Ring]):
    """The completion queues of one adapter by their numbers."""

    def __init__(self) -> None:
        self._queues: dict[int, Ring] = {}

    def reset(self) -> None:
        """Forget all queues."""
        for queue in self._queues.values():
            queue.broken = True  # a timer may still refer to it
        self._queues.clear()

    def __len__(self) -> int:
        return len(self._queues)

    def numbers(self) -> list[int]:
        """The numbers of all queues, oldest first."""
        return list(self._queues)

    def get(self, cqn: int) -> Ring | None:
        """Return the queue `cqn`; None unless hardware owns it."""
        return self._queues.get(cqn)
