"""Activities: work requests, firmware commands, resets, accesses, with their transactions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from bluebridge.device.buslog.reader import Event
from bluebridge.device.buslog.record import host_of
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.events import MARKS, Fact, Values
from bluebridge.host_tools.analyzer.decode import decode
from bluebridge.host_tools.analyzer.transaction import Transaction, Transfer, tree_of

IN_MODIFIER = "in_mod"
"""The noun for the number of a firmware command that names no object of a kind of its own."""

_WAYS = {
    Kind.MMIO_READ: "read",
    Kind.MMIO_WRITE: "write",
    Kind.CONFIG_READ: "read",
    Kind.CONFIG_WRITE: "write",
}

_SHORT = (Kind.DMA_READ, Kind.DMA_WRITE)
"""Kinds with many events: their text is shorter and faster to make."""
_QUEUE_ENTRIES = (What.CQE, What.EQE)

MAX_PARTS = 4096
"""Transactions of one activity at most; further ones are activities that it caused."""
WINDOW = 512
"""Number of events for which an activity waits for further events."""


class ActivityKind(Enum):
    """Kinds of activity; the values are the words of the views."""

    WORK_REQUEST = "work request"
    COMMAND = "command"  # firmware: register, mailboxes, tables, completion event, interrupt
    ACCESS = "register access"
    CONFIG = "config access"
    DMA = "DMA"
    INTERRUPT = "interrupt"  # with the entry of the event queue that it announces
    STORE = "store"  # into a bridge's window, and what it causes at the peer
    DESCRIPTOR = "descriptor"  # of a DMA engine
    DOORBELL = "doorbell"  # of a bridge: ring, the peer's pending bit, interrupt
    RESET = "reset"
    LINK = "link"  # cables, state of a port
    FAULT = "fault"
    PAGE_FAULT = "page fault"  # from the event to the answer of software
    CONTROL = "control"  # a word of the control socket
    NOTE = "note"


class Subject(NamedTuple):
    """The subject of an activity: a word such as `QP` or `scratchpad`, and its number."""

    noun: str
    number: int


@dataclass(slots=True)
class Activity:
    """Something that happened on the bus, with its `transactions` in the order of the log.

    The transactions form a tree by their `parent`. `number` is that of the first event, so
    activities are numbered in the order in which they began, with gaps. `begin` and `end` are in
    seconds since the log began. `status` is empty, `OK` or an error. `cause` is the number of the
    activity that led to it; `transfer` has further facts about a work request. The `title` is for
    readers; programs have `name`, what is done, such as `RST2INIT_QP` or `SEND 8 bytes`, and
    `subject`, to what.
    """

    number: int
    kind: ActivityKind
    device: str
    title: str
    begin: float
    end: float
    status: str = ""
    transactions: list[Transaction] = field(default_factory=list)
    transfer: Transfer | None = None
    cause: int | None = None
    notes: list[str] = field(default_factory=list)
    name: str = ""
    subject: Subject | None = None

    @property
    def duration_us(self) -> float:
        """Microseconds from the first transaction to the last, by the server's clock."""
        return (self.end - self.begin) * 1e6

    @property
    def mark_of(self) -> str | None:
        """The guest that a mark belongs to: empty for the pair's, None for other activities."""
        told = self.transactions[0].told
        if told is None or told.fact not in MARKS:
            return None
        return "" if told.fact is Fact.MARK else host_of(self.device)

    def concerns(self, device: str) -> bool:
        """Return whether a device's list shows it: its own, marks of its guest and of the pair."""
        return self.device == device or self.mark_of in ("", host_of(device))

    def tree(self) -> Iterator[tuple[int, int]]:
        """Yield the places in `transactions` with their depth, parents before children."""
        return tree_of(self.transactions)

    def add(self, one: Transaction, parent: int | None = None) -> int:
        """Append a transaction whose cause is at place `parent`, and return its place."""
        one.parent, one.given = parent, True
        self.transactions.append(one)
        if one.time > self.end:
            self.end = one.time
        return len(self.transactions) - 1


def begun(one: Transaction, kind: ActivityKind, title: str) -> Activity:
    """Make an activity that begins with a transaction."""
    activity = Activity(one.number, kind, one.device, title, one.time, one.time)
    activity.add(one)
    return activity


_BY_KIND = {
    Kind.MMIO_READ: ActivityKind.ACCESS,
    Kind.MMIO_WRITE: ActivityKind.ACCESS,
    Kind.DMA_READ: ActivityKind.DMA,
    Kind.DMA_WRITE: ActivityKind.DMA,
    Kind.IRQ: ActivityKind.INTERRUPT,
    Kind.COMMAND: ActivityKind.COMMAND,
    Kind.RESET: ActivityKind.RESET,
    Kind.CONFIG_READ: ActivityKind.CONFIG,
    Kind.CONFIG_WRITE: ActivityKind.CONFIG,
    Kind.NOTE: ActivityKind.NOTE,
    Kind.WIRE: ActivityKind.DMA,
    Kind.BLUEFLAME: ActivityKind.ACCESS,
    Kind.FAULT: ActivityKind.FAULT,
    Kind.LINK: ActivityKind.LINK,
    Kind.CONTROL: ActivityKind.CONTROL,
}
_KINDS = tuple(_BY_KIND[kind] for kind in Kind)


def lone(event: Event, one: Transaction) -> Activity:
    """Make an activity of an event that belongs to no other one."""
    activity = started(event, one, _KINDS[event.kind])
    if one.told is not None and one.told.fact is Fact.PAGE_FAULT:
        _date_back(activity, one.told.values)
    return activity


def _date_back(activity: Activity, values: Values) -> None:
    """Let a page fault last from its event on: its record is made when it is over."""
    activity.kind, activity.status = ActivityKind.PAGE_FAULT, values["status"]
    activity.name, activity.subject = values["what"], Subject("QP", values["qpn"])
    activity.begin = max(0.0, activity.end - values["us"] / 1e6)


def started(event: Event, one: Transaction, kind: ActivityKind) -> Activity:
    """Make an activity that begins with an event; the text of the event is its title."""
    if not one.text:
        short = event.kind in _SHORT and event.what not in _QUEUE_ENTRIES
        one.text = one.purpose if short else decode(event)
    way = _WAYS.get(event.kind)
    return begun(one, kind, f"{way} {one.text}" if way else one.text)


def of_transfer(transfer: Transfer) -> Activity:
    """Make the activity of a work request; the events of its notes follow its transactions."""
    parts = transfer.transactions + transfer.noted if transfer.noted else transfer.transactions
    begin, number = parts[0].time, parts[0].number
    end = begin
    for one in parts:
        one.given = True
        if one.number < number:
            begin, number = one.time, one.number
        if one.time > end:
            end = one.time
    name = f"{transfer.opcode or 'work request'} {transfer.length} bytes"
    subject = Subject(transfer.noun, transfer.qpn)
    return Activity(
        number, ActivityKind.WORK_REQUEST, transfer.device,
        f"{name}, {subject.noun} {subject.number:#x}",
        begin, end, transfer.status, parts, transfer, None, transfer.notes, name, subject,
    )  # fmt: skip


class OpenActivities:
    """Activities that wait for more events, and complete ones, which `taken` returns."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[Activity, int]] = {}  # by number; with that of the last event
        self._complete: list[Activity] = []
        self.commanded: int | None = None
        """Number of the control socket's activity that causes the present events, else None."""

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
        """Add an event to an activity, and return its place; None, and alone, when that is full."""
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
        self.commanded = event.number

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
