"""Which write made the device look at a queue.

A doorbell says only that its queue pair has something new, so it goes with the next entry that is
fetched. When none is, because an earlier doorbell's walk of the ring has found it before, it goes
with the newest entry that no write was found for.
"""

from __future__ import annotations

from collections import deque

from bluebridge.device.buslog.analysis.stores import Trigger
from bluebridge.device.buslog.analysis.transaction import Transaction
from bluebridge.device.buslog.analysis.transfer import Path, Transfer

MAX_WAITING = 16
"""Writes of one queue pair that wait for their entry; older ones were for nothing."""
MAX_FOUND = 4096
Queue = tuple[str, int]


class Triggers:
    """Writes that wait for an entry, and entries that wait for their write."""

    def __init__(self) -> None:
        self._waiting: dict[Queue, deque[Trigger]] = {}
        self._found: dict[Queue, deque[Transfer]] = {}
        self._notes: dict[Queue, list[str]] = {}
        self._fresh: Trigger | None = None  # a doorbell that is being carried out

    def doorbell(self, write: Transaction) -> None:
        """A doorbell of queue pair `write.obj`."""
        queue = write.device, write.obj
        self._fresh = Trigger(write.device, write.obj, None, [write])
        self._push(queue, self._fresh)

    def access(self) -> None:
        """The host accesses a device again: what the last doorbell caused at once is in the log.

        If that was nothing though entries had been found before, it was for the newest of them.
        """
        fresh, self._fresh = self._fresh, None
        if fresh is None or fresh.owner is not None:
            return
        queue = fresh.device, fresh.qpn
        found = self._found.get(queue)
        if found:
            transfer = found.pop()
            transfer.path = Path.DOORBELL
            self._waiting[queue].remove(fresh)
            self._attach(transfer, fresh)

    def burst(self, burst: Trigger) -> None:
        """Stores of an entry whose head has come."""
        self._push((burst.device, burst.qpn), burst)

    def late(self, burst: Trigger, transfer: Transfer) -> None:
        """Stores of an entry that was fetched before they came.

        A doorbell that seemed to be its own was for an entry that was found, then.
        """
        found = self._found.get((transfer.device, transfer.qpn))
        if transfer.path is Path.DOORBELL and found:
            _move_doorbell(transfer, found.pop())
        elif found and transfer in found:
            found.remove(transfer)
        transfer.path = Path.EARLY
        self._attach(transfer, burst)

    def another_line(self, burst: Trigger, line: Transaction) -> None:
        """A line of an entry that has been taken already."""
        if burst.owner is not None:
            burst.owner.transactions.append(line)

    def note(self, device: str, qpn: int, text: str) -> None:
        """What the device says of a queue pair before it fetches."""
        if self._waiting.get((device, qpn)):
            self._notes.setdefault((device, qpn), []).append(text)

    def take(self, transfer: Transfer, *, entry: bool) -> None:
        """Give `transfer`, whose entry the device has just got, the write that posted it."""
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
        transfer.notes += self._notes.pop(queue, [])
        transfer.path = Path.DOORBELL
        if trigger.blueflame:
            transfer.path = Path.BLUEFLAME if entry else Path.FALLBACK
        self._attach(transfer, trigger)

    def forget(self, transfer: Transfer) -> None:
        """The work request is handed out."""
        found = self._found.get((transfer.device, transfer.qpn))
        if found and transfer.path is Path.FOUND and transfer in found:
            found.remove(transfer)

    def _push(self, queue: Queue, trigger: Trigger) -> None:
        waiting = self._waiting.setdefault(queue, deque())
        waiting.append(trigger)
        if len(waiting) > MAX_WAITING:
            waiting.popleft()

    def _attach(self, transfer: Transfer, trigger: Trigger) -> None:
        transfer.transactions += trigger.writes
        trigger.owner = transfer


def _move_doorbell(source: Transfer, target: Transfer) -> None:
    """Give the doorbell at the beginning of `source` to `target`."""
    doorbell = source.transactions.pop(0)
    for one in source.transactions:
        one.parent = one.parent - 1 if one.parent else None
    target.transactions.append(doorbell)
    target.path = Path.DOORBELL
