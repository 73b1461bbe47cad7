"""Reads the events that were added to a bus log since the last call."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from bluebridge.device.buslog.positions import read_index
from bluebridge.device.buslog.reader import Event, LogReader
from bluebridge.device.buslog.record import RECORD, SEGMENT_GLOB


class Follower:
    """Reads a log while it is written; each call of `new` continues where the last one ended."""

    def __init__(self, reader: LogReader, *, at_end: bool = False) -> None:
        """Start at the oldest event, or with `at_end` at the next one to be written."""
        self._reader = reader
        self._segment: Path | None = None
        self._position = 0
        self.number = 0
        """The number that the next event will have."""
        self.skipped = 0
        """Number of events so far that the log's limit deleted before they were read."""
        if at_end:
            self.skip()

    def skip(self) -> None:
        """Continue at the end of the log, whose number follows from the index's last entry."""
        paths = sorted(self._reader.folder.glob(SEGMENT_GLOB))
        index = read_index(paths[-1]) if paths else []
        if index and (paths[-1] != self._segment or index[-1][2] > self._position):
            self._segment = paths[-1]
            self.number, _, self._position = index[-1]
        for _ in self.heads():
            pass

    def new(self) -> Iterator[Event]:
        """Yield the events recorded since the last call, oldest first.

        Their numbers count from the first event of the log. Raises `LogError` on damaged segments.
        """
        for path, data in self._added():
            for event in self._reader.records(path, data):
                self._position += RECORD.size + len(event.data)
                event.number = self.number
                self.number += 1
                yield event

    def heads(self) -> Iterator[tuple[int, int, int]]:
        """Yield device number, kind and length of new events, faster than `new`: without data."""
        unpack, size = RECORD.unpack_from, RECORD.size
        for _, data in self._added():
            position = 0
            while position + size <= len(data):
                _, device, kind, _, _, _, _, length, kept, _ = unpack(data, position)
                position += size + kept
                if position > len(data):
                    break
                self._position += size + kept
                self.number += 1
                yield device, kind, length

    def _added(self) -> Iterator[tuple[Path, bytes]]:
        """Yield what was added to each segment; nothing of one that the writer has deleted."""
        for path in sorted(self._reader.folder.glob(SEGMENT_GLOB)):
            if self._segment is not None and path.name < self._segment.name:
                continue
            self._enter(path)
            data = b""
            with contextlib.suppress(FileNotFoundError), path.open("rb") as segment:
                segment.seek(self._position)
                data = segment.read()
            yield path, data

    def _enter(self, path: Path) -> None:
        """Begin the segment that the writer has begun; segments in between may be deleted."""
        if path == self._segment:
            return
        begun = self._segment is not None
        self._segment, self._position = path, 0
        index = read_index(path)
        if index:
            if begun:
                self.skipped += max(0, index[0][0] - self.number)
            self.number = index[0][0]
