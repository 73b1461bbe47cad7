"""Event queue entries and interrupts of one function, and the doorbells that let them through.

In the log an interrupt follows the event entry directly, or the doorbell that armed the event queue
when the entry had been written before.
"""

from __future__ import annotations

from bluebridge.device.buslog.reader import Event
from bluebridge.device.layout.mlx4.eqe import BY_TYPE, PORT_ACTIVE, PORT_EQE, EventType
from bluebridge.host_tools.analyzer.activity.activity import Activity, ActivityKind
from bluebridge.host_tools.analyzer.activity.commands import CommandActivities
from bluebridge.host_tools.analyzer.activity.lone import lone, started
from bluebridge.host_tools.analyzer.activity.part import OpenActivities
from bluebridge.host_tools.analyzer.analysis.transaction import Transaction

MAX_QUEUES = 4096
"""Queues of which something is remembered, at most."""
_PORT = (EventType.PORT_CHANGE, EventType.PORT_MNG_CHG)
_FAULTS = (
    EventType.CQ_ERROR,
    EventType.WQ_CATAS_ERROR,
    EventType.LOCAL_CATAS_ERROR,
    EventType.ECC_DETECT,
    EventType.EQ_OVERFLOW,
    EventType.WQ_INVALID_REQUEST,
    EventType.WQ_ACCESS_ERROR,
    EventType.SRQ_CATAS_ERROR,
    EventType.RECOVERABLE_ERROR,
)


class InterruptActivities:
    """The event queues of one function, as far as work requests do not take what they do."""

    def __init__(self, activities: OpenActivities, commands: CommandActivities) -> None:
        self._activities = activities
        self._commands = commands
        self._entries: dict[int, tuple[Activity, int]] = {}  # by EQN: no interrupt yet
        self._served: dict[int, int] = {}  # number of the last activity with an entry, by EQN
        self._completions: dict[int, int] = {}  # number of what led to a completion event, by CQN
        self._links: dict[int, Activity] = {}  # the last change, by port
        self._latest: int | None = None  # EQN
        self._arm: int | None = None  # number of the doorbell, when that came last

    def reset(self) -> None:
        """The queues are gone."""
        self._entries.clear()
        self._served.clear()
        self._completions.clear()
        self._latest = self._arm = None

    def entry(self, event: Event, one: Transaction, cause: int | None) -> None:
        """An event queue entry; `cause` is the number of what the device was just doing."""
        kind = event.data[1] if len(event.data) > 1 else None
        found = self._commands.announced(event, one) if kind == EventType.CMD else None
        if kind in _PORT:
            found = self._of_link(event, one)
        if found is None:
            activity = self._entry(event, one, kind)
            activity.cause = self._completion_of(event) if kind == EventType.COMP else cause
            self._activities.open(activity, event.number)
            found = activity, 0
        if len(self._entries) > MAX_QUEUES:
            self.reset()
        self._entries[one.obj] = found
        self._served[one.obj] = found[0].number
        self._latest, self._arm = one.obj, None

    def link(self, event: Event, one: Transaction, cause: int | None) -> None:
        """A cable or the link of a port changed; event queue entries follow."""
        activity = lone(event, one)
        activity.cause = cause
        self._activities.open(activity, event.number)
        if len(self._links) > MAX_QUEUES:
            self._links.clear()
        self._links[event.address] = activity

    def completion(self, one: Transaction, number: int) -> None:
        """A completion entry, or the doorbell of its queue, of activity `number`."""
        if len(self._completions) > MAX_QUEUES:
            self._completions.clear()
        self._completions[one.obj] = number

    def interrupt(self, event: Event, one: Transaction) -> None:
        """An interrupt: of the entry that was written last, or of the queue that was armed last."""
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
        """A doorbell of an event queue: an interrupt that follows is of that queue."""
        activity = lone(event, one)
        activity.cause = self._served.get(one.obj)
        self._activities.complete(activity)
        self._latest, self._arm = one.obj, activity.number

    def _of_link(self, event: Event, one: Transaction) -> tuple[Activity, int] | None:
        """The change of a link that an entry reports, with its place in it."""
        table = BY_TYPE[event.data[1]]
        if len(event.data) < table.size:
            return None
        link = self._links.pop(table.get(event.data, "port"), None)
        if link is None or not self._activities.is_open(link):
            return None
        place = self._activities.join(link, event, one, 0)
        return None if place is None else (link, place)

    def _entry(self, event: Event, one: Transaction, kind: int | None) -> Activity:
        if kind in _PORT:
            activity = started(event, one, ActivityKind.LINK)
            if kind == EventType.PORT_CHANGE and len(event.data) >= PORT_EQE.size:
                active = event.data[3] == PORT_ACTIVE
                port = PORT_EQE.get(event.data, "port")
                activity.title = f"port {port} {'active' if active else 'down'}"
            return activity
        return started(
            event, one, ActivityKind.FAULT if kind in _FAULTS else ActivityKind.INTERRUPT
        )

    def _completion_of(self, event: Event) -> int | None:
        return self._completions.get(int.from_bytes(event.data[5:8], "big"))
