"""Config accesses and resets of one function.

Accesses of config space that follow each other are one activity, as a driver makes them by the
dozen. A store into the reset register belongs to the reset that it causes.
"""

from __future__ import annotations

from bluebridge.device.buslog.reader import Event
from bluebridge.host_tools.analyzer.activity.activity import Activity, ActivityKind, lone, started
from bluebridge.host_tools.analyzer.activity.open_activities import OpenActivities
from bluebridge.host_tools.analyzer.transaction import Tlp, Transaction

PAUSE_SECONDS = 0.01
"""Seconds of pause after which a config access begins another activity."""
RESET_SECONDS = 0.001
"""Seconds within which a reset is attributed to the config write before it."""
MAX_ACCESSES = 256
"""Config accesses of one activity at most."""
BUS_MASTER = "bus master"
"""Text with which the note about a changed Bus Master Enable begins (device/pci/endpoint.py)."""


class ResetActivities:
    """Config accesses, the reset register and resets of one function."""

    def __init__(self, register: tuple[int, int], activities: OpenActivities) -> None:
        """`register` is BAR and offset of the register that resets the function."""
        self._register = register
        self._activities = activities
        self._run: Activity | None = None
        self._store: tuple[Event, Transaction] | None = None
        self._before: int | None = None  # number of the reset after which nothing else happened

    def covers(self, event: Event) -> bool:
        """Return whether an event is a store into the reset register."""
        bar, offset = self._register
        return event.bar == bar and event.address <= offset < event.address + event.length

    def store(self, event: Event, one: Transaction) -> None:
        """Keep a store into the reset register until the reset that it causes."""
        self.other()
        self._store = event, one

    def config(self, event: Event, one: Transaction) -> None:
        """Take an access of config space, which continues a run or begins another one."""
        self._end_store()
        run = self._run
        if run is None or not self._continues(run, one):
            self._end_run()
            run = self._run = started(event, one, ActivityKind.CONFIG)
            run.cause = self._before
            self._activities.open(run, event.number)
        else:
            self._activities.join(run, event, one)

    def note(self, event: Event, one: Transaction) -> bool:
        """Take a note on the effect of a config access or reset before it; else return False."""
        if not event.text.startswith(BUS_MASTER):
            return False
        run = self._run
        if run is None or not self._activities.is_open(run):
            activity = lone(event, one)
            activity.cause = self._before
            self._activities.complete(activity)
            return True
        place = len(run.transactions) - 1
        run.notes.append(event.text)
        self._activities.join(run, event, one, place)
        return True

    def reset(self, event: Event, one: Transaction, failure: int | None) -> None:
        """Take a reset; `failure` is the number of the internal error before it, or None."""
        store, self._store = self._store, None
        cause = self._written(one)
        self._end_run()
        if store is None:
            activity = started(event, one, ActivityKind.RESET)
            activity.cause = cause
        else:
            activity = started(*store, ActivityKind.RESET)
            activity.cause = failure
            self._activities.join(activity, event, one, 0)
        activity.title = f"{event.text} reset" if "reset" not in event.text else event.text
        self._before = activity.number
        self._activities.complete(activity)

    def _written(self, one: Transaction) -> int | None:
        """Return the number of the config accesses whose last write a reset follows at once."""
        run = self._run
        if run is None or run.transactions[-1].tlp is not Tlp.CONFIG_WRITE:
            return None
        return run.number if one.time - run.end <= RESET_SECONDS else None

    def other(self) -> None:
        """End the run of config accesses and the wait for a reset, at any other event."""
        self._end_store()
        self._end_run()
        self._before = None

    def _continues(self, run: Activity, one: Transaction) -> bool:
        return (
            self._activities.is_open(run)
            and one.time - run.end <= PAUSE_SECONDS
            and len(run.transactions) < MAX_ACCESSES
        )

    def _end_store(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            self._activities.complete(lone(*store))

    def _end_run(self) -> None:
        run, self._run = self._run, None
        if run is not None and self._activities.is_open(run):
            _name(run)
            self._activities.complete(run)


def _name(run: Activity) -> None:
    """Set the title of a run of several config accesses."""
    reads = sum(one.tlp is Tlp.CONFIG_READ for one in run.transactions)
    writes = sum(one.tlp is Tlp.CONFIG_WRITE for one in run.transactions)
    if reads + writes > 1:
        counts = ((reads, "read"), (writes, "write"))
        run.title = "config, " + ", ".join(
            f"{count} {word}{'s' if count > 1 else ''}" for count, word in counts if count
        )
