"""The bus log's writer: one binary record per event, in segments of bounded total size.

A folder holds `meta.json` (version, start of both clocks, device names), `events-NNNNNN.bin`
segments, and an index of each with the offsets of some events. A record is `RECORD`
(device/buslog/record.py) followed by the captured bytes. Records are packed as events are noted,
and written together, so that neither device nor message waits for the disk.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final

from bluebridge import compiled
from bluebridge.device.buslog.packing import CAPTURE, Records
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
from bluebridge.hot_modules import DEVICE

log: Final = logging.getLogger(__name__)

BATCH_BYTES: Final = 1 << 16
"""Collected bytes after which they are written; few, to stay in the processor's cache."""
SEGMENT_BYTES: Final = 16 << 20
TOTAL_BYTES: Final = 256 << 20
LEAST_SEGMENTS: Final = 4
"""Segments that a log may have at least, so that at most a quarter of it goes at once."""

Data = bytes | bytearray | memoryview
_OTHER: Final = int(What.OTHER)


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
        what: int = _OTHER,
        obj: int = 0,
    ) -> None:
        """One event; `data` are its bytes, or their beginning."""

    def keep(
        self,
        device: int,
        kind: int,
        bar: int,
        address: int,
        length: int,
        data: bytes,
        what: int = _OTHER,
        obj: int = 0,
    ) -> None:
        """One event of which all of `data` is kept."""

    def message(
        self,
        device: int,
        what: int,
        target_qpn: int,
        address: int,
        length: int,
        flags: int,
        op: int,
        syndrome: int,
        source_qpn: int,
        psn: int,
        packets: int,
        key: int,
        immediate: int,
        before: bytes,
        payload: bytes,
    ) -> None:
        """A message that leaves a port (`bluebridge.device.buslog.wire`).

        `before` are the bytes after `HEAD` and before the payload; all of both is kept.
        """

    def when_noted(self, action: Callable[[], None]) -> None:
        """Call `action` at the first event after each `flush`."""

    def flush(self) -> None:
        """Write all collected events."""

    def close(self) -> None:
        """Flush and end."""


class FileLog(EventLog):
    """Writes to `folder`, which is made; raises OSError when that is impossible.

    A log in the folder is replaced; other files of its names raise FileExistsError.

    `total` bounds the bytes on disk: the oldest segments are deleted, and counted; a warning tells
    of the first, another one of all when the log ends. A full disk ends the log with one warning
    and does not affect the device.
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
        self._segment_bytes = min(segment, max(1, total // LEAST_SEGMENTS))
        self._keep = max(2, total // self._segment_bytes)
        self._total = total
        self._names: list[str] = []
        self._started = (time.time_ns(), time.monotonic_ns())
        self._records = _new_records()
        self._when_noted: Callable[[], None] | None = None
        self._number = 0
        self._written = 0
        self._lost_segments = 0
        self._sizes: list[
            tuple[int, int]
        ] = []  # events and bytes of each full segment that is kept
        self._lost_events = 0
        self._lost_bytes = 0
        self._count = 0  # events written
        self._began = 0  # and those in front of the present segment
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
        what: int = _OTHER,
        obj: int = 0,
    ) -> None:
        """One event; at most `capture` bytes of `data` are kept (all of a text)."""
        kept: Data = data
        if len(data) > self.capture and kind not in TEXT_KINDS:
            kept = data[: self.capture]
        if not isinstance(kept, bytes):
            kept = bytes(kept)
        self.keep(device, kind, bar, address, length, kept, what, obj)

    def keep(
        self,
        device: int,
        kind: int,
        bar: int,
        address: int,
        length: int,
        data: bytes,
        what: int = _OTHER,
        obj: int = 0,
    ) -> None:
        """One event of which all of `data` is kept."""
        records = self._records
        records.event(device, kind, bar, what, obj, address, length, self.work, data)
        self._noted(records)

    def message(
        self,
        device: int,
        what: int,
        target_qpn: int,
        address: int,
        length: int,
        flags: int,
        op: int,
        syndrome: int,
        source_qpn: int,
        psn: int,
        packets: int,
        key: int,
        immediate: int,
        before: bytes,
        payload: bytes,
    ) -> None:
        """A message that leaves a port, its payload already cut to what is to be kept."""
        records = self._records
        records.message(
            device, what, target_qpn, address, length, self.work, flags, op, syndrome, source_qpn,
            psn, packets, key, immediate, before, payload,
        )  # fmt: skip
        self._noted(records)

    def when_noted(self, action: Callable[[], None]) -> None:
        """Call `action` at the first event after each `flush`."""
        self._when_noted = action

    def _noted(self, records: Records) -> None:
        if records.count == 1 and self._when_noted is not None:
            self._when_noted()
        if records.size() >= BATCH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write all collected events; begins a new segment when the present one is full."""
        count, first = self._records.count, self._records.first
        if not count:
            return
        data = self._records.take()
        file = self._file
        if file is None:
            return
        try:
            self._index_event(first)
            _write_all(file, data)
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
        """Flush and close; a warning counts what was deleted."""
        self.flush()
        if self._lost_events and self._file is not None:
            log.warning(
                "the bus log kept its newest %d events; %d before them (%d MiB) were deleted",
                self._count - self._lost_events,
                self._lost_events,
                self._lost_bytes >> 20,
            )
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
        self._sizes.append((self._count - self._began, self._written))
        self._began = self._count
        self._written = 0
        self._open()
        oldest = self._number - self._keep
        if oldest >= 0:
            self._delete(oldest)

    def _delete(self, oldest: int) -> None:
        """Delete the oldest segment, which has this number."""
        if not self._lost_segments:
            log.warning(
                "the bus log has %d MiB, its limit (--log-limit): from now on its oldest events "
                "are deleted",
                self._total >> 20,
            )
        path = self._folder / segment_name(oldest)
        path.unlink(missing_ok=True)
        path.with_suffix(INDEX_SUFFIX).unlink(missing_ok=True)
        events, size = self._sizes.pop(0)
        self._lost_segments = oldest + 1
        self._lost_events += events
        self._lost_bytes += size
        self._write_meta()

    def _write_meta(self) -> None:
        meta = {
            "version": VERSION,
            "started_ns": self._started[0],
            "started_monotonic_ns": self._started[1],
            "devices": self._names,
            "capture": self.capture,
            "segments_dropped": self._lost_segments,
            "events_dropped": self._lost_events,
            "bytes_dropped": self._lost_bytes,
            "code": compiled.kind_of(DEVICE),
        }
        new = self._folder / (META_NAME + ".new")
        new.write_text(json.dumps(meta))
        os.replace(new, self._folder / META_NAME)


def _new_records() -> Records:
    """Records that are packed the quickest way in this process."""
    if compiled.kind_of(DEVICE) == "pure":
        return Records()
    try:
        from bluebridge.device.buslog.native_packing import NativeRecords
    except ImportError:  # a machine without librt, which mypy installs
        return Records()
    return NativeRecords()


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
        written = file.write(left)
        left = left[written:]
