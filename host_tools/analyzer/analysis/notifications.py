"""Completion notifications: which completion an event queue entry or an interrupt announces.

One event entry can announce several completions of its queue: it belongs to the newest. In the log
an interrupt follows the event entry directly, or the doorbell that armed the event queue when the
entry had been written before.
"""

from __future__ import annotations

from dataclasses import dataclass

from bluebridge.host_tools.analyzer.analysis.transfer import Transfer
from bluebridge.host_tools.analyzer.devices.model import EventKind
from bluebridge.host_tools.analyzer.devices.registry import adapter_of
from bluebridge.host_tools.analyzer.transaction import Transaction


@dataclass(slots=True)
class _Member:
    """A transaction of a work request: `place` in `Transfer.transactions`."""

    transfer: Transfer
    place: int
    remote: bool


class CompletionNotifications:
    """Matches completions with event entries, and event entries with interrupts, by queue."""

    def __init__(self) -> None:
        self._completions: dict[tuple[str, int], _Member] = {}
        self._entries: dict[tuple[str, int], _Member] = {}
        self._latest: dict[str, tuple[str, int]] = {}

    def completion(self, one: Transaction, transfer: Transfer) -> None:
        """Note a completion entry, the last of `transfer.transactions`."""
        place = len(transfer.transactions) - 1
        self._completions[one.device, one.obj] = _Member(transfer, place, one.remote)

    def event(self, one: Transaction) -> None:
        """Add an event entry to the work request of the completion that it announces."""
        queue = one.device, one.obj
        self._entries.pop(queue, None)
        self._latest[one.device] = queue
        found = adapter_of(one.device).event(one.data)
        if found.kind is not EventKind.COMPLETION or found.number is None:
            return
        link = self._completions.pop((one.device, found.number), None)
        if link is not None and not link.transfer.given:
            self._entries[queue] = _append(one, link)

    def armed(self, one: Transaction) -> None:
        """Take a doorbell of an event queue; an interrupt that follows belongs to that queue."""
        self._latest[one.device] = one.device, one.obj

    def interrupt(self, one: Transaction) -> None:
        """Add an interrupt to the work request of the event entry that it announces."""
        queue = self._latest.pop(one.device, None)
        link = self._entries.pop(queue, None) if queue is not None else None
        if link is not None and not link.transfer.given:
            _append(one, link)


def _append(one: Transaction, cause: _Member) -> _Member:
    one.parent, one.remote = cause.place, cause.remote
    cause.transfer.take(one)
    return _Member(cause.transfer, len(cause.transfer.transactions) - 1, cause.remote)
