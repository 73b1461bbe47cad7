"""Event queue entries and interrupts of one function, and the doorbells that arm event queues.

In the log an interrupt follows the event entry directly, or the doorbell that armed the event queue
when the entry had been written before.
"""

from __future__ import annotations

from bluebridge.device.buslog.reader import Event
from bluebridge.host_tools.analyzer.activity.activity import Activity, ActivityKind, lone, started
from bluebridge.host_tools.analyzer.activity.commands import CommandActivities
from bluebridge.host_tools.analyzer.activity.open_activities import OpenActivities
from bluebridge.host_tools.analyzer.devices.model import Adapter, EventKind, QueueEvent
from bluebridge.host_tools.analyzer.transaction import Transaction

MAX_QUEUES = 4096
"""Queues whose last activity is remembered, at most."""
_KINDS = {EventKind.PORT: ActivityKind.LINK, EventKind.FAULT: ActivityKind.FAULT}


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
            activity = _begun(event, one, entry)
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
        self._links[event.address] = activity

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


def _begun(event: Event, one: Transaction, entry: QueueEvent) -> Activity:
    activity = started(event, one, _KINDS.get(entry.kind, ActivityKind.INTERRUPT))
    if entry.state:
        activity.title = f"port {entry.number} {entry.state}"
    return activity
