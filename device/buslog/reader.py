"""Reads a bus log, also while it is written or after its writer was killed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bluebridge.device.buslog.filter import Filter, RawFilter
from bluebridge.device.buslog.record import (
    INDEX,
    INDEX_SUFFIX,
    META_NAME,
    RECORD,
    SEGMENT_GLOB,
    TEXT_KINDS,
)
from bluebridge.device.layout.buslog import VERSION, Kind, What


class LogError(Exception):
    """A log or an output file that cannot be used; the text says what to do."""


@dataclass(slots=True)
class Event:
    """One event. `time` is in seconds since the log began, `data` may be only its beginning.

    `work` names the work request it belongs to (`bluebridge.device.buslog.record`), 0 for none.
    """

    number: int
    time: float
    device: str
    kind: Kind
    bar: int
    what: What
    obj: int
    address: int
    length: int
    data: bytes
    work: int = 0

    @property
    def text(self) -> str:
        """The line of a command, note or reset; empty for transfers."""
        return self.data.decode(errors="replace") if self.kind in TEXT_KINDS else ""


class LogReader:
    """A log folder, or a run's folder that has one inside as `bus`. Raises `LogError`.

    `cut` says whether the segment that was read last ends in the middle of a record.
    """

    def __init__(self, folder: Path) -> None:
        self.cut = False
        self.folder = _locate(folder)
        try:
            self.meta: dict[str, Any] = json.loads((self.folder / META_NAME).read_text())
            version = self.meta["version"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise LogError(f"{folder} holds no readable {META_NAME}: {error}") from error
        self._read = 0  # number of the event that is read next
        if version != VERSION:
            raise LogError(
                f"{folder} is a bus log of version {version}, this is a reader of {VERSION}: "
                "use the bluebridge that wrote it"
            )

        self._names: list[str] = self.meta["devices"]
        self._started = int(self.meta["started_monotonic_ns"])

    @property
    def dropped(self) -> bool:
        """Whether older events were deleted to keep the log bounded."""
        return bool(self.meta.get("segments_dropped"))

    def __iter__(self) -> Iterator[Event]:
        """All events, oldest first; an incomplete record at the end is left out."""
        return self.events(_EVERYTHING)

    def since(self, seconds: float | None) -> Iterator[Event]:
        """The events from that time on, found by the index; all for None.

        Some earlier events may come first. Raises `LogError` on damaged segments.
        """
        limit = None if seconds is None else self._started + int(seconds * 1e9)
        return self._events(self._places(limit, 0), None)

    def events(self, wanted: Filter) -> Iterator[Event]:
        """The events that pass the filter. Raises `LogError` on damaged segments."""
        raw = wanted.raw(self._names, self._started)
        places = self._places(None if wanted.since is None else raw.begin, wanted.first)
        only = None if wanted.everything else raw
        for event in self._events(places, only):
            if event.number >= wanted.first:
                yield event

    def tail(self, segments: int = 2) -> Iterator[Event]:
        """The events of the last segments only."""
        return self._events(self._places(None, 0)[-segments:], None)

    def records(self, path: Path, data: bytes) -> Iterator[Event]:
        """The complete records at the start of `data`, a part of segment `path`; numbers are 0."""
        for event in self._records(path, data, 0, None):
            event.number = 0
            yield event

    def _events(self, places: list[SegmentPosition], only: RawFilter | None) -> Iterator[Event]:
        number = 0
        for place in places:
            if place.number is not None:
                number = place.number
            try:
                with place.path.open("rb") as segment:
                    segment.seek(place.offset)
                    data = segment.read()
            except FileNotFoundError:
                continue  # the writer has deleted it meanwhile
            self._read = number
            yield from self._records(place.path, data, number, only)
            number = self._read

    def _records(
        self, path: Path, data: bytes, number: int, only: RawFilter | None
    ) -> Iterator[Event]:
        """The complete records at the start of `data` that pass; `_read` counts all of them."""
        names, start = self._names, self._started
        position, end, size = 0, len(data), RECORD.size
        unpack = RECORD.unpack_from
        while position + size <= end:
            when, device, kind, bar, what, obj, address, length, kept, work = unpack(data, position)
            position += size
            if kind not in _KINDS or what not in _WHATS or kept > MOST_KEPT:
                raise LogError(f"{path} is damaged before byte {position}")
            if position + kept > end:
                self.cut = True
                return
            if only is None or (
                kind in only.kinds
                and device in only.devices
                and bar in only.bars
                and only.begin <= when <= only.end
            ):
                yield Event(
                    number,
                    (when - start) / 1e9,
                    names[device] if device < len(names) else str(device),
                    _KINDS[kind],
                    bar,
                    _WHATS[what],
                    obj,
                    address,
                    length,
                    data[position : position + kept],
                    work,
                )
            position += kept
            number += 1
            self._read = number
        self.cut = position < end

    def _places(self, limit: int | None, first: int) -> list[SegmentPosition]:
        """Where to begin in each segment that may have events of that time and number or later."""
        places: list[SegmentPosition] = []
        for path in sorted(self.folder.glob(SEGMENT_GLOB)):
            index = read_index(path)
            known = [
                entry
                for entry in index
                if entry[0] <= first != 0 or (limit is not None and entry[1] < limit)
            ]
            if known:  # all events before it are too early
                number, _, offset = known[-1]
                places = [SegmentPosition(path, offset, number)]
            else:
                places.append(SegmentPosition(path, 0, index[0][0] if index else None))
        return places


@dataclass(frozen=True, slots=True)
class SegmentPosition:
    """Where to begin in a segment; `number` is that of the event there, None if unknown."""

    path: Path
    offset: int
    number: int | None


def read_index(path: Path) -> list[tuple[int, int, int]]:
    """Number, time in monotonic ns and offset of some events of a segment, if it has an index."""
    try:
        data = path.with_suffix(INDEX_SUFFIX).read_bytes()
    except OSError:
        return []
    return list(INDEX.iter_unpack(data[: len(data) // INDEX.size * INDEX.size]))


_EVERYTHING = Filter()
MOST_KEPT = 1 << 26
"""Bytes of one event, far more than the largest --capture."""

_KINDS = {int(kind): kind for kind in Kind}
_WHATS = {int(what): what for what in What}


def _locate(folder: Path) -> Path:
    for candidate in (folder, folder / "bus"):
        if (candidate / META_NAME).is_file():
            return candidate
    raise LogError(f"{folder} holds no bus log ({META_NAME} is missing)")
