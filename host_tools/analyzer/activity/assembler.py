"""Assembles the events of a log into activities, in one pass and bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from pathlib import Path

from bluebridge.device.buslog.reader import Event, Filter, LogReader
from bluebridge.device.layout.buslog import Kind
from bluebridge.host_tools.analyzer.activity.activity import (
    WINDOW,
    Activity,
    OpenActivities,
    lone,
    of_transfer,
)
from bluebridge.host_tools.analyzer.activity.adapter_activities import FunctionActivities
from bluebridge.host_tools.analyzer.activity.bridge_assembly import BridgeAssembler
from bluebridge.host_tools.analyzer.analysis.assembly import TransferAssembler
from bluebridge.host_tools.analyzer.analysis.classify import transaction_of
from bluebridge.host_tools.analyzer.analysis.transfer import Transfer
from bluebridge.host_tools.analyzer.devices.registry import adapter_of, model_of
from bluebridge.host_tools.analyzer.transaction import Role, Transaction

_LATE = (Role.DOORBELL, Role.BLUEFLAME, Role.ENTRY, Role.NOTE)
"""Roles of transactions that may belong to a work request which begins later."""
_NOTHING: list[Activity] = []
_NO_TRANSFERS: list[Transfer] = []


class ActivityAssembler:
    """Assembles the events of a log, taken in order, into activities."""

    def __init__(self, devices: Sequence[str]) -> None:
        """`devices` are the names in the log's meta file; more may be appended later."""
        self._transfers = TransferAssembler(devices)
        self._held: deque[tuple[Event, Transaction]] = deque()  # work requests may take them yet
        self._open = OpenActivities()
        self._functions: dict[str, FunctionActivities] = {}
        self._bridges = BridgeAssembler(devices)

    def feed(self, event: Event) -> list[Activity]:
        """Take the next event and return the activities that are complete by it."""
        one = transaction_of(event)
        given = _NO_TRANSFERS
        if not model_of(event.device).is_adapter:
            found = self._bridges.feed(event, one)
        else:
            given = self._transfers.take(event, one)
            if not one.taken:
                self._other(event, one)
            found = _NOTHING
        if self._held:
            self._release(event.number - WINDOW)
        ready = _NOTHING if self._open.idle else self._open.taken(event.number - WINDOW)
        if given or (found and ready):
            return [*map(of_transfer, given), *found, *ready]
        return found or ready

    def finish(self) -> list[Activity]:
        """Return the activities that still wait for more events at the end of the log."""
        rest = [of_transfer(each) for each in self._transfers.finish()]
        self._release(None)
        for function in self._functions.values():
            function.finish()
        return [*rest, *self._open.rest(), *self._bridges.finish()]

    def _other(self, event: Event, one: Transaction) -> None:
        if one.role in _LATE and (event.obj or event.kind is not Kind.NOTE):
            self._held.append((event, one))
            return
        function = self._functions.get(event.device)
        if function is None:
            function = FunctionActivities(adapter_of(event.device), self._open)
            self._functions[event.device] = function
        function.feed(event, one)

    def _release(self, before: int | None) -> None:
        """Release the held events before event `before` that no work request has taken."""
        held = self._held
        while held and (held[0][1].taken or before is None or held[0][1].number < before):
            event, one = held.popleft()
            if not one.taken:
                self._open.complete(lone(event, one))


def activities(folder: Path | LogReader, wanted: Filter | None = None) -> Iterator[Activity]:
    """Yield the activities of a log in the order of completion; raises `LogError`.

    The times and the first event of `wanted` select the events that are assembled, its device
    selects the activities.
    """
    reader = folder if isinstance(folder, LogReader) else LogReader(folder)
    wanted = wanted or Filter()
    assembler = ActivityAssembler(reader.meta["devices"])
    for event in reader.events(replace(wanted, kinds=None, bar=None, device=None)):
        yield from _of(wanted.device, assembler.feed(event))
    yield from _of(wanted.device, assembler.finish())


def in_order(found: Iterable[Activity], waiting: int = 4096) -> Iterator[Activity]:
    """Sort activities by their beginning; one that outlasts `waiting` others comes late."""
    heap: list[tuple[int, int, Activity]] = []
    for place, activity in enumerate(found):
        heappush(heap, (activity.number, place, activity))
        if len(heap) > waiting:
            yield heappop(heap)[2]
    while heap:
        yield heappop(heap)[2]


def _of(device: str | None, found: list[Activity]) -> Iterator[Activity]:
    return (each for each in found if device is None or each.concerns(device))
