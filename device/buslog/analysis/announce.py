"""Event entries and interrupts: which completion they announce.

One event entry can announce several completions of its queue: it belongs to the newest. An
interrupt stands in the log directly behind the event entry, or behind the doorbell that armed the
queue of one that had to wait.
"""

from __future__ import annotations

from dataclasses import dataclass

from bluebridge.device.buslog.analysis.transaction import Transaction
from bluebridge.device.buslog.analysis.transfer import Transfer
from bluebridge.device.layout.mlx4.eqe import EventType

COMP = int(EventType.COMP)


@dataclass(slots=True)
class _Link:
    """A transaction within its work request."""

    transfer: Transfer
    place: int
    remote: bool


class Announcements:
    """Completions, by queue, that no event entry told of; event entries without interrupt."""

    def __init__(self) -> None:
        self._completions: dict[tuple[str, int], _Link] = {}
        self._entries: dict[tuple[str, int], _Link] = {}
        self._latest: dict[str, tuple[str, int]] = {}

    def completion(self, one: Transaction, transfer: Transfer) -> None:
        """A completion entry, the last of the transfer's transactions."""
        place = len(transfer.transactions) - 1
        self._completions[one.device, one.obj] = _Link(transfer, place, one.remote)

    def event(self, one: Transaction) -> None:
        """An event entry."""
        queue = one.device, one.obj
        self._entries.pop(queue, None)
        self._latest[one.device] = queue
        if len(one.data) < 8 or one.data[1] != COMP:
            return
        cqn = int.from_bytes(one.data[5:8], "big")
        link = self._completions.pop((one.device, cqn), None)
        if link is not None:
            self._entries[queue] = _append(one, link)

    def armed(self, one: Transaction) -> None:
        """A doorbell of an event queue: an interrupt that follows is for that queue."""
        self._latest[one.device] = one.device, one.obj

    def interrupt(self, one: Transaction) -> None:
        """An interrupt."""
        queue = self._latest.pop(one.device, None)
        link = self._entries.pop(queue, None) if queue is not None else None
        if link is not None:
            _append(one, link)


def _append(one: Transaction, cause: _Link) -> _Link:
    one.parent, one.remote = cause.place, cause.remote
    cause.transfer.transactions.append(one)
    return _Link(cause.transfer, len(cause.transfer.transactions) - 1, cause.remote)
