"""Writes the timeline of a log, with a bound on what is drawn one by one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from operator import attrgetter

from bluebridge.device.buslog.activity import Activity, ActivityAssembler
from bluebridge.device.buslog.analysis.view import Options
from bluebridge.device.buslog.filter import Filter
from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.buslog.timeline import counters
from bluebridge.device.buslog.timeline.drawing import Drawing
from bluebridge.device.buslog.timeline.marks import Argument, Mark, Shape
from bluebridge.device.buslog.timeline.modelled import ModelledTime
from bluebridge.device.buslog.timeline.overview import overview
from bluebridge.device.buslog.timeline.sampling import DEFAULT_LIMIT, Stretch, stretches
from bluebridge.device.buslog.timeline.trace_file import TraceFile
from bluebridge.device.buslog.timeline.tracks import Tracks
from bluebridge.device.layout.buslog import Kind


@dataclass(frozen=True, slots=True)
class Written:
    """What a timeline shows: `drawn` of the log's `events` one by one, in so many slices."""

    events: int
    drawn: int
    slices: int
    stretches: int

    def __str__(self) -> str:
        """One line, which says what was cut."""
        if self.drawn >= self.events:
            return f"{self.events} events in {self.slices} slices"
        return (
            f"{self.drawn} of {self.events} events in {self.slices} slices, in "
            f"{self.stretches} stretches of the log; the others are in the counters only: --limit "
            "for more, --from, --to and --event for others"
        )


def write(reader: LogReader, options: Options, out: Callable[[bytes], object]) -> Written:
    """Write the timeline of the wanted events; raises `LogError`."""
    wanted = replace(options.wanted, kinds=None, bar=None, device=None)
    whole = overview(reader.heads(wanted))
    limit = DEFAULT_LIMIT if options.limit is None else options.limit
    found = stretches(whole.blocks, limit)
    trace = TraceFile(out)
    tracks = Tracks(trace, reader.meta["devices"])
    drawing = Drawing(tracks)
    modelled = ModelledTime(trace, options.model) if options.model is not None else None
    rates = deque(counters.rates(whole.rates, reader.meta["devices"], tracks))
    gaps = 0
    for stretch in found:
        marks = _until(rates, stretch)
        if stretch.drawn:
            activities = list(_activities(reader, wanted, stretch, options.wanted.device))
            marks += drawing.draw(activities)
            marks += counters.outstanding(activities, tracks)
            if modelled is not None:
                marks += modelled.draw(activities)
        else:
            gaps = gaps or trace.track("not drawn", 0, 0)
            marks += _gap(stretch, gaps)
        marks.sort(key=attrgetter("time"))
        trace.add(marks)
    trace.add(rates)
    trace.close()
    drawn = sum(stretch.drawn for stretch in found)
    read = sum(stretch.events for stretch in found if stretch.drawn)
    return Written(whole.events, read, drawing.slices, drawn)


def _activities(
    reader: LogReader, wanted: Filter, stretch: Stretch, device: str | None
) -> Iterator[Activity]:
    """The activities of a stretch."""
    assembler = ActivityAssembler(reader.meta["devices"])
    events = reader.events(replace(wanted, first=stretch.blocks[0].first))
    for event in islice(events, stretch.events):
        for activity in assembler.feed(event):
            if device in (None, activity.device):
                yield activity
    for activity in assembler.finish():
        if device in (None, activity.device):
            yield activity


def _until(rates: deque[Mark], stretch: Stretch) -> list[Mark]:
    """The values up to the end of a stretch, taken out of `rates`."""
    end = stretch.blocks[-1].end
    found = []
    while rates and rates[0].time <= end:
        found.append(rates.popleft())
    return found


def _gap(stretch: Stretch, track: int) -> list[Mark]:
    """A slice that stands for a stretch that is not drawn, with its numbers of events by kind."""
    begin = stretch.blocks[0].begin
    end = max(stretch.blocks[-1].end, begin + 1)
    arguments: list[Argument] = []
    for kind in Kind:
        count = sum(block.counts[kind] for block in stretch.blocks)
        if count:
            arguments.append((kind.name, count))
    name = f"{stretch.events} events"
    return [
        Mark(begin, Shape.BEGIN, track, name, "not drawn", arguments),
        Mark(end, Shape.END, track),
    ]
