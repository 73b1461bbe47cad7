"""The tracks of a timeline: a process per machine, a group per function, tracks of its kinds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from bluebridge.device.buslog.record import function_of, host_of
from bluebridge.host_tools.analyzer.activity import Activity, ActivityKind
from bluebridge.host_tools.analyzer.devices.registry import model_of

MOST_LANES: Final = 64
"""Lanes of a track at most; a slice that overlaps so many is drawn without duration."""


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


NAMES: Final = {
    ActivityKind.CONTROL: "control words",
    ActivityKind.RESET: "resets",
    ActivityKind.LINK: "links",
    ActivityKind.FAULT: "faults",
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
AFTER: Final = 300
"""Rank of tracks without a kind."""
MOST_QUEUES: Final = 256
"""Queue pairs of a function that have a track of their own at most."""


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
        self._processes: dict[str, int] = {}
        self._functions: dict[str, int] = {}
        self._lanes: dict[tuple[str, str], Lanes] = {}
        self._counters: dict[tuple[str, str], int] = {}
        self._overfull: dict[tuple[str, str], int] = {}
        self._queues: dict[str, set[str]] = {}

    def function(self, name: str) -> int:
        """Return the group of a function's tracks, below its machine."""
        if name not in self._functions:
            rank = self._order.setdefault(name, len(self._order) + 1)
            process = self._process(host_of(name), rank)
            title = f"{model_of(name).kind.value} {name}"
            self._functions[name] = self._writer.track(title, process, rank)
        return self._functions[name]

    def lanes(self, function: str, activity: Activity) -> Lanes:
        """Return the lanes for what an activity does in a function."""
        kind = activity.kind
        return self.named(function, self._name(function, activity), RANKS[kind])

    def named(self, function: str, name: str, rank: int = AFTER) -> Lanes:
        """Return the lanes of a track of that name."""
        key = function, name
        if key not in self._lanes:
            parent = self.function(function)
            self._lanes[key] = Lanes(lambda: self._writer.track(name, parent, rank))
        return self._lanes[key]

    def overfull(self, function: str, activity: Activity) -> int:
        """Return the track for activities that find no lane free."""
        key = function, f"{self._name(function, activity)}, without duration"
        if key not in self._overfull:
            parent, rank = self.function(function), RANKS[activity.kind]
            self._overfull[key] = self._writer.track(key[1], parent, rank)
        return self._overfull[key]

    def counter(self, function: str, name: str, unit: str) -> int:
        """Return the counter of that name of a function."""
        key = function, name
        if key not in self._counters:
            parent = self.function(function)
            self._counters[key] = self._writer.counter(name, parent, COUNTER_RANK, unit)
        return self._counters[key]

    def _process(self, machine: str, pid: int) -> int:
        """Return the process of a machine; a new one gets the number `pid`."""
        if machine not in self._processes:
            self._processes[machine] = self._writer.process(f"machine {machine}", pid)
        return self._processes[machine]

    def _name(self, function: str, activity: Activity) -> str:
        """Return the name of the track for an activity's part in a function."""
        owner = function_of(activity.device)
        transfer = activity.transfer
        if transfer is None:
            name = NAMES[activity.kind]
            return name if owner == function else f"for {name} of {owner}"
        queue = f"QP {transfer.qpn:#x}"
        name = f"work requests of {queue}" if owner == function else f"for {queue} of {owner}"
        known = self._queues.setdefault(function, set())
        if len(known) >= MOST_QUEUES and name not in known:
            return "work requests of further QPs"
        known.add(name)
        return name
