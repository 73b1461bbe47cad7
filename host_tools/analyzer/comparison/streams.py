"""The events of a log by stream, in a form in which those of two logs are compared."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from bluebridge.device.buslog.reader import Event
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.host_tools.analyzer.comparison.comparable import Comparable, Stream, stream_of
from bluebridge.host_tools.analyzer.event_lines import Describe

_READS: Final = frozenset((Kind.MMIO_READ, Kind.CONFIG_READ))
HASH_MASK: Final = (1 << 64) - 1


@dataclass(slots=True)
class Lines:
    """A stream's lines as 64-bit hashes, and the number of the event of each.

    Reads of a register that repeat, as those do that wait for something, stand once,
    so do the pieces of memory that a queue is filled in.
    """

    hashes: array[int] = field(default_factory=lambda: array("Q"))
    numbers: array[int] = field(default_factory=lambda: array("Q"))
    normal: Comparable = field(default_factory=Comparable)

    def add(self, event: Event, words: Describe) -> None:
        """The next event of the stream."""
        code = hash(self.normal.line(event, words)) & HASH_MASK
        may_repeat = event.kind in _READS or event.what is What.OWNERSHIP
        if not may_repeat or not self.hashes or self.hashes[-1] != code:
            self.hashes.append(code)
            self.numbers.append(event.number)


def streams(events: Iterator[Event], words: Describe) -> dict[Stream, Lines]:
    """All streams of a log.

    16 bytes for each event stay in memory, and each address, key or other chosen number of a
    stream once, since it may come again until the log's end.
    """
    found: dict[Stream, Lines] = {}
    for event in events:
        found.setdefault(stream_of(event), Lines()).add(event, words)
    return found


def first_difference(one: Lines, other: Lines) -> int | None:
    """Index of the first line in which two streams differ; None if they are alike."""
    common = min(len(one.hashes), len(other.hashes))
    for index in range(common):
        if one.hashes[index] != other.hashes[index]:
            return index
    return None if len(one.hashes) == len(other.hashes) else common
