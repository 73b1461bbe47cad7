"""The tracks of a timeline, and activities drawn on them.

A process per machine has a group per function, which has tracks by kind of activity: a slice in
each function that takes part, its transactions as instants. Arrows lead from a transaction to the
first that it caused on another function, from what began an activity to its interrupts, and from
an activity to those that it led to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from operator import attrgetter
from typing import Final, Protocol

from bluebridge.device.buslog.record import function_of, host_of
from bluebridge.host_tools.analyzer.activity import Activity, ActivityKind
from bluebridge.host_tools.analyzer.devices.registry import model_of
from bluebridge.host_tools.analyzer.transaction import Role, Transaction

Argument = tuple[str, int | str]
"""Name and value of an argument of a slice."""

MOST_LANES: Final = 64
"""Lanes of a track at most; a slice that overlaps so many is drawn without duration."""

NAMES: Final = {
    ActivityKind.CONTROL: "control words",
    ActivityKind.RESET: "resets",
    ActivityKind.LINK: "links",
    ActivityKind.FAULT: "faults",
    ActivityKind.PAGE_FAULT: "page faults",
    ActivityKind.NOTE: "notes",
    ActivityKind.CONFIG: "config accesses",
    ActivityKind.COMMAND: "firmware commands",
    ActivityKind.ACCESS: "register accesses",
    ActivityKind.WORK_REQUEST: "work requests",
    ActivityKind.STORE: "stores",
    ActivityKind.DESCRIPTOR: "descriptors",
    ActivityKind.DOORBELL: "doorbells",
    ActivityKind.DMA: "DMA",
    ActivityKind.INTERRUPT: "interrupts",
}
"""Name of the track of each kind, in the order in which they are drawn."""
RANKS: Final = {kind: 100 + rank for rank, kind in enumerate(NAMES)}
COUNTER_RANK: Final = 10
"""Rank of counters, which are above the tracks of activities."""
MOST_QUEUES: Final = 256
"""Queue pairs of a function that have a track of their own at most."""

DATA_SHOWN: Final = 16
"""Bytes of data that the arguments of a transaction show at most."""
NAME_SHOWN: Final = 80
"""Characters of a slice's name at most; a longer text is also an argument."""


class Shape(IntEnum):
    """Kinds of marks, with the numbers of `TrackEvent.Type` in Perfetto's trace format."""

    BEGIN = 1
    END = 2
    INSTANT = 3
    COUNTER = 4


@dataclass(slots=True)
class Mark:
    """A mark on a track, `time` in nanoseconds since the log began; `value` is a counter's.

    `flows` are numbers of arrows that begin here, `ended` of those that end here. `label` is a name
    for where there is little room.
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
    label: str = ""


def nanoseconds(seconds: float) -> int:
    """Convert seconds since the log began to the whole nanoseconds of the trace."""
    return round(seconds * 1e9)


class Lanes:
    """The lanes of one track; `new` makes the track of another lane and returns its number."""

    def __init__(self, new: Callable[[], int]) -> None:
        self._new = new
        self._tracks: list[int] = []
        self._ends: list[int] = []

    def take(self, begin: int, end: int) -> int | None:
        """Take a lane that is free from `begin` to `end`; return its track, None without one."""
        for place, taken in enumerate(self._ends):
            if taken <= begin:
                self._ends[place] = end
                return self._tracks[place]
        if len(self._tracks) == MOST_LANES:
            return None
        self._tracks.append(self._new())
        self._ends.append(end)
        return self._tracks[-1]


class TrackWriter(Protocol):
    """The interface for making tracks, such as `TraceFile`; methods return track numbers."""

    def process(self, name: str, pid: int) -> int:
        """Make a process and return the number of its track."""

    def track(self, name: str, parent: int, rank: int) -> int:
        """Make a track below another and return its number."""

    def counter(self, name: str, parent: int, rank: int, unit: str) -> int:
        """Make a track of values and return its number."""


class Tracks:
    """Makes each track when something is first drawn on it."""

    def __init__(self, writer: TrackWriter, devices: Sequence[str] = ()) -> None:
        """`devices` are the names in the log's meta file, which set the order of functions."""
        self._writer = writer
        self._order = {function_of(name): place for place, name in enumerate(devices, 1)}
        self._made: dict[tuple[str, ...], int] = {}
        self._lanes: dict[tuple[str, str], Lanes] = {}
        self._queues: dict[str, set[str]] = {}

    def function(self, name: str) -> int:
        """Return the group of a function's tracks, below its machine."""
        machine, make = host_of(name), self._writer
        rank = self._order.setdefault(name, len(self._order) + 1)
        process = self._once((machine,), lambda: make.process(f"machine {machine}", rank))
        title = f"{model_of(name).kind.value} {name}"
        return self._once((machine, name), lambda: make.track(title, process, rank))

    def lanes(self, function: str, activity: Activity) -> Lanes:
        """Return the lanes for what an activity does in a function."""
        key = function, self._name(function, activity)
        if key not in self._lanes:
            parent, rank = self.function(function), RANKS[activity.kind]
            self._lanes[key] = Lanes(lambda: self._writer.track(key[1], parent, rank))
        return self._lanes[key]

    def overfull(self, function: str, activity: Activity) -> int:
        """Return the track for activities that find no lane free."""
        name, parent = (
            f"{self._name(function, activity)}, without duration",
            self.function(function),
        )
        rank = RANKS[activity.kind]
        return self._once((function, name), lambda: self._writer.track(name, parent, rank))

    def counter(self, function: str, name: str, unit: str) -> int:
        """Return the counter of that name of a function."""
        parent, make = self.function(function), self._writer.counter
        key = function, name, unit, "counter"
        return self._once(key, lambda: make(name, parent, COUNTER_RANK, unit))

    def _once(self, key: tuple[str, ...], make: Callable[[], int]) -> int:
        """Return the track of a key, which is made when it is first asked for."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def _name(self, function: str, activity: Activity) -> str:
        owner = function_of(activity.device)
        transfer = activity.transfer
        if transfer is None:
            name = NAMES[activity.kind]
            return name if owner == function else f"for {name} of {owner}"
        queue = f"{transfer.noun} {transfer.qpn:#x}"
        name = f"work requests of {queue}" if owner == function else f"for {queue} of {owner}"
        known = self._queues.setdefault(function, set())
        if len(known) >= MOST_QUEUES and name not in known:
            return "work requests of further QPs"
        known.add(name)
        return name


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
        head.label = activity.name or activity.title
        marks.append(head)
        if lone:
            arguments += _details(activity, parts[0])
            drawn[places[0]] = head
            self.events += parts[0].stores
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
            self.events += one.stores
        self.slices += len(found)
        marks += found

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
    about: list[Argument] = [("number", activity.number)]
    if not own:
        return about
    transfer = activity.transfer
    if transfer is None:
        about.append(("operation", activity.name or str(activity.kind.value)))
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


def _details(activity: Activity, one: Transaction) -> list[Argument]:
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
