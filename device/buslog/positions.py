"""Positions at which reading a log can begin.

They are found by the indices of its segments, few of which are read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from bluebridge.device.buslog.record import INDEX, INDEX_EVERY, INDEX_SUFFIX, SEGMENT_GLOB

MOST_INDEX: Final = 1 << 20
"""Bytes of an index that are read: forty million events, more than a segment holds."""
MOST_EVENTS: Final = 1 << 48
"""Upper bound for the events of a log: more than any disk holds."""

IndexEntry = tuple[int, int, int]
"""Number, time in monotonic ns and offset of an event."""


@dataclass(frozen=True, slots=True)
class SegmentPosition:
    """A position at which reading can begin, with the number of the event there if known."""

    path: Path
    offset: int
    number: int | None


def positions(folder: Path, limit: int | None, first: int) -> Iterator[SegmentPosition]:
    """Yield a position to begin at in each segment of the log in `folder`, oldest first.

    Left out is what the indices show to be before time `limit` (monotonic ns) or before event
    number `first`. The index of a segment is read when the segment's turn comes.
    """
    paths = sorted(folder.glob(SEGMENT_GLOB))
    if limit is None and not first:
        yield from map(_beginning, paths)
        return

    def early(entry: IndexEntry | None) -> bool:
        """Whether all events before this one are too early."""
        return entry is not None and (
            entry[0] <= first != 0 or (limit is not None and entry[1] < limit)
        )

    # Entries rise, so those that are early come before those that are not.
    begin = bisect_left(paths, True, key=lambda path: not early(_first_entry(path)))
    if begin:
        path = paths[begin - 1]
        index = read_index(path)
        known = bisect_left(index, True, key=lambda entry: not early(entry))
        if known:
            number, _, offset = index[known - 1]
            yield SegmentPosition(path, offset, number)
        else:  # the writer has deleted it meanwhile, or the index is damaged behind its beginning
            yield _beginning(path)
    yield from map(_beginning, paths[begin:])


def read_index(path: Path) -> list[IndexEntry]:
    """Return the entries of a segment's index, in order; none where it is damaged or missing."""
    entries = _entries(path, MOST_INDEX)
    return entries if _is_sound(entries, path) else []


def about_last(folder: Path) -> int:
    """Return the number of the last event of a log, or a slightly higher one."""
    paths = sorted(folder.glob(SEGMENT_GLOB))
    entries = [entry for path in paths[-2:] for entry in read_index(path)]
    return entries[-1][0] + INDEX_EVERY if entries else 0


def _beginning(path: Path) -> SegmentPosition:
    entry = _first_entry(path)
    return SegmentPosition(path, 0, None if entry is None else entry[0])


def _first_entry(path: Path) -> IndexEntry | None:
    entry = next(iter(_entries(path, INDEX.size)), None)
    return entry if entry is not None and _may_begin(entry) else None


def _may_begin(entry: IndexEntry) -> bool:
    return entry[0] <= MOST_EVENTS and not entry[2]


def _is_sound(entries: list[IndexEntry], path: Path) -> bool:
    """Return whether the entries begin where the segment does, rise, and end inside of it."""
    try:
        size = path.stat().st_size
    except OSError:
        return False
    return (
        bool(entries)
        and _may_begin(entries[0])
        and all(
            one[0] < two[0] and one[1] <= two[1] and one[2] < two[2]
            for one, two in pairwise(entries)
        )
        and entries[-1][0] <= MOST_EVENTS
        and entries[-1][2] <= size
    )


def _entries(path: Path, size: int) -> list[IndexEntry]:
    """Return the whole entries in the first `size` bytes of a segment's index."""
    try:
        with path.with_suffix(INDEX_SUFFIX).open("rb", buffering=0) as index:
            data = index.read(size)
    except OSError:
        return []
    return list(INDEX.iter_unpack(data[: len(data) // INDEX.size * INDEX.size]))
