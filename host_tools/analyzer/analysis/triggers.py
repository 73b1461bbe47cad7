"""Matches doorbells and BlueFlame stores with the work requests that they posted.

A doorbell names only its queue pair, so it belongs to the next entry that is fetched. If none is,
because the device had fetched the entry after an earlier doorbell, it belongs to the newest entry
without a write.
"""

from __future__ import annotations

from collections import deque

from bluebridge.host_tools.analyzer.analysis.blueflame_stores import Trigger
from bluebridge.host_tools.analyzer.analysis.transfer import PostedBy, Transfer
from bluebridge.host_tools.analyzer.transaction import Transaction

MAX_WAITING = 16
"""Writes of one queue pair that wait for their entry; older ones are dropped."""
MAX_FOUND = 4096
Queue = tuple[str, int]


class Triggers:
    """Writes without a work request and work requests without a write, by queue pair."""

    def __init__(self) -> None:
        self._waiting: dict[Queue, deque[Trigger]] = {}
        self._found: dict[Queue, deque[Transfer]] = {}
        self._notes: dict[Queue, deque[Transaction]] = {}
        self._fresh: Trigger | None = None  # the doorbell being carried out

    def doorbell(self, write: Transaction) -> None:
        """Take a doorbell of queue pair `write.obj`."""
        queue = write.device, write.obj
        self._fresh = Trigger(write.device, write.obj, None, [write])
        self._push(queue, self._fresh)

    def access(self) -> None:
        """Note that the host accesses a device: the last doorbell has been carried out.

        If no entry was fetched for it, it belongs to the newest entry that was found.
        """
        fresh, self._fresh = self._fresh, None
        if fresh is None or fresh.owner is not None:
            return
        queue = fresh.device, fresh.qpn
        found = self._found.get(queue)
        if found:
            transfer = found.pop()
            transfer.posted_by = PostedBy.DOORBELL
            self._waiting[queue].remove(fresh)
            self._attach(transfer, fresh)

    def burst(self, burst: Trigger) -> None:
        """Take the stores of an entry whose head is complete."""
        self._push((burst.device, burst.qpn), burst)

    def late(self, burst: Trigger, transfer: Transfer) -> None:
        """Take the stores of an entry that was fetched before they arrived.

        A doorbell that it was given then belongs to an entry that was found.
        """
        found = self._found.get((transfer.device, transfer.qpn))
        if transfer.posted_by is PostedBy.DOORBELL and found:
            _move_doorbell(transfer, found.pop())
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
        """Add to `transfer`, whose entry the device has just got, the write that posted it."""
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
        """Forget a work request that was given out."""
        found = self._found.get((transfer.device, transfer.qpn))
        if found and transfer.posted_by is PostedBy.FOUND and transfer in found:
            found.remove(transfer)

    def _push(self, queue: Queue, trigger: Trigger) -> None:
        waiting = self._waiting.setdefault(queue, deque())
        waiting.append(trigger)
        if len(waiting) > MAX_WAITING:
            waiting.popleft()

    def _attach(self, transfer: Transfer, trigger: Trigger) -> None:
        for write in trigger.writes:
            transfer.take(write)
        trigger.owner = transfer


def _move_doorbell(source: Transfer, target: Transfer) -> None:
    """Give the doorbell at the beginning of `source` to `target`."""
    doorbell = source.transactions.pop(0)
    for one in source.transactions:
        one.parent = one.parent - 1 if one.parent else None
    target.transactions.append(doorbell)
    target.posted_by = PostedBy.DOORBELL
