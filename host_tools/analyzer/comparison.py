"""Compares two logs for `bluebridge log --diff A B`: first differences, in order.

Two runs are compared by the line of each event, without the parts that differ from run to run.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from bluebridge.device.buslog.reader import Event, Filter, LogReader
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.events import Told
from bluebridge.host_tools.analyzer import rtrs
from bluebridge.host_tools.analyzer.event_lines import KINDS, Describe, narrow_line
from bluebridge.host_tools.analyzer.ntrdma import decoder as ntrdma

Stream = tuple[str, str]
"""A function's name in the log, the kind of its events, and for DMA and messages the purpose."""

LEAST_LARGE: Final = 0x10000
"""Least hexadecimal number that is taken for an address, a key or another chosen number."""
CHOSEN: Final = frozenset(("psn", "tid", "rkey", "lkey", "key", "path", "session", "mkey"))
"""Fields whose numbers are chosen anew in each run, even if they are small."""
_NUMBER: Final = re.compile(r"(?:([A-Za-z_]+)=)?0x([0-9a-f]+)")
_DMA: Final = KINDS["dma"] | KINDS["wire"] | KINDS["blueflame"]
_GROUPS: Final = {kind: name for name, kinds in KINDS.items() for kind in kinds if kind not in _DMA}

_SCATTERED: Final = frozenset((What.OTHER, What.OWNERSHIP))
"""Purposes of transfers whose lengths depend on how memory is fragmented."""

_READS: Final = frozenset((Kind.MMIO_READ, Kind.CONFIG_READ))
HASH_MASK: Final = (1 << 64) - 1

CONTEXT = 4
"""Lines of the stream shown before and after the first difference."""


def stream_of(event: Event) -> Stream:
    """Return the stream of an event; the order of events in different streams is not compared."""
    kind = event.kind
    if kind in _DMA:
        name = event.kind.name.lower().replace("_", " ")
        return event.device, f"{name} {event.what.name.lower().replace('_', ' ')}"
    return event.device, _GROUPS[kind]


class Comparable:
    """Makes the lines of a stream; chosen numbers become their order of appearance.

    Each chosen number of the stream stays in memory: if one were forgotten, it would be numbered as
    a new one when it comes again, which would depend on the limit and not on the driver.
    """

    def __init__(self, chosen: frozenset[str] = CHOSEN) -> None:
        self._chosen = chosen
        self._known: dict[tuple[str, str], int] = {}

    def line(self, event: Event, words: Describe) -> str:
        """Return the line of an event without time, place in memory and data."""
        told = event.told
        if told is not None:
            return self.fact(told)
        text = f"{event.kind.name} {self.text(words(event))}"
        return f"{text} [{event.length}]" if event.what not in _SCATTERED else text

    def fact(self, told: Told) -> str:
        """Return the name of a fact and its values, without those that vary from run to run."""
        return " ".join((told.fact.name, *self._values(told)))

    def _values(self, told: Told) -> Iterator[str]:
        for name, form in told.fact.fields.items():
            if form.text:
                yield self.text(told.values[name])
            elif not form.varies:
                yield self._number(name, f"{told.values[name]:x}")

    def text(self, text: str) -> str:
        """Return a text with the order of appearance in place of each chosen number."""
        return _NUMBER.sub(lambda found: self._number(found[1] or "", found[2]), text)

    def _number(self, name: str, digits: str) -> str:
        if int(digits, 16) < LEAST_LARGE and name not in self._chosen:
            return f"{name}=0x{digits}" if name else f"0x{digits}"
        number = self._known.setdefault((name, digits), len(self._known) + 1)
        return f"{name}=#{number}" if name else f"#{number}"


@dataclass(slots=True)
class Lines:
    """A stream's lines as 64-bit hashes, and the number of the event of each.

    Repeated reads of a register count once, as the pieces of memory that a queue is filled in.
    """

    hashes: array[int] = field(default_factory=lambda: array("Q"))
    numbers: array[int] = field(default_factory=lambda: array("Q"))
    normal: Comparable = field(default_factory=Comparable)

    def add(self, event: Event, words: Describe) -> None:
        """Add the next event of the stream."""
        code = hash(self.normal.line(event, words)) & HASH_MASK
        may_repeat = event.kind in _READS or event.what is What.OWNERSHIP
        if not may_repeat or not self.hashes or self.hashes[-1] != code:
            self.hashes.append(code)
            self.numbers.append(event.number)


def streams(events: Iterator[Event], words: Describe) -> dict[Stream, Lines]:
    """Return the streams of a log with their lines, of each event 16 bytes."""
    found: dict[Stream, Lines] = {}
    for event in events:
        found.setdefault(stream_of(event), Lines()).add(event, words)
    return found


def first_difference(one: Lines, other: Lines) -> int | None:
    """Return the index of the first line in which two streams differ; None if they are equal."""
    lengths = len(one.hashes), len(other.hashes)
    pairs = enumerate(zip(one.hashes, other.hashes, strict=False))
    index = next((place for place, (left, right) in pairs if left != right), min(lengths))
    return index if index < max(lengths) else None


_NOTHING = Lines()


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference of a stream: its index, and the lines of both logs."""

    stream: Stream
    index: int
    one: Lines
    other: Lines

    @property
    def place(self) -> int:
        """Number of the first event that differs, in the log where it is lower.

        A log that has no more of the stream says nothing of when the next was due.
        """
        both = (self.one.numbers, self.other.numbers)
        return min(numbers[self.index] for numbers in both if self.index < len(numbers))

    def __str__(self) -> str:
        places = " and ".join(_place(lines, self.index) for lines in (self.one, self.other))
        return f"{' '.join(self.stream)}: {self.index} lines alike, then {places}"


def compare(one: LogReader, other: LogReader) -> tuple[bool, Iterator[str]]:
    """Compare two logs: whether they are equal, and lines that tell so. Raises `LogError`."""
    left, right = (streams(iter(log), _words(log, Filter())) for log in (one, other))
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
    """Yield the lines of the stream around the first that differs, which is marked by `>`."""
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
