"""Firmware commands of one function, and its config accesses and resets.

A driver that polls reads the command register until GO is clear, and the status; a read before the
stores of the next command belongs to that. One that waits for an event is told by an event queue
entry with the command's token. Rules: Linux `mlx4/cmd.c: mlx4_cmd_post, mlx4_cmd_poll`.
"""

from __future__ import annotations

from collections import deque

from bluebridge.device.buslog.reader import Event
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.layout.events import Fact, Values
from bluebridge.host_tools.analyzer.activity.activity import (
    IN_MODIFIER,
    Activity,
    ActivityKind,
    OpenActivities,
    Subject,
    lone,
    started,
)
from bluebridge.host_tools.analyzer.devices.model import CommandRegister, number_of
from bluebridge.host_tools.analyzer.transaction import Tlp, Transaction

MAX_READS = 64
"""Reads of the register that wait at most for the next command."""

PAUSE_SECONDS = 0.01
"""Seconds of pause after which a config access begins another activity."""
RESET_SECONDS = 0.001
"""Seconds within which a reset is attributed to the config write before it."""
MAX_ACCESSES = 256
"""Config accesses of one activity at most."""


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
        self._describe(activity, event.values)
        self._done, self._last = activity, activity.number
        self._activities.open(activity, event.number)

    def announced(
        self, event: Event, one: Transaction, token: int | None
    ) -> tuple[Activity, int] | None:
        """Return the command that an event queue entry announces, and the entry's place in it."""
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
        if self._running is not None and self._go is not None:
            self._running.notes.append("not carried out to its end")
        self._end_running()

    def _write(self, event: Event, one: Transaction) -> None:
        register, running = self._register, self._running
        if running is None or (event.address == register.base and self._go is not None):
            self._end_running()
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

    def _end_running(self) -> None:
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
        """Return the last read before a store, unless it is the only one after a polled command."""
        waits = self._polled and self._activities.is_open(self._done)
        own = self._reads.pop() if len(self._reads) > (1 if waits else 0) else None
        self._close_done()
        return own

    def _describe(self, activity: Activity, command: Values) -> None:
        activity.name, number = command["name"], number_of(command)
        activity.subject = Subject(self._register.nouns.get(activity.name, IN_MODIFIER), number)
        word = command.get("word", "in_mod")
        activity.title = f"{activity.name} {word}={number:#x}" if word else activity.name
        activity.status = command["status"]
        activity.notes.append(f"carried out in {command['us']} us")
        if command["reason"]:
            activity.notes.append(command["reason"])

    def _close_done(self) -> None:
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
        if event.fact is not Fact.BUS_MASTER:
            return False
        run = self._run
        if run is None or not self._activities.is_open(run):
            activity = lone(event, one)
            activity.cause = self._before
            self._activities.complete(activity)
            return True
        place = len(run.transactions) - 1
        run.notes.append(one.text)
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
        activity.title = one.text
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
    reads = sum(one.tlp is Tlp.CONFIG_READ for one in run.transactions)
    writes = sum(one.tlp is Tlp.CONFIG_WRITE for one in run.transactions)
    if reads + writes > 1:
        counts = ((reads, "read"), (writes, "write"))
        run.title = "config, " + ", ".join(
            f"{count} {word}{'s' if count > 1 else ''}" for count, word in counts if count
        )
