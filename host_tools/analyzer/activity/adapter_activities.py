"""The activities of HCAs that consist of events which belong to no work request."""

from __future__ import annotations

from bluebridge.device.buslog.reader import Event
from bluebridge.device.layout.buslog import Kind
from bluebridge.host_tools.analyzer.activity.activity import Activity, ActivityKind, lone
from bluebridge.host_tools.analyzer.activity.commands import CommandActivities
from bluebridge.host_tools.analyzer.activity.interrupts import InterruptActivities
from bluebridge.host_tools.analyzer.activity.open_activities import WINDOW, OpenActivities
from bluebridge.host_tools.analyzer.activity.resets import ResetActivities
from bluebridge.host_tools.analyzer.devices.model import Adapter
from bluebridge.host_tools.analyzer.devices.registry import adapter_of
from bluebridge.host_tools.analyzer.transaction import Role, Transaction

INTERNAL_ERROR = "internal error"
"""The text with which the note of a failed HCA begins (device/mlx4/device.py)."""
_MEMORY = (Role.TABLE, Role.OTHER)


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
            self._reset(event, one)
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

    def _reset(self, event: Event, one: Transaction) -> None:
        self._resets.reset(event, one, self._failure)
        self._failure = None
        self._commands.stop()
        self._interrupts.reset()

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
        """Take an access of a register."""
        self._activities.accessed()
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
        elif event.kind is Kind.NOTE and event.text.startswith(INTERNAL_ERROR):
            activity.kind, activity.cause = ActivityKind.FAULT, self._activities.commanded
            self._failure = activity.number
        self._activities.complete(activity)


class HcaActivities:
    """Assembles the events of HCAs in order; `ready` returns the activities that are complete."""

    def __init__(self) -> None:
        self._activities = OpenActivities()
        self._functions: dict[str, FunctionActivities] = {}

    def feed(self, event: Event, one: Transaction) -> None:
        """Take an event that belongs to no work request."""
        function = self._functions.get(event.device)
        if function is None:
            function = FunctionActivities(adapter_of(event.device), self._activities)
            self._functions[event.device] = function
        function.feed(event, one)

    def late(self, event: Event, one: Transaction) -> None:
        """Take an earlier write, entry or note that turned out to belong to no work request."""
        self._activities.complete(lone(event, one))

    def ready(self, number: int) -> list[Activity]:
        """Return the activities that are complete after event `number`."""
        activities = self._activities
        if activities.idle:
            return _NOTHING
        return activities.taken(number - WINDOW)

    def finish(self) -> list[Activity]:
        """Return the activities that still wait for more events at the end of the log."""
        for function in self._functions.values():
            function.finish()
        return self._activities.rest()


_NOTHING: list[Activity] = []
