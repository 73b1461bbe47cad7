"""Activities to which events can still be added, shared by all parts of the model."""

from __future__ import annotations

from bluebridge.device.buslog.reader import Event
from bluebridge.host_tools.analyzer.activity.activity import Activity, lone
from bluebridge.host_tools.analyzer.decode import decode
from bluebridge.host_tools.analyzer.transaction import Transaction

MAX_PARTS = 4096
"""Transactions of one activity at most; further ones are activities that it caused."""
WINDOW = 512
"""Number of events for which an activity waits for further events."""


class OpenActivities:
    """Activities that wait for more events, and complete ones, which `taken` returns."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[Activity, int]] = {}  # by number; with that of the last event
        self._complete: list[Activity] = []
        self._control: int | None = None  # number of the event

    def open(self, activity: Activity, number: int) -> None:
        """Let an activity wait for events that follow event `number`."""
        self._open[activity.number] = activity, number

    def complete(self, activity: Activity) -> None:
        """Complete an activity, so that nothing is added to it any more."""
        self._open.pop(activity.number, None)
        self._complete.append(activity)

    def is_open(self, activity: Activity | None) -> bool:
        """Return whether an activity still waits for more events."""
        return activity is not None and activity.number in self._open

    def join(
        self, activity: Activity, event: Event, one: Transaction, parent: int | None = None
    ) -> int | None:
        """Add an event to an activity and return its place; None when the activity is full.

        The event is then an activity of its own.
        """
        if len(activity.transactions) >= MAX_PARTS:
            self._complete.append(lone(event, one))
            self._complete[-1].cause = activity.number
            return None
        one.text = one.text or decode(event)
        if activity.number in self._open:
            del self._open[activity.number]  # the least recently used stays first
            self._open[activity.number] = activity, one.number
        return activity.add(one, parent)

    def control(self, event: Event, one: Transaction) -> None:
        """Take a line of the control socket, which may cause what follows."""
        self._complete.append(lone(event, one))
        self._control = event.number

    def accessed(self) -> None:
        """Note that the host accesses a device, so the control socket causes nothing more."""
        self._control = None

    @property
    def commanded(self) -> int | None:
        """Number of the control socket's activity that caused the present events, else None."""
        return self._control

    def taken(self, before: int) -> list[Activity]:
        """Return complete activities, and those without an event since event `before`."""
        while self._open:
            activity, last = next(iter(self._open.values()))
            if last >= before:
                break
            self.complete(activity)
        found, self._complete = self._complete, []
        return found

    @property
    def idle(self) -> bool:
        """Whether no activity is open or waits to be returned."""
        return not self._open and not self._complete

    def rest(self) -> list[Activity]:
        """Return all activities, complete or not."""
        for activity, _ in list(self._open.values()):
            self.complete(activity)
        return self.taken(0)
