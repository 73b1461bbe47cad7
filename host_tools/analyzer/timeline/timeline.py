"""Writes the timeline of a log, with a limit for the events that are drawn singly."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from operator import attrgetter

from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.layout.buslog import Kind
from bluebridge.host_tools.analyzer.activity import Activity, ActivityAssembler
from bluebridge.host_tools.analyzer.timeline import counters
from bluebridge.host_tools.analyzer.timeline.drawing import Drawing
from bluebridge.host_tools.analyzer.timeline.marks import Argument, Mark, Shape
from bluebridge.host_tools.analyzer.timeline.modelled import ModelledTime
from bluebridge.host_tools.analyzer.timeline.overview import (
    DEFAULT_LIMIT,
    Stretch,
    overview,
    stretches,
)
from bluebridge.host_tools.analyzer.timeline.trace_file import TraceFile
from bluebridge.host_tools.analyzer.timeline.tracks import Tracks
from bluebridge.host_tools.analyzer.views.view import Options


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
    whole = overview(reader.heads(options.wanted))
    writer = _Writer(reader, options, out)
    rates = deque(counters.rates(whole.rates, reader.meta["devices"], writer.tracks))
    found = stretches(whole.blocks, limit)
    for stretch in found:
        writer.add(stretch, _until(rates, stretch), limit)
    writer.trace.add(rates)
    writer.trace.close()
    cut = sum(stretch.drawn for stretch in found) if whole.events > limit else 0
    return Written(whole.events, writer.drawing.events, writer.drawing.slices, cut)


class _Writer:
    """Writes stretches of a log."""

    def __init__(self, reader: LogReader, options: Options, out: Callable[[bytes], object]) -> None:
        self._reader = reader
        self._options = options
        self.trace = TraceFile(out)
        self.tracks = Tracks(self.trace, reader.meta["devices"])
        self.drawing = Drawing(self.tracks)
        model = options.model
        self._modelled = None if model is None else ModelledTime(self.trace, model)
        self._gaps = 0  # the track of what is not drawn

    def add(self, stretch: Stretch, marks: list[Mark], limit: int) -> None:
        """Write a stretch, or the slice that stands for it, and other marks of its time."""
        if not stretch.drawn:
            self._gaps = self._gaps or self.trace.track("not drawn", 0, 0)
            marks += _gap(stretch, self._gaps)
        else:
            found = list(self._activities(stretch, limit))
            marks += self.drawing.draw(found)
            marks += counters.outstanding(found, self.tracks)
            if self._modelled is not None:
                marks += self._modelled.draw(found)
        marks.sort(key=attrgetter("time"))
        self.trace.add(marks)

    def _activities(self, stretch: Stretch, limit: int) -> Iterator[Activity]:
        """Return the activities of the first `limit` events of a stretch."""
        wanted, assembler = self._options.wanted, ActivityAssembler(self._reader.meta["devices"])
        first = stretch.blocks[0].first
        events = self._reader.events(
            replace(wanted, kinds=None, bar=None, device=None, first=first)
        )
        for event in islice(events, min(stretch.events, limit)):
            yield from _of(wanted.device, assembler.feed(event))
        yield from _of(wanted.device, assembler.finish())


def _of(device: str | None, found: list[Activity]) -> Iterator[Activity]:
    return (each for each in found if device in (None, each.device))


def _until(rates: deque[Mark], stretch: Stretch) -> list[Mark]:
    """Remove the values up to the end of a stretch from `rates` and return them."""
    end = stretch.blocks[-1].end
    found = []
    while rates and rates[0].time <= end:
        found.append(rates.popleft())
    return found


def _gap(stretch: Stretch, track: int) -> list[Mark]:
    """Return a slice for a stretch that is not drawn, with its numbers of events by kind."""
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
