"""The bus log's writer: one binary record per event, in segments of bounded total size.

A folder holds `meta.json` (version, start of both clocks, device names), `events-NNNNNN.bin`
segments, and an index of each with the offsets of some events. A record is `RECORD`
(device/buslog/record.py) followed by the captured bytes. Events are collected in memory as tuples,
and packed and written in batches, so that neither device nor message waits for disk or packing.
"""

from __future__ import annotations

import json
import logging
import os
import time
from pathlib import Path
from typing import BinaryIO, Protocol

from bluebridge.device.buslog.packing import CAPTURE, PAYLOAD, WHEN, LogEntry, packed
from bluebridge.device.buslog.record import (
    INDEX,
    INDEX_EVERY,
    INDEX_SUFFIX,
    META_NAME,
    SEGMENT_GLOB,
    TEXT_KINDS,
    segment_name,
)
from bluebridge.device.layout.buslog import VERSION, What

log = logging.getLogger(__name__)

BATCH = 512
"""Number of collected events after which they are written. Small, so that their memory is reused
while it is in the processor's cache, and freed before Python's garbage collector runs."""
SEGMENT_BYTES = 16 << 20
TOTAL_BYTES = 256 << 20
BULK_BYTES = 4 << 20
"""Bytes of collected payload after which events are written."""

_clock = time.monotonic_ns
Data = bytes | bytearray | memoryview


class Recorder(Protocol):
    """Takes the events of one device, as `EventLog.record` does."""

    def __call__(
        self,
        kind: int,
        address: int,
        length: int,
        data: Data,
        what: int = What.OTHER,
        obj: int = 0,
        bar: int = 0,
    ) -> None:
        """One event; `data` are its bytes, or their beginning."""


class EventLog:
    """The log that discards events, and the interface of all logs.

    `capture` is the number of data bytes kept, `active` whether events are kept. `work` names the
    work request that the next events belong to (`bluebridge.device.buslog.record`).
    """

    capture = 0
    active = False
    work = 0

    def device(self, name: str) -> int:
        """Number of the device called `name` in records."""
        return 0

    def record(
        self,
        device: int,
        kind: int,
        bar: int,
        address: int,
        length: int,
        data: Data,
        what: int = What.OTHER,
        obj: int = 0,
    ) -> None:
        """One event; `data` are its bytes, or their beginning."""

    def recorder(self, device: int) -> Recorder:
        """`record` for one device, faster: it never writes.

        Collected events are written by `wire`, `record` and calls of `flush`.
        """
        return _discard

    def wire(self, entry: LogEntry) -> None:
        """A message that leaves a port: a `LogEntry` of `bluebridge.device.buslog.packing`."""

    def flush(self) -> None:
        """Write all collected events."""

    def close(self) -> None:
        """Flush and end."""


class FileLog(EventLog):
    """Writes to `folder`, which is made; raises OSError when that is impossible.

    A log in the folder is replaced; other files of its names raise FileExistsError.

    `total` bounds the bytes on disk: the oldest segments are deleted. A full disk ends the log with
    one warning and does not affect the device.
    """

    active = True

    def __init__(
        self,
        folder: Path,
        *,
        capture: int = CAPTURE,
        total: int = TOTAL_BYTES,
        segment: int = SEGMENT_BYTES,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        _drop_old(folder)
        self._folder = folder
        self.capture = capture
        self._segment_bytes = segment
        self._keep = max(2, total // segment)
        self._names: list[str] = []
        self._started = (time.time_ns(), _clock())
        self._batch: list[LogEntry] = []
        self._append = self._batch.append
        self._recorders: dict[int, Recorder] = {}
        self._bulk = 0
        self._number = 0
        self._written = 0
        self._lost_segments = 0
        self._count = 0  # events written
        self._indexed: int | None = None  # number of the last event in the index of this segment
        # The meta file first: without it the folder of a server that is killed now is not
        # recognised as a log by the next one.
        self._write_meta()
        self._file: BinaryIO | None = None
        self._open()

    def device(self, name: str) -> int:
        """Number of the device called `name`; adds it to the meta file."""
        if name not in self._names:
            self._names.append(name)
            self._write_meta()
        return self._names.index(name)

    def record(
        self,
        device: int,
        kind: int,
        bar: int,
        address: int,
        length: int,
        data: Data,
        what: int = What.OTHER,
        obj: int = 0,
    ) -> None:
        """One event; at most `capture` bytes of `data` are kept (all of a text)."""
        recorder = self._recorders.get(device) or self.recorder(device)
        recorder(kind, address, length, data, what, obj, bar)
        if len(self._batch) >= BATCH:
            self.flush()

    def recorder(self, device: int) -> Recorder:
        """As `record`, a closure for speed: it is on the path of messages."""
        append, capture, clock = self._append, self.capture, _clock

        def record(
            kind: int,
            address: int,
            length: int,
            data: Data,
            what: int = What.OTHER,
            obj: int = 0,
            bar: int = 0,
        ) -> None:
            kept = len(data)
            if kept > capture and kind not in TEXT_KINDS:
                data, kept = data[:capture], capture
            if type(data) is not bytes:
                data = data.tobytes() if type(data) is memoryview else bytes(data)
            append((
                clock(), device, kind, bar, what, obj, address, length, kept, self.work, data
            ))  # fmt: skip

        self._recorders[device] = record
        return record

    def wire(self, entry: LogEntry) -> None:
        """A message that leaves a port, its payload already cut to `capture`."""
        self._append(entry)
        self._bulk += len(entry[PAYLOAD])
        if len(self._batch) >= BATCH or self._bulk >= BULK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write all collected events; begins a new segment when the present one is full."""
        count = len(self._batch)
        if not count:
            return
        first, data = self._batch[0][WHEN], packed(self._batch)
        self._batch.clear()
        self._bulk = 0
        if self._file is None:
            return
        try:
            self._index_event(first)
            _write_all(self._file, data)
            self._written += len(data)
            self._count += count
            if self._written >= self._segment_bytes:
                self._next_segment()
        except OSError as error:
            log.warning("the bus log ends here: %s; free some space and start again", error)
            self._file = None

    def _index_event(self, when: int) -> None:
        """Add the offset of the next event, of monotonic time `when`, to the index if it is due."""
        if self._indexed is None or self._count - self._indexed >= INDEX_EVERY:
            self._indexed = self._count
            entry = INDEX.pack(self._count, when, self._written)
            _write_all(self._index, entry)

    def close(self) -> None:
        """Flush and close."""
        self.flush()
        if self._file is not None:
            self._file.close()
            self._index.close()
            self._file = None

    def _open(self) -> None:
        path = self._folder / segment_name(self._number)
        self._index: BinaryIO = open(path.with_suffix(INDEX_SUFFIX), "wb", buffering=0)  # noqa: SIM115
        self._file = open(path, "wb", buffering=0)  # noqa: SIM115
        self._indexed = None

    def _next_segment(self) -> None:
        if self._file is not None:
            self._file.close()
            self._index.close()
        self._number += 1
        self._written = 0
        self._open()
        oldest = self._number - self._keep
        if oldest >= 0:
            path = self._folder / segment_name(oldest)
            path.unlink(missing_ok=True)
            path.with_suffix(INDEX_SUFFIX).unlink(missing_ok=True)
            self._lost_segments = oldest + 1
            self._write_meta()

    def _write_meta(self) -> None:
        meta = {
            "version": VERSION,
            "started_ns": self._started[0],
            "started_monotonic_ns": self._started[1],
            "devices": self._names,
            "capture": self.capture,
            "segments_dropped": self._lost_segments,
        }
        new = self._folder / (META_NAME + ".new")
        new.write_text(json.dumps(meta))
        os.replace(new, self._folder / META_NAME)


def _discard(
    kind: int,
    address: int,
    length: int,
    data: Data,
    what: int = What.OTHER,
    obj: int = 0,
    bar: int = 0,
) -> None:
    """The recorder of the log that discards events."""


def _drop_old(folder: Path) -> None:
    """Remove the segments of the log in `folder`; raises OSError if they are not a log's."""
    meta = folder / META_NAME
    segments = sorted(folder.glob(SEGMENT_GLOB))
    if not _is_meta(meta):
        foreign = [path for path in (meta, *segments) if path.exists()]
        if foreign:
            raise FileExistsError(
                f"{foreign[0]} is not of a bus log: remove it or name another folder"
            )
    for old in segments:
        old.unlink()
        old.with_suffix(INDEX_SUFFIX).unlink(missing_ok=True)


def _is_meta(path: Path) -> bool:
    """Whether `path` was written by a `FileLog`."""
    try:
        meta = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return False
    return isinstance(meta, dict) and {"version", "started_monotonic_ns", "devices"} <= set(meta)


def _write_all(file: BinaryIO, data: bytes) -> None:
    """Write all of `data` to an unbuffered file, which may take only a part at a time."""
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]
