"""Writes that post work requests, and the event entries and interrupts that announce their end.

Stores of 4 or 8 bytes at ascending addresses of one line count as one write, as a processor's
write-combining buffer, or a store block of System z, sends it. A doorbell names only its queue
pair, so it belongs to the next entry that is fetched, or else to the newest one without a write.
An event entry belongs to the newest completion of its queue. In the log an interrupt follows its
event entry directly, or the doorbell that armed the queue when the entry was there before.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from bluebridge.host_tools.analyzer.devices.model import EventKind
from bluebridge.host_tools.analyzer.devices.registry import adapter_of
from bluebridge.host_tools.analyzer.transaction import PostedBy, Transaction, Transfer

MAX_WAITING = 16
"""Writes of one queue pair that wait at most for their entry; older ones are dropped."""
MAX_FOUND = 4096
Queue = tuple[str, int]

_Member = tuple[Transfer, int, bool]
"""A work request, the place of a transaction in it, and whether that is on the peer's bus."""


@dataclass(slots=True, eq=False)
class Trigger:
    """A write that posts a work request: a doorbell, or the stores of a BlueFlame entry.

    `index` has the low 16 bits of the work request's index, None for a doorbell and while they are
    not stored yet. `owner` is the work request, as soon as it is known.
    """

    device: str
    qpn: int
    index: int | None
    writes: list[Transaction] = field(default_factory=list)
    blueflame: bool = False
    owner: Transfer | None = None


class BlueFlameStores:
    """Groups the stores into the BlueFlame pages of each device.

    The rings of several processors have registers in one page, and their stores are interleaved:
    a store belongs to the entry whose last store ended at its address.
    """

    def __init__(self) -> None:
        self._bursts: dict[tuple[str, int], Trigger] = {}  # by device and address of the next store

    def begin(self, doorbell: Trigger) -> None:
        """Note a doorbell, which is the head of an entry if a store continues it."""
        write = doorbell.writes[0]
        self._bursts[write.device, write.address + write.length] = doorbell

    def at(self, store: Transaction) -> Trigger | None:
        """Return the entry that a store continues, if it is known."""
        return self._bursts.get((store.device, store.address))

    def add(self, store: Transaction) -> tuple[Trigger, bool, bool]:
        """Add a store to its entry; return that, and whether it began a line or ended the head."""
        burst = self._bursts.pop((store.device, store.address), None)
        if burst is None or not _continues(burst, store):
            burst = Trigger(store.device, 0, None)
        burst.blueflame = True
        self._bursts[store.device, store.address + store.length] = burst
        known = burst.index is not None
        begins = not burst.writes or not same_line(burst.writes[-1], store)
        if begins:
            burst.writes.append(store)
        else:
            burst.writes[-1].extend(store)
        adapter, head = adapter_of(burst.device), burst.writes[0].data
        if not known and len(head) >= adapter.head:
            _, _, burst.index, burst.qpn = adapter.send_head(head)
        return burst, begins, burst.index is not None and not known


def _continues(burst: Trigger, store: Transaction) -> bool:
    """Return whether a store continues the entry of `burst`, which is not complete yet."""
    first = burst.writes[0]
    if burst.writes[-1].given or (burst.owner is not None and burst.owner.given):
        return False
    done = store.address - first.address
    adapter = adapter_of(store.device)
    if done < adapter.head or first.length < adapter.head:
        return True
    return done < -(-adapter.send_head(first.data).size // adapter.line) * adapter.line


def same_line(one: Transaction, store: Transaction) -> bool:
    """Return whether a store goes into the line of an adapter that `one` begins or fills."""
    line = adapter_of(store.device).line
    return one.address // line == store.address // line


class Triggers:
    """Matches writes with the work requests that they post, by queue pair."""

    def __init__(self) -> None:
        self._waiting: dict[Queue, deque[Trigger]] = {}
        self._found: dict[Queue, deque[Transfer]] = {}
        self._notes: dict[Queue, deque[Transaction]] = {}
        self._fresh: Trigger | None = None  # the doorbell being carried out

    def doorbell(self, write: Transaction) -> Trigger:
        """Take a doorbell of queue pair `write.obj`."""
        self._fresh = fresh = Trigger(write.device, write.obj, None, [write])
        self.push(fresh)
        return fresh

    def access(self, continued: Trigger | None = None) -> None:
        """Note that the host accesses a device, which has carried out the last doorbell by then.

        If no entry was fetched for it, it belongs to the newest entry that was found; unless it is
        the head of the entry that the access has `continued`.
        """
        fresh, self._fresh = self._fresh, None
        if fresh is None or fresh.owner is not None or fresh is continued:
            return
        queue = fresh.device, fresh.qpn
        found = self._found.get(queue)
        if found:
            transfer = found.pop()
            transfer.posted_by = PostedBy.DOORBELL
            self._waiting[queue].remove(fresh)
            self._attach(transfer, fresh)

    def late(self, burst: Trigger, transfer: Transfer) -> None:
        """Take stores that arrived after their entry was fetched; its doorbell was another's.

        Unless that was the first of these stores.
        """
        if burst.owner is transfer:
            transfer.posted_by = PostedBy.EARLY
            return
        found = self._found.get((transfer.device, transfer.qpn))
        if transfer.posted_by is PostedBy.DOORBELL and found:
            target = found.pop()
            doorbell = transfer.transactions.pop(0)
            for one in transfer.transactions:
                one.parent = one.parent - 1 if one.parent else None
            target.transactions.append(doorbell)
            target.posted_by = PostedBy.DOORBELL
        elif found and transfer in found:
            found.remove(transfer)
        transfer.posted_by = PostedBy.EARLY
        self._attach(transfer, burst)

    def another_line(self, burst: Trigger, line: Transaction) -> None:
        """Take a further line of an entry that the device has taken."""
        if burst.owner is not None and not burst.owner.given:
            burst.owner.take(line)

    def note(self, note: Transaction) -> None:
        """Keep a note about queue pair `note.obj` until the device fetches an entry."""
        queue = note.device, note.obj
        if self._waiting.get(queue):
            self._notes.setdefault(queue, deque(maxlen=MAX_WAITING)).append(note)

    def take(self, transfer: Transfer, *, entry: bool) -> None:
        """Add to `transfer`, whose entry the device has just taken, the write that posted it."""
        queue = transfer.device, transfer.qpn
        waiting = self._waiting.get(queue, deque())
        index = transfer.index & 0xFFFF
        trigger = next((each for each in waiting if each.index == index), None)
        if trigger is None:
            trigger = next((each for each in waiting if each.index is None), None)
        if trigger is None:
            found = self._found.setdefault(queue, deque(maxlen=MAX_FOUND))
            found.append(transfer)
            return
        waiting.remove(trigger)
        for note in self._notes.pop(queue, ()):
            transfer.take_note(note)
        transfer.posted_by = PostedBy.DOORBELL
        if trigger.blueflame:
            transfer.posted_by = PostedBy.BLUEFLAME if entry else PostedBy.FALLBACK
        self._attach(transfer, trigger)

    def forget(self, transfer: Transfer) -> None:
        """Forget a work request that was returned."""
        found = self._found.get((transfer.device, transfer.qpn))
        if found and transfer.posted_by is PostedBy.FOUND and transfer in found:
            found.remove(transfer)

    def push(self, trigger: Trigger) -> None:
        """Let a write wait for its entry: a doorbell, or stores of which the head is complete."""
        queue = trigger.device, trigger.qpn
        waiting = self._waiting.setdefault(queue, deque())
        if trigger in waiting:  # as a doorbell, which it is not
            return
        waiting.append(trigger)
        if len(waiting) > MAX_WAITING:
            waiting.popleft()

    def _attach(self, transfer: Transfer, trigger: Trigger) -> None:
        for write in trigger.writes:
            transfer.take(write)
        trigger.owner = transfer


class CompletionNotifications:
    """Matches completions with event entries, and event entries with interrupts, by queue."""

    def __init__(self) -> None:
        self._completions: dict[tuple[str, int], _Member] = {}
        self._entries: dict[tuple[str, int], _Member] = {}
        self._latest: dict[str, tuple[str, int]] = {}

    def completion(self, one: Transaction, transfer: Transfer) -> None:
        """Note a completion entry, the last of `transfer.transactions`."""
        place = len(transfer.transactions) - 1
        self._completions[one.device, one.obj] = transfer, place, one.remote

    def event(self, one: Transaction) -> None:
        """Add an event entry to the work request of the completion that it announces."""
        queue = one.device, one.obj
        self._entries.pop(queue, None)
        self._latest[one.device] = queue
        found = adapter_of(one.device).event(one.data)
        if found.kind is not EventKind.COMPLETION or found.number is None:
            return
        link = self._completions.pop((one.device, found.number), None)
        if link is not None and not link[0].given:
            self._entries[queue] = _announced(one, link)

    def armed(self, one: Transaction) -> None:
        """Take a doorbell of an event queue; an interrupt that follows belongs to that queue."""
        self._latest[one.device] = one.device, one.obj

    def interrupt(self, one: Transaction) -> None:
        """Add an interrupt to the work request of the event entry that it announces."""
        queue = self._latest.pop(one.device, None)
        link = self._entries.pop(queue, None) if queue is not None else None
        if link is not None and not link[0].given:
            _announced(one, link)


def _announced(one: Transaction, cause: _Member) -> _Member:
    transfer, one.parent, one.remote = cause
    transfer.take(one)
    return transfer, len(transfer.transactions) - 1, one.remote
