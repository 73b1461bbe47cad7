"""Which write made the device look at a queue.

A doorbell says only that its queue pair has something new, so it goes with the next entry that is
fetched. When none is, because an earlier doorbell's walk of the ring has found it before, it goes
with the oldest entry that no write was found for.
"""

from __future__ import annotations

from collections import deque

from device.buslog.analysis.stores import Trigger
from device.buslog.analysis.transaction import Transaction
from device.buslog.analysis.transfer import Path, Transfer

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

    def doorbell(self, write: Transaction) -> None:
        """A doorbell of queue pair `write.obj`. One before it that found nothing was a late one."""
        queue = write.device, write.obj
        waiting = self._waiting.setdefault(queue, deque())
        earlier = next((each for each in waiting if not each.blueflame), None)
        if earlier is not None:
            waiting.remove(earlier)
            self._late(queue, earlier)
        self._push(queue, Trigger(write.device, write.obj, None, [write]))

    def burst(self, burst: Trigger) -> None:
        """Stores of an entry whose head has come."""
        self._push((burst.device, burst.qpn), burst)

    def late(self, burst: Trigger, transfer: Transfer) -> None:
        """Stores of an entry that was fetched before they came."""
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
        if trigger.blueflame:
            transfer.path = Path.BLUEFLAME if entry else Path.FALLBACK
        else:
            transfer.path = Path.DOORBELL
        self._attach(transfer, trigger)

    def forget(self, transfer: Transfer) -> None:
        """The work request is handed out: the last chance for its doorbell."""
        if transfer.path is not Path.FOUND:
            return
        queue = transfer.device, transfer.qpn
        waiting = self._waiting.get(queue)
        if waiting and not waiting[0].blueflame:
            self._late(queue, waiting.popleft())
        found = self._found.get(queue)
        if found and transfer in found:
            found.remove(transfer)

    def _late(self, queue: Queue, trigger: Trigger) -> None:
        """A doorbell after its entry was found: it belongs to the oldest such entry."""
        found = self._found.get(queue)
        if found:
            transfer = found.popleft()
            transfer.path = Path.DOORBELL
            transfer.transactions += trigger.writes

    def _push(self, queue: Queue, trigger: Trigger) -> None:
        waiting = self._waiting.setdefault(queue, deque())
        waiting.append(trigger)
        if len(waiting) > MAX_WAITING:
            waiting.popleft()

    def _attach(self, transfer: Transfer, trigger: Trigger) -> None:
        transfer.transactions += trigger.writes
        trigger.owner = transfer
