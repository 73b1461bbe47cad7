"""Firmware commands: the command register of one function, and what its commands do.

A driver that polls reads the register until GO is clear, and the status; a read before the stores
of the next command belongs to that. One that waits for an event is told by an event queue entry
with the command's token. Rules: Linux `mlx4/cmd.c: mlx4_cmd_post, mlx4_cmd_poll`.
"""

from __future__ import annotations

import re
from collections import deque

from bluebridge.device.buslog.reader import Event
from bluebridge.device.layout.buslog import Kind
from bluebridge.host_tools.analyzer.activity.activity import Activity, ActivityKind, lone, started
from bluebridge.host_tools.analyzer.activity.open_activities import OpenActivities
from bluebridge.host_tools.analyzer.devices.model import CommandRegister
from bluebridge.host_tools.analyzer.transaction import Transaction

RECORD = re.compile(
    r"(?P<name>\S+) op_mod=\S+ in_mod=(?P<in_mod>\S+) in=\S+ (?P<status>\S+) "
    r"(?P<us>\d+) us(?:: (?P<reason>.*))?"
)
"""Matches the text of a record of `Kind.COMMAND` (device/mlx4/commands/register.py)."""
MAX_READS = 64
"""Reads of the register that wait at most for the next command."""


class CommandActivities:
    """The firmware commands of one function."""

    def __init__(self, register: CommandRegister, activities: OpenActivities) -> None:
        self._register = register
        self._activities = activities
        self._running: Activity | None = None  # its register is written, it is not done
        self._go: int | None = None  # place of the store of GO in it
        self._control = 0
        self._token: int | None = None  # of the last command, None if it is not known
        self._done: Activity | None = None  # the last one that is done, and may be added to
        self._record = 0  # place of its record in it
        self._polled = False
        self._reads: deque[tuple[Event, Transaction]] = deque()
        self._last: int | None = None  # number of the command after which nothing was accessed

    @property
    def current(self) -> int | None:
        """Number of the command that runs, or that was the last thing to happen; else None."""
        if self._running is not None and self._go is not None:
            return self._running.number
        return self._last

    def accessed(self) -> None:
        """Note that the host accessed something other than the command register."""
        self._last = None

    def covers(self, event: Event) -> bool:
        """Return whether an event is an access of the command register."""
        register = self._register
        return event.bar == register.bar and register.base <= event.address < register.end

    def access(self, event: Event, one: Transaction) -> None:
        """Take an access of the command register."""
        self._last = None
        if event.kind is Kind.MMIO_WRITE:
            self._write(event, one)
        elif self._running is not None and self._go is not None:
            self._activities.join(self._running, event, one)
        else:
            self._reads.append((event, one))
            if len(self._reads) > MAX_READS:
                self._settle_reads()

    def memory(self, event: Event, one: Transaction) -> bool:
        """Take a transfer if it belongs to the running command; return whether it does."""
        if self._running is None or self._go is None:
            return False
        self._activities.join(self._running, event, one, self._go)
        return True

    def record(self, event: Event, one: Transaction) -> None:
        """Take the log's record of a completed command."""
        activity, self._running = self._running, None
        self._close_done()
        if activity is None:
            activity = lone(event, one)
            self._record = 0
            self._polled, self._token = False, None
        else:
            place = self._activities.join(activity, event, one, self._go)
            self._record = place if place is not None else 0
            self._polled = not self._control & self._register.event
        _describe(activity, event.text)
        self._done, self._last = activity, activity.number
        self._activities.open(activity, event.number)

    def announced(
        self, event: Event, one: Transaction, token: int | None
    ) -> tuple[Activity, int] | None:
        """Return the command that an event queue entry announces, with the entry's place in it.

        `token` is None for an entry of which the log has only the beginning.
        """
        done = self._done
        if done is None or not self._activities.is_open(done):
            return None
        if self._polled if token is None else self._token not in (None, token):
            return None
        place = self._activities.join(done, event, one, self._record)
        return None if place is None else (done, place)

    def expire(self, before: int | None) -> None:
        """End the wait for the command of reads before event `before`; None: of all reads."""
        if self._reads and (before is None or self._reads[0][1].number < before):
            self._settle_reads()

    def stop(self) -> None:
        """End the running command, at a reset or at the end of the log."""
        self._close_done()
        if self._running is not None:
            if self._go is not None:
                self._running.notes.append("not carried out to its end")
            self._activities.complete(self._running)
            self._running = None

    def _write(self, event: Event, one: Transaction) -> None:
        register, running = self._register, self._running
        if running is None or (event.address == register.base and self._go is not None):
            self.stop_running()
            running = self._begun(event, one)
            place: int | None = len(running.transactions) - 1
        else:
            place = self._activities.join(running, event, one)
        end = event.address + event.length
        if end == register.token_end and len(event.data) >= 4:
            self._token = int.from_bytes(event.data[-4:-2], "big")
        if end != register.end or len(event.data) < 4:
            return
        self._control = int.from_bytes(event.data[-4:], "big")
        if self._control & register.go and self._go is None:
            self._go = place
            running.title = register.name(self._control)

    def stop_running(self) -> None:
        """End a command that was not carried out before the next one was written."""
        if self._running is not None:
            self._activities.complete(self._running)
            self._running = None

    def _begun(self, event: Event, one: Transaction) -> Activity:
        """Make the activity of a command, with the read that saw the register free."""
        first = self._before(event)
        if first is None:
            running = started(event, one, ActivityKind.COMMAND)
        else:
            running = started(*first, ActivityKind.COMMAND)
            self._activities.join(running, event, one)
        running.title, self._token = "command register", None
        self._running, self._go = running, None
        return running

    def _before(self, event: Event) -> tuple[Event, Transaction] | None:
        """Return the last read before a store.

        It is not returned if it is the only one after a polled command.
        """
        reads = self._reads
        own = None
        waits = self._polled and self._activities.is_open(self._done)
        if len(reads) > (1 if waits else 0):
            own = reads.pop()
        self._close_done()
        return own

    def _close_done(self) -> None:
        """End the command that was completed last, except for its reads."""
        self._settle_reads()
        done, self._done = self._done, None
        if done is not None and self._polled and self._activities.is_open(done):
            self._activities.complete(done)

    def _settle_reads(self) -> None:
        """Add the reads to the polled command before them, else make them activities."""
        done = self._done
        while self._reads:
            event, one = self._reads.popleft()
            if done is not None and self._polled and self._activities.is_open(done):
                self._activities.join(done, event, one)
            else:
                self._activities.complete(lone(event, one))


def _describe(activity: Activity, text: str) -> None:
    found = RECORD.fullmatch(text)
    if found is None:
        activity.title = text
        return
    activity.title = f"{found['name']} in_mod={found['in_mod']}"
    activity.status = found["status"]
    activity.notes.append(f"carried out in {found['us']} us")
    if found["reason"]:
        activity.notes.append(found["reason"])
