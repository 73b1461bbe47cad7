"""A picture of a timeline: the tracks that `--perfetto` writes, as SVG.

`python -m bluebridge.host_tools.analyzer.timeline.picture DIR FILE.svg T:T [T:T …]` draws a panel
for each span of time, in seconds since the log began.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from bluebridge.device.buslog.reader import Filter, LogError, LogReader
from bluebridge.host_tools.analyzer.activity import activities
from bluebridge.host_tools.analyzer.output import opened
from bluebridge.host_tools.analyzer.timeline.tracks import Drawing, Mark, Shape, Tracks

MARGIN: Final = 0.05
"""Seconds before and after a span from which activities may reach into it."""
ARROWS_NS: Final = 20_000_000
"""Length in ns above which a span is drawn without arrows."""
Span = tuple[float, float]
WIDTH, LEFT, LANE, GAP, LETTER = 1000, 190, 15, 5, 6.2
"""Pixels: the picture, the names beside it, a lane, between rows, a letter of a label."""
TICKS: Final = 8
COLOURS: Final = {
    "command": "#4e79a7", "register access": "#b07aa1", "config access": "#9c755f",
    "reset": "#e15759", "link": "#59a14f", "fault": "#e15759", "work request": "#f28e2b",
    "DMA": "#76b7b2", "interrupt": "#edc948", "descriptor": "#f28e2b", "store": "#f28e2b",
    "note": "#79706e", "control": "#79706e", "doorbell": "#edc948",
}  # fmt: skip
OTHER: Final = "#79706e"
_STYLE: Final = "font-family='sans-serif' font-size='11'"

Box = tuple[int, int, Mark]
"""Begin and end of a slice or an instant in nanoseconds, and its mark."""


@dataclass
class Names:
    """Records the names and parents of the tracks that are made, by number."""

    tracks: dict[int, tuple[str, int]] = field(default_factory=dict)

    def process(self, name: str, pid: int) -> int:
        """Note a process and return its number."""
        return self.track(name, 0, pid)

    def track(self, name: str, parent: int, rank: int) -> int:
        """Note a track below another and return its number."""
        self.tracks[len(self.tracks) + 1] = f"{rank:04} {name}", parent
        return len(self.tracks)

    def counter(self, name: str, parent: int, rank: int, unit: str) -> int:
        """Note a track of values and return its number."""
        return self.track(f"{name} {unit}", parent, rank)

    def row(self, number: int) -> tuple[str, ...]:
        """Names from the process to the track, each behind its rank, by which rows are sorted."""
        names: list[str] = []
        while number:
            name, number = self.tracks[number]
            names.insert(0, name)
        return tuple(names)


def boxes(marks: Sequence[Mark]) -> Iterator[Box]:
    """Slices and instants of marks that are in order of time."""
    begun: dict[int, Mark] = {}
    for mark in marks:
        if mark.shape is Shape.BEGIN:
            begun[mark.track] = mark
        elif mark.shape is Shape.END:
            begin = begun.pop(mark.track)
            yield begin.time, mark.time, begin
        else:
            yield mark.time, mark.time, mark


class Panel:
    """A span of time in a picture: a row for each track that has something in it."""

    def __init__(self, names: Names, found: Sequence[Box], span: Span, top: int) -> None:
        self._begin, self._end = (round(seconds * 1e9) for seconds in span)
        self._found = [one for one in found if one[1] >= self._begin and one[0] <= self._end]
        lanes: dict[tuple[str, ...], list[int]] = {}
        for _, _, mark in self._found:
            tracks = lanes.setdefault(names.row(mark.track), [])
            if mark.track not in tracks:
                tracks.append(mark.track)
        self._places: dict[int, int] = {}
        self._rows: list[tuple[int, str]] = []
        y = top + 22
        group: tuple[str, ...] = ()
        for row in sorted(lanes):
            if row[:-1] != group:
                group = row[:-1]
                self._rows.append((y + 12, " · ".join(name[5:] for name in row[:-1])))
                y += LANE + GAP
            self._rows.append((y + 12, f"\u2002{row[-1][5:]}"))
            for track in sorted(lanes[row]):
                self._places[track] = y
                y += LANE
            y += GAP
        self._top, self.bottom = top, y + 12

    def svg(self) -> Iterator[str]:
        """Draw the panel as elements of SVG."""
        yield from self._axis()
        for y, name in self._rows:
            weight = "" if name.startswith("\u2002") else " font-weight='bold'"
            yield f"<text x='4' y='{y}' {_STYLE}{weight}>{escape(name)}</text>"
        drawn: set[tuple[int, int, bool]] = set()
        for box in self._found:
            yield from self._box(box, drawn)
        if self._end - self._begin <= ARROWS_NS:
            yield from self._arrows()

    def _x(self, time: int) -> float:
        share = (time - self._begin) / (self._end - self._begin)
        return round(LEFT + (WIDTH - LEFT - 10) * min(max(share, 0.0), 1.0), 1)

    def _axis(self) -> Iterator[str]:
        wide = self._end - self._begin > 10**8
        for tick in range(TICKS + 1):
            time = self._begin + tick * (self._end - self._begin) // TICKS
            since = (time - self._begin) / 1e3
            text = f"{since:.0f} us" if tick and not wide else f"{time / 1e9:.3f} s"
            x = self._x(time)
            yield f"<path d='M{x} {self._top + 16}V{self.bottom - 12}' stroke='#ddd'/>"
            anchor = "end" if tick == TICKS else "middle"
            where = f"x='{x}' y='{self._top + 12}' text-anchor='{anchor}'"
            yield f"<text {where} {_STYLE}>{text}</text>"

    def _box(self, box: Box, drawn: set[tuple[int, int, bool]]) -> Iterator[str]:
        """Yield a rectangle for a slice or a line for an instant; one at each position."""
        begin, end, mark = box
        x, y, width = self._x(begin), self._places[mark.track], self._x(end) - self._x(begin)
        instant = mark.shape is Shape.INSTANT
        place = y, int(x * 2), instant
        if width < 0.5 and place in drawn:
            return
        drawn.add(place)
        if instant and mark.category not in COLOURS and self._end - self._begin > ARROWS_NS:
            return
        if instant and mark.category not in COLOURS:
            yield f"<path d='M{x} {y + 9}v5' stroke='#222' stroke-width='.6'/>"
            return
        colour, size = COLOURS.get(mark.category, OTHER), max(round(width, 1), 0.7)
        yield f"<rect x='{x}' y='{y}' width='{size}' height='14' fill='{colour}'/>"
        if width > LETTER * len(name := mark.label or mark.name):
            colour = "fill='#fff' font-size='10' font-family='sans-serif'"
            yield f"<text x='{x + 2}' y='{y + 9}' {colour}>{escape(name)}</text>"

    def _arrows(self) -> Iterator[str]:
        begun = {flow: mark for _, _, mark in self._found for flow in mark.flows}
        for _, _, mark in self._found:
            for flow in mark.ended:
                if (cause := begun.get(flow)) is None or cause.time < self._begin:
                    continue
                x, y = self._x(cause.time), self._places[cause.track] + 11
                to, down = self._x(mark.time), self._places[mark.track] + 11
                if to - x > 2 or y != down:
                    bend = f"{x + 12} {y + 12} {to - 12} {down + 12} {to} {down}"
                    yield f"<path d='M{x} {y}C{bend}' fill='none' stroke='#c00' stroke-width='.8'/>"


def picture(reader: LogReader, spans: Sequence[Span]) -> str:
    """Return the SVG of some spans of a log; raises `LogError`."""
    parts: list[str] = []
    top = 4
    for span in spans:
        names = Names()
        wanted = Filter(since=span[0] - MARGIN, until=span[1] + MARGIN)
        drawing = Drawing(Tracks(names, reader.meta["devices"]))
        found = sorted(boxes(drawing.draw(activities(reader, wanted))), key=lambda box: box[0])
        panel = Panel(names, found, span, top)
        parts += panel.svg()
        top = panel.bottom + 10
    head = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {top}'>"
    return "\n".join([head, "<rect width='100%' height='100%' fill='#fff'/>", *parts, "</svg>\n"])


def _span(word: str) -> Span:
    begin, end = map(float, word.split(":"))
    if not begin < end:
        raise ValueError
    return begin, end


def main(words: Sequence[str]) -> int:
    """Write the picture; return the exit status."""
    try:
        folder, file, *rest = words
        spans = [_span(word) for word in rest]
        if not spans:
            raise ValueError
        with opened(Path(file), replace=True) as out:
            out.write(picture(LogReader(Path(folder)), spans).encode())
    except ValueError:
        print("usage: picture DIR FILE.svg T:T [T:T …], in seconds", file=sys.stderr)
        return 2
    except LogError as error:
        print(f"picture: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
