"""Reads a bus log, while it is written or after its writer was killed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from device.buslog.record import META_NAME, RECORD, SEGMENT_GLOB, TEXT_KINDS
from device.layout.buslog import VERSION, Kind, What


class LogError(Exception):
    """A folder that is no bus log, or one of another version; the text says what to do."""


@dataclass(slots=True)
class Event:
    """One event. `time` is in seconds since the log began, `data` may be only its beginning.

    `work` names the work request it belongs to (`device.buslog.record`), 0 for none.
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

    `cut` says whether what was read last ended in the middle of a record.
    """

    def __init__(self, folder: Path) -> None:
        self.cut = False
        self.folder = _locate(folder)
        try:
            self.meta: dict[str, Any] = json.loads((self.folder / META_NAME).read_text())
            version = self.meta["version"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise LogError(f"{folder} holds no readable {META_NAME}: {error}") from error
        if version != VERSION:
            raise LogError(
                f"{folder} is a bus log of version {version}, this is a reader of {VERSION}: "
                "use the bluebridge that wrote it"
            )

    @property
    def dropped(self) -> bool:
        """Whether older events were thrown away to keep the log bounded."""
        return bool(self.meta.get("segments_dropped"))

    def __iter__(self) -> Iterator[Event]:
        """All events, oldest first; a record cut short by the writer's end is left out."""
        return self.since(None)

    def since(self, seconds: float | None) -> Iterator[Event]:
        """Like iterating, but segments that ended before that time are not read at all.

        Event numbers then count from the first event read. Raises `LogError` on damaged segments.
        """
        return self._events(self._segments(seconds))

    def tail(self, segments: int = 2) -> Iterator[Event]:
        """The events of the last segments only, for what happened at the end of a long log."""
        return self._events(self._segments(None)[-segments:])

    def _events(self, paths: list[Path]) -> Iterator[Event]:
        number = 0
        for path in paths:
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                continue  # the writer has dropped it meanwhile
            for event in self.records(path, data):
                event.number = number
                number += 1
                yield event

    def records(self, path: Path, data: bytes) -> Iterator[Event]:
        """The whole records at the start of `data`, a piece of segment `path`; numbers are 0."""
        names: list[str] = self.meta["devices"]
        start = int(self.meta["started_monotonic_ns"])
        position, end = 0, len(data)
        while position + RECORD.size <= end:
            when, device, kind, bar, what, obj, address, length, kept, work = RECORD.unpack_from(
                data, position
            )
            position += RECORD.size
            try:
                meaning = _KINDS[kind], _WHATS[what]
            except KeyError as error:
                raise LogError(f"{path} is damaged before byte {position}") from error
            if kept > MOST_KEPT:
                raise LogError(f"{path} is damaged before byte {position}")
            if position + kept > end:
                self.cut = True
                return
            yield Event(
                0,
                (when - start) / 1e9,
                names[device] if device < len(names) else str(device),
                meaning[0],
                bar,
                meaning[1],
                obj,
                address,
                length,
                data[position : position + kept],
                work,
            )
            position += kept
        self.cut = position < end

    def _segments(self, seconds: float | None) -> list[Path]:
        """The segments that may hold events from that time on, oldest first."""
        paths = sorted(self.folder.glob(SEGMENT_GLOB))
        if seconds is None:
            return paths
        limit = int(self.meta["started_monotonic_ns"]) + int(seconds * 1e9)
        # A segment is of no interest when the next one, too, begins before the limit.
        first = 0
        for index, path in enumerate(paths):
            begin = _begin(path)
            if begin is not None and begin < limit:
                first = index
        return paths[first:]


MOST_KEPT = 1 << 26
"""Bytes of one event, far beyond what a device can be told to capture."""

_KINDS = {int(kind): kind for kind in Kind}
_WHATS = {int(what): what for what in What}


def _begin(path: Path) -> int | None:
    """Time of a segment's first event in monotonic ns; None while it has none."""
    try:
        with path.open("rb") as segment:
            head = segment.read(RECORD.size)
    except FileNotFoundError:
        return None
    return int(RECORD.unpack(head)[0]) if len(head) == RECORD.size else None


def _locate(folder: Path) -> Path:
    for candidate in (folder, folder / "bus"):
        if (candidate / META_NAME).is_file():
            return candidate
    raise LogError(f"{folder} holds no bus log ({META_NAME} is missing)")
