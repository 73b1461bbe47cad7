"""Draws activities: a slice in each function that takes part, its transactions as instants.

Arrows lead from a transaction to the first that it caused on another function, from what began an
activity to its interrupts, and from an activity to those that it led to.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from operator import attrgetter
from typing import Final

from bluebridge.device.buslog.record import function_of
from bluebridge.host_tools.analyzer.activity import Activity, ActivityKind
from bluebridge.host_tools.analyzer.timeline.tracks import Tracks
from bluebridge.host_tools.analyzer.transaction import Role, Transaction

Argument = tuple[str, int | str]
"""Name and value of an argument of a slice."""


class Shape(IntEnum):
    """Kinds of marks, with the numbers of `TrackEvent.Type` in Perfetto's trace format."""

    BEGIN = 1
    END = 2
    INSTANT = 3
    COUNTER = 4


@dataclass(slots=True)
class Mark:
    """A mark on track `track` at `time`, in nanoseconds since the log began.

    `flows` are numbers of arrows that begin here, `ended` of those that end here; `value` is that
    of a counter.
    """

    time: int
    shape: Shape
    track: int
    name: str = ""
    category: str = ""
    arguments: list[Argument] = field(default_factory=list)
    flows: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    value: int = 0


def nanoseconds(seconds: float) -> int:
    """Convert seconds since the log began to the whole nanoseconds of the trace."""
    return round(seconds * 1e9)


DATA_SHOWN: Final = 16
"""Bytes of data that the arguments of a transaction show at most."""
NAME_SHOWN: Final = 80
"""Characters of a slice's name at most; a longer text is also an argument."""
Drawn = dict[int, Mark]
"""The instants of an activity by the places of their transactions."""


class Drawing:
    """Turns activities into marks; `events` counts the log's events that are drawn."""

    def __init__(self, tracks: Tracks) -> None:
        self._tracks = tracks
        self._flows = 0
        self.events = 0
        self.slices = 0

    def draw(self, activities: Iterable[Activity]) -> list[Mark]:
        """Return the marks of a stretch of the log, in order of time."""
        marks: list[Mark] = []
        heads: dict[int, Mark] = {}
        for activity in sorted(activities, key=attrgetter("begin")):
            self._activity(activity, marks, heads)
        marks.sort(key=attrgetter("time"))
        return marks

    def _activity(self, activity: Activity, marks: list[Mark], heads: dict[int, Mark]) -> None:
        functions: dict[str, list[int]] = {}
        for place, one in enumerate(activity.transactions):
            if not one.repeated:
                functions.setdefault(function_of(one.device), []).append(place)
        drawn: Drawn = {}
        head = None
        for function, places in functions.items():
            mark = self._slice(activity, function, places, marks, drawn)
            if head is None or function == function_of(activity.device):
                head = mark
        if head is None:
            return
        self._arrows(activity, drawn)
        heads[activity.number] = head
        cause = heads.get(activity.cause) if activity.cause is not None else None
        if cause is not None and cause is not head:
            self._arrow(cause, head)

    def _slice(
        self, activity: Activity, function: str, places: list[int], marks: list[Mark], drawn: Drawn
    ) -> Mark:
        """Draw an activity's part in one function; return the mark that begins it."""
        parts = [activity.transactions[place] for place in places]
        own = function == function_of(activity.device)
        begin = nanoseconds(activity.begin if own else min(one.time for one in parts))
        end = nanoseconds(max([one.time for one in parts] + [activity.end] * own))
        begin = min(begin, nanoseconds(min(one.time for one in parts)))
        lone = begin == end and len(activity.transactions) == 1
        end += begin == end and not lone
        track = self._tracks.lanes(function, activity).take(begin, end)
        shape = Shape.INSTANT if lone or track is None else Shape.BEGIN
        arguments = _about(activity, own=own)
        if track is None:
            track = self._tracks.overfull(function, activity)
            arguments.append(("duration_ns", end - begin))
        head = Mark(begin, shape, track, _short(activity.title), activity.kind.value, arguments)
        marks.append(head)
        if lone:
            arguments += _details(activity, parts[0])
            drawn[places[0]] = head
            self._count(parts[0])
        else:
            self._instants(activity, places, track, marks, drawn)
        if shape is Shape.BEGIN:
            marks.append(Mark(end, Shape.END, track))
        self.slices += 1
        return head

    def _instants(
        self, activity: Activity, places: list[int], track: int, marks: list[Mark], drawn: Drawn
    ) -> None:
        found = []
        for place in places:
            one = activity.transactions[place]
            mark = Mark(
                nanoseconds(one.time), Shape.INSTANT, track, _short(one.purpose),
                one.role.value, _details(activity, one),
            )  # fmt: skip
            drawn[place] = mark
            found.append(mark)
            self._count(one)
        self.slices += len(found)
        marks += found

    def _count(self, one: Transaction) -> None:
        self.events += one.stores

    def _arrows(self, activity: Activity, drawn: Drawn) -> None:
        """Draw arrows to the first effect on another function, and to the interrupts."""
        parts = activity.transactions
        crossed: set[int] = set()
        root = min(drawn)
        for place, mark in drawn.items():
            one = parts[place]
            parent = one.parent
            if parent in drawn and parent not in crossed:
                assert parent is not None
                if function_of(parts[parent].device) != function_of(one.device):
                    crossed.add(parent)
                    self._arrow(drawn[parent], mark)
            if one.role is Role.INTERRUPT and place != root and parent != root:
                self._arrow(drawn[root], mark)

    def _arrow(self, begin: Mark, end: Mark) -> None:
        if begin.time > end.time:
            return
        self._flows += 1
        begin.flows.append(self._flows)
        end.ended.append(self._flows)


def _about(activity: Activity, *, own: bool) -> list[Argument]:
    """Return the arguments of an activity's slice; that of its own function has all."""
    about: list[Argument] = [("number", activity.number)]
    if not own:
        return about
    transfer = activity.transfer
    if transfer is None:
        about.append(("operation", _operation(activity)))
    else:
        about += [
            ("operation", transfer.opcode),
            ("posted by", transfer.posted_by.value),
            ("index", transfer.index),
            ("bytes", transfer.length),
            ("inline bytes", transfer.inline),
        ]
    if activity.status:
        about.append(("status", activity.status))
    about += [(f"note {place}", text) for place, text in enumerate(activity.notes, 1)]
    if len(activity.title) > NAME_SHOWN:
        about.append(("text", activity.title))
    return about


def _operation(activity: Activity) -> str:
    """Return the name by which activities are counted: a command's name, else the kind."""
    if activity.kind is ActivityKind.COMMAND:
        return activity.title.partition(" ")[0]
    return str(activity.kind.value)


def _details(activity: Activity, one: Transaction) -> list[Argument]:
    """Return the arguments of a transaction, among them the number of its event."""
    about: list[Argument] = [("event", one.number)]
    if one.stores > 1:
        about += [("last event", one.last), ("stores", one.stores)]
    if one.text:
        if len(one.text) > NAME_SHOWN:
            about.append(("text", one.text))
    else:
        about += [("bytes", one.length), ("address", one.address)]
        if one.data:
            about.append(("data", bytes(one.data[:DATA_SHOWN]).hex()))
    if one.parent is not None:
        cause = activity.transactions[one.parent]
        about.append(("cause", cause.role.value))
        about.append(("since_cause_ns", nanoseconds(one.time) - nanoseconds(cause.time)))
    return about


def _short(text: str) -> str:
    return text if len(text) <= NAME_SHOWN else text[: NAME_SHOWN - 1] + "…"
