"""`bluebridge log --diff A B`: where two runs differ first, in order and content."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bluebridge.device.buslog.filter import Filter
from bluebridge.device.buslog.reader import LogReader
from bluebridge.host_tools.analyzer.comparison.comparable import Stream, stream_of
from bluebridge.host_tools.analyzer.comparison.streams import Lines, first_difference, streams
from bluebridge.host_tools.analyzer.event_lines import Describe, narrow_line
from bluebridge.host_tools.analyzer.ntrdma import decoder as ntrdma
from bluebridge.host_tools.analyzer.rtrs import decoder as rtrs

CONTEXT = 4
"""Lines of the stream shown before and after the first one that differs."""
_NOTHING = Lines()


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a stream differs first: index of the line in both, the event there or at its end."""

    stream: Stream
    index: int
    one: Lines
    other: Lines

    @property
    def place(self) -> int:
        """Number of the first event that differs: the lower one of both logs.

        A log that has no more of the stream says nothing of when the next was due.
        """
        both = (self.one.numbers, self.other.numbers)
        return min(numbers[self.index] for numbers in both if self.index < len(numbers))

    def __str__(self) -> str:
        places = " and ".join(_place(lines, self.index) for lines in (self.one, self.other))
        return f"{' '.join(self.stream)}: {self.index} lines alike, then {places}"


def compare(one: LogReader, other: LogReader) -> tuple[bool, Iterator[str]]:
    """Whether the logs are alike, and the lines that say so. Raises `LogError`."""
    left, right = _streams(one), _streams(other)
    found = []
    for stream in sorted(left.keys() | right.keys()):
        pair = left.get(stream, _NOTHING), right.get(stream, _NOTHING)
        index = first_difference(*pair)
        if index is not None:
            found.append(Difference(stream, index, *pair))
    if not found:
        lines = sum(len(each.hashes) for each in left.values())
        return True, iter([f"alike: {lines} lines of {len(left)} kinds and functions"])
    found.sort(key=lambda each: each.place)
    return False, _report(one, other, found, len(left.keys() | right.keys()))


def _streams(reader: LogReader) -> dict[Stream, Lines]:
    return streams(iter(reader), _words(reader, Filter()))


def _words(reader: LogReader, wanted: Filter) -> Describe:
    return ntrdma.decoder_of(reader, wanted, rtrs.decoder_of(reader, wanted))


def _report(
    one: LogReader, other: LogReader, found: Sequence[Difference], kinds: int
) -> Iterator[str]:
    first = found[0]
    yield f"the first difference: {first}"
    for reader, lines in ((one, first.one), (other, first.other)):
        yield f"in {reader.folder}:"
        yield from _context(reader, first, lines)
    if len(found) > 1:
        yield "later ones, of other kinds and functions:"
        yield from (f"  {each}" for each in found[1:])
    yield f"{kinds - len(found)} of {kinds} kinds and functions are alike"


def _context(reader: LogReader, difference: Difference, lines: Lines) -> Iterator[str]:
    """The lines of the stream around the first that differs, which has a `>`."""
    index = difference.index
    numbers = lines.numbers[max(0, index - CONTEXT) : index + CONTEXT + 1]
    wanted = Filter(first=numbers[0]) if numbers else Filter()
    words = _words(reader, wanted)
    for event in reader.events(wanted) if numbers else ():
        if event.number in numbers and stream_of(event) == difference.stream:
            here = index < len(lines.numbers) and event.number == lines.numbers[index]
            yield f"{'>' if here else ' '} {event.number:>8} {narrow_line(event, words=words)}"
        if event.number >= numbers[-1]:
            break
    if index >= len(lines.numbers):
        yield ">   (no more)"


def _place(lines: Lines, index: int) -> str:
    return f"event {lines.numbers[index]}" if index < len(lines.numbers) else "no more"
