"""The activities of HCAs: what work requests do not take of their events."""

from __future__ import annotations

from bluebridge.device.buslog.reader import Event
from bluebridge.host_tools.analyzer.activity.activity import Activity
from bluebridge.host_tools.analyzer.activity.function import FunctionActivities
from bluebridge.host_tools.analyzer.activity.lone import lone
from bluebridge.host_tools.analyzer.activity.part import WINDOW, OpenActivities
from bluebridge.host_tools.analyzer.devices.registry import adapter_of
from bluebridge.host_tools.analyzer.transaction import Transaction


class HcaActivities:
    """Takes events in order; `ready` gives out the activities that are complete."""

    def __init__(self) -> None:
        self._activities = OpenActivities()
        self._functions: dict[str, FunctionActivities] = {}

    def feed(self, event: Event, one: Transaction) -> None:
        """An event that no work request takes."""
        function = self._functions.get(event.device)
        if function is None:
            function = FunctionActivities(adapter_of(event.device), self._activities)
            self._functions[event.device] = function
        function.feed(event, one)

    def late(self, event: Event, one: Transaction) -> None:
        """A write, an entry or a note of the past that no work request has taken."""
        self._activities.complete(lone(event, one))

    def ready(self, number: int) -> list[Activity]:
        """The activities that are complete after event `number`."""
        activities = self._activities
        if activities.idle:
            return _NOTHING
        return activities.taken(number - WINDOW)

    def finish(self) -> list[Activity]:
        """All that are left."""
        for function in self._functions.values():
            function.finish()
        return self._activities.rest()


_NOTHING: list[Activity] = []
