"""Assembles the events of a log into activities, in one pass and bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from pathlib import Path

from bluebridge.device.buslog.reader import Event, Filter, LogReader
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.layout.events import Fact
from bluebridge.host_tools.analyzer.activity.activity import (
    WINDOW,
    Activity,
    ActivityKind,
    OpenActivities,
    lone,
    of_transfer,
    started,
)
from bluebridge.host_tools.analyzer.activity.bridge_assembly import BridgeAssembler
from bluebridge.host_tools.analyzer.activity.commands import CommandActivities, ResetActivities
from bluebridge.host_tools.analyzer.analysis.assembly import TransferAssembler
from bluebridge.host_tools.analyzer.analysis.classify import transaction_of
from bluebridge.host_tools.analyzer.devices.model import Adapter, EventKind
from bluebridge.host_tools.analyzer.devices.registry import adapter_of, model_of
from bluebridge.host_tools.analyzer.transaction import Role, Transaction, Transfer

MAX_QUEUES = 4096
"""Queues whose last activity is remembered, at most."""
_KINDS = {EventKind.PORT: ActivityKind.LINK, EventKind.FAULT: ActivityKind.FAULT}

_MEMORY = (Role.TABLE, Role.OTHER)

_LATE = (Role.DOORBELL, Role.BLUEFLAME, Role.ENTRY, Role.DOORBELL_RECORD, Role.NOTE)
"""Roles of transactions that may belong to a work request which begins later."""
_NOTHING: list[Activity] = []
_NO_TRANSFERS: list[Transfer] = []


class InterruptActivities:
    """The event entries and interrupts of one function that belong to no work request."""

    def __init__(
        self, adapter: Adapter, activities: OpenActivities, commands: CommandActivities
    ) -> None:
        self._adapter = adapter
        self._activities = activities
        self._commands = commands
        self._entries: dict[int, tuple[Activity, int]] = {}  # by EQN: no interrupt yet
        self._served: dict[int, int] = {}  # number of the last activity with an entry, by EQN
        self._completions: dict[int, int] = {}  # number of what led to a completion event, by CQN
        self._links: dict[int, Activity] = {}  # the last change, by port
        self._latest: int | None = None  # EQN
        self._arm: int | None = None  # number of the doorbell, when that came last

    def reset(self) -> None:
        """Forget all queues, because a reset has removed them."""
        self._entries.clear()
        self._served.clear()
        self._completions.clear()
        self._latest = self._arm = None

    def entry(self, event: Event, one: Transaction, cause: int | None) -> None:
        """Take an event queue entry; `cause` is the number of the device's present activity."""
        entry = self._adapter.event(event.data)
        found = None
        if entry.kind is EventKind.COMMAND:
            found = self._commands.announced(event, one, entry.number)
        elif entry.kind is EventKind.PORT:
            found = self._of_link(event, one, entry.number)
        if found is None:
            activity = started(event, one, _KINDS.get(entry.kind, ActivityKind.INTERRUPT))
            if entry.state:
                activity.title = f"port {entry.number} {entry.state}"
            completed = entry.number if entry.kind is EventKind.COMPLETION else None
            activity.cause = cause if completed is None else self._completions.get(completed)
            self._activities.open(activity, event.number)
            found = activity, 0
        if len(self._entries) > MAX_QUEUES:
            self.reset()
        self._entries[one.obj] = found
        self._served[one.obj] = found[0].number
        self._latest, self._arm = one.obj, None

    def link(self, event: Event, one: Transaction, cause: int | None) -> None:
        """Take a change of a cable or of a port's link; event queue entries follow."""
        activity = lone(event, one)
        activity.cause = cause
        self._activities.open(activity, event.number)
        if len(self._links) > MAX_QUEUES:
            self._links.clear()
        self._links[event.values["port"]] = activity

    def completion(self, one: Transaction, number: int) -> None:
        """Take a completion entry, or the doorbell of its queue, of activity `number`."""
        if len(self._completions) > MAX_QUEUES:
            self._completions.clear()
        self._completions[one.obj] = number

    def interrupt(self, event: Event, one: Transaction) -> None:
        """Take an interrupt: of the entry written last, or of the queue armed last."""
        queue, self._latest = self._latest, None
        arm, self._arm = self._arm, None
        found = self._entries.pop(queue, None) if queue is not None else None
        if found is not None and self._activities.is_open(found[0]):
            activity, place = found
            self._activities.join(activity, event, one, place)
        else:
            activity = lone(event, one)
            activity.cause = arm if found is None else found[0].number
        self._activities.complete(activity)

    def armed(self, event: Event, one: Transaction) -> None:
        """Take a doorbell of an event queue; an interrupt that follows is of that queue."""
        activity = lone(event, one)
        activity.cause = self._served.get(one.obj)
        self._activities.complete(activity)
        self._latest, self._arm = one.obj, activity.number

    def _of_link(
        self, event: Event, one: Transaction, port: int | None
    ) -> tuple[Activity, int] | None:
        """Return the change of a link that an entry reports, and the entry's place in it."""
        link = None if port is None else self._links.pop(port, None)
        if link is None or not self._activities.is_open(link):
            return None
        place = self._activities.join(link, event, one, 0)
        return None if place is None else (link, place)


class FunctionActivities:
    """Assembles the events of one function that belong to no work request."""

    def __init__(self, adapter: Adapter, activities: OpenActivities) -> None:
        self._activities = activities
        self._commands = CommandActivities(adapter.command, activities)
        self._interrupts = InterruptActivities(adapter, activities, self._commands)
        self._resets = ResetActivities(adapter.reset, activities)
        self._failure: int | None = None  # number of the internal error since the last reset

    def feed(self, event: Event, one: Transaction) -> None:
        """Take the next event of the function."""
        kind = event.kind
        self._commands.expire(event.number - WINDOW)
        if kind is Kind.CONFIG_READ or kind is Kind.CONFIG_WRITE:
            self._resets.config(event, one)
        elif kind is Kind.RESET:
            self._resets.reset(event, one, self._failure)
            self._failure = None
            self._commands.stop()
            self._interrupts.reset()
        elif kind is Kind.CONTROL:
            self._activities.control(event, one)
        elif kind is Kind.NOTE and self._resets.note(event, one):
            return
        else:
            if kind is Kind.MMIO_WRITE and self._resets.covers(event):
                self._resets.store(event, one)
                return
            self._resets.other()
            self._other(event, one)

    def finish(self) -> None:
        """Complete all activities that wait for more events, at the end of the log."""
        self._resets.other()
        self._commands.stop()

    def _other(self, event: Event, one: Transaction) -> None:
        role = one.role
        if role is Role.INTERRUPT:
            self._interrupts.interrupt(event, one)
        elif role is Role.EQE:
            self._interrupts.entry(event, one, self._cause)
        elif event.kind is Kind.LINK:
            self._interrupts.link(event, one, self._cause)
        elif event.kind is Kind.COMMAND:
            self._commands.record(event, one)
        elif event.kind is Kind.MMIO_WRITE or event.kind is Kind.MMIO_READ:
            self._access(event, one)
        elif not (role in _MEMORY and self._commands.memory(event, one)):
            self._alone(event, one)

    @property
    def _cause(self) -> int | None:
        """Number of the activity that the device is carrying out, else None."""
        current = self._commands.current
        return self._activities.commanded if current is None else current

    def _access(self, event: Event, one: Transaction) -> None:
        self._activities.commanded = None
        if self._commands.covers(event):
            self._commands.access(event, one)
            return
        self._commands.accessed()
        if one.role is Role.EQ_ARM:
            self._interrupts.armed(event, one)
        else:
            self._alone(event, one)

    def _alone(self, event: Event, one: Transaction) -> None:
        activity = lone(event, one)
        if one.role is Role.CQE or one.role is Role.CQ_ARM:
            activity.cause = self._cause if one.role is Role.CQE else None
            self._interrupts.completion(one, activity.number)
        elif event.fact is Fact.INTERNAL_ERROR:
            activity.kind, activity.cause = ActivityKind.FAULT, self._activities.commanded
            self._failure = activity.number
        self._activities.complete(activity)


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
    """Yield the activities of a log, of the times and device of `wanted`; raises `LogError`."""
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
