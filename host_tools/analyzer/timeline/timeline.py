"""Writes the timeline of a log, with a limit for the events that are drawn singly.

In modelled time a work request begins at its wall-clock time; each of its transactions lasts from
the modelled end of its cause to its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from operator import attrgetter
from typing import Final

from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.buslog.record import host_of
from bluebridge.device.layout.buslog import Kind
from bluebridge.host_tools.analyzer.activity import Activity, ActivityAssembler
from bluebridge.host_tools.analyzer.timeline import tracks
from bluebridge.host_tools.analyzer.timeline.overview import (
    DEFAULT_LIMIT,
    Stretch,
    outstanding,
    overview,
    paces,
    rates,
    stretches,
)
from bluebridge.host_tools.analyzer.timeline.trace_file import TraceFile
from bluebridge.host_tools.analyzer.transaction import Role, TimeModel, Transfer, modelled
from bluebridge.host_tools.analyzer.views.view import Options

_PLACES: Final = ("to the adapter", "to the host", "port")
MODEL_PIDS: Final = 100
"""Process number of the first modelled machine."""


class ModelledTime:
    """Draws work requests in processes of their own."""

    def __init__(self, writer: tracks.TrackWriter, model: TimeModel) -> None:
        self._writer = writer
        self._model = model
        self._processes: dict[str, int] = {}
        self._lanes: dict[tuple[str, str], tracks.Lanes] = {}

    def draw(self, activities: Iterable[Activity]) -> list[tracks.Mark]:
        """Return the marks of the work requests among activities, in order of time."""
        found = [each.transfer for each in activities if each.transfer and each.transactions]
        slices = [one for transfer in found for one in self._slices(transfer)]
        slices.sort(key=lambda one: (one[0], one[1]))
        marks: list[tracks.Mark] = []
        for begin, end, machine, place, mark in slices:
            track = self._track(machine, place).take(begin, end)
            if track is not None:
                mark.track = track
                marks += (mark, tracks.Mark(end, tracks.Shape.END, track))
        marks.sort(key=attrgetter("time"))
        return marks

    def _slices(self, transfer: Transfer) -> list[tuple[int, int, str, str, tracks.Mark]]:
        times = self._model.times(transfer)
        whole = modelled(transfer, self._model) or 0.0
        start = tracks.nanoseconds(transfer.start)
        found = []
        for one, done in zip(transfer.transactions, times, strict=True):
            if done is None:
                continue
            begun = (times[one.parent] if one.parent is not None else 0.0) or 0.0
            begin = start + round(begun * 1e3)
            end = max(start + round(done * 1e3), begin + 1)
            mark = tracks.Mark(begin, tracks.Shape.BEGIN, 0, one.role.value, "modelled")
            mark.arguments = [
                ("event", one.number),
                ("modelled_ns", round(done * 1e3)),
                ("request_ns", round(whole * 1e3)),
            ]
            place = "to the host" if one.upstream else "to the adapter"
            if one.role in (Role.REQUEST, Role.RESPONSE):
                place = "port"
            found.append((begin, end, host_of(one.device), place, mark))
        return found

    def _track(self, machine: str, place: str) -> tracks.Lanes:
        if machine not in self._processes:
            name = f"machine {machine}, modelled by {self._model.name}"
            pid = MODEL_PIDS + len(self._processes)
            self._processes[machine] = self._writer.process(name, pid)
        key = machine, place
        if key not in self._lanes:
            parent, rank = self._processes[machine], _PLACES.index(place)
            self._lanes[key] = tracks.Lanes(lambda: self._writer.track(place, parent, rank))
        return self._lanes[key]


@dataclass(frozen=True, slots=True)
class Written:
    """Counts of a timeline: `drawn` of the log's `events` are drawn singly, in `slices` slices.

    `cut` is the number of stretches of the log that are drawn if there are others, else 0.
    """

    events: int
    drawn: int
    slices: int
    cut: int

    def __str__(self) -> str:
        """Return one line that says what was cut."""
        if not self.cut:
            return f"{self.drawn} events in {self.slices} slices"
        return (
            f"{self.drawn} of {self.events} events in {self.slices} slices, in {self.cut} "
            "stretches of the log; the others are in the counters only: --limit for more, --from, "
            "--to and --event for others"
        )


def write(reader: LogReader, options: Options, out: Callable[[bytes], object]) -> Written:
    """Write the timeline of the wanted events; raises `LogError`."""
    limit = DEFAULT_LIMIT if options.limit is None else options.limit
    blocks, moved = overview(reader.heads(options.wanted))
    events = sum(block.events for block in blocks)
    writer = _Writer(reader, options, out)
    levels = rates(moved, reader.meta["devices"], writer.tracks)
    notes = reader.events(replace(options.wanted, kinds=frozenset((Kind.NOTE,)), bar=None))
    levels += paces(notes, writer.tracks)
    marks = deque(sorted(levels, key=attrgetter("time")))
    found = stretches(blocks, limit)
    for stretch in found:
        writer.add(stretch, _until(marks, stretch), limit)
    writer.trace.add(marks)
    writer.trace.close()
    cut = sum(stretch.drawn for stretch in found) if events > limit else 0
    return Written(events, writer.drawing.events, writer.drawing.slices, cut)


class _Writer:
    """Writes stretches of a log."""

    def __init__(self, reader: LogReader, options: Options, out: Callable[[bytes], object]) -> None:
        self._reader = reader
        self._options = options
        self.trace = TraceFile(out)
        self.tracks = tracks.Tracks(self.trace, reader.meta["devices"])
        self.drawing = tracks.Drawing(self.tracks)
        model = options.model
        self._modelled = None if model is None else ModelledTime(self.trace, model)
        self._gaps = 0  # the track of what is not drawn

    def add(self, stretch: Stretch, marks: list[tracks.Mark], limit: int) -> None:
        """Write a stretch, or the slice that stands for it, and other marks of its time."""
        if not stretch.drawn:
            self._gaps = self._gaps or self.trace.track("not drawn", 0, 0)
            marks += _gap(stretch, self._gaps)
        else:
            device = self._options.wanted.device
            activities = self._activities(stretch, limit)
            found = [each for each in activities if device in (None, each.device)]
            marks += self.drawing.draw(found)
            marks += outstanding(found, self.tracks)
            if self._modelled is not None:
                marks += self._modelled.draw(found)
        marks.sort(key=attrgetter("time"))
        self.trace.add(marks)

    def _activities(self, stretch: Stretch, limit: int) -> Iterator[Activity]:
        wanted, assembler = self._options.wanted, ActivityAssembler(self._reader.meta["devices"])
        first = stretch.blocks[0].first
        events = self._reader.events(
            replace(wanted, kinds=None, bar=None, device=None, first=first)
        )
        for event in islice(events, min(stretch.events, limit)):
            yield from assembler.feed(event)
        yield from assembler.finish()


def _until(marks: deque[tracks.Mark], stretch: Stretch) -> list[tracks.Mark]:
    """Remove the values up to the end of a stretch from `marks` and return them."""
    end = stretch.blocks[-1].end
    found = []
    while marks and marks[0].time <= end:
        found.append(marks.popleft())
    return found


def _gap(stretch: Stretch, track: int) -> list[tracks.Mark]:
    """Return a slice for a stretch that is not drawn, with its numbers of events by kind."""
    begin = stretch.blocks[0].begin
    end = max(stretch.blocks[-1].end, begin + 1)
    arguments: list[tracks.Argument] = []
    for kind in Kind:
        count = sum(block.counts[kind] for block in stretch.blocks)
        if count:
            arguments.append((kind.name, count))
    name = f"{stretch.events} events"
    return [
        tracks.Mark(begin, tracks.Shape.BEGIN, track, name, "not drawn", arguments),
        tracks.Mark(end, tracks.Shape.END, track),
    ]
