"""The bus log on disk: segments of bounded total size.

A folder holds `meta.json` (version, start of both clocks, names of devices, the card of each
adapter), `events-NNNNNN.bin` segments, and an index of each with the offsets of some events. A
record is `RECORD` (device/buslog/record.py) followed by the captured bytes.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import BinaryIO, Final, NamedTuple

from bluebridge import compiled
from bluebridge.device.buslog.record import (
    INDEX,
    INDEX_EVERY,
    INDEX_SUFFIX,
    META_NAME,
    SEGMENT_GLOB,
    segment_name,
)
from bluebridge.device.layout.buslog import VERSION
from bluebridge.hot_modules import DEVICE

log: Final = logging.getLogger(__name__)

SEGMENT_BYTES: Final = 16 << 20
TOTAL_BYTES: Final = 256 << 20
LEAST_SEGMENTS: Final = 4
"""Least number of segments of a full log, so that at most a quarter is deleted at once."""

MOST_BYTES: Final = 64 << 20
"""Bytes that may be handed over and not yet written; batches beyond it are lost."""


class Batch(NamedTuple):
    """Records that are written together: their number, the monotonic time of the first in ns."""

    data: bytes
    events: int
    first: int


class Segments:
    """Writes batches to `folder`, which it makes; raises OSError when that is impossible.

    An older log in the folder is replaced; other files with names of a log's files raise
    FileExistsError.

    `total` bounds the bytes on disk: the oldest segments, of `segment` bytes each, are deleted. A
    full disk ends the log with one warning and does not affect the device.
    """

    def __init__(self, folder: Path, capture: int, total: int, segment: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        _drop_old(folder)
        self._folder = folder
        self._capture = capture
        self._segment_bytes = min(segment, max(1, total // LEAST_SEGMENTS))
        self._keep = max(2, total // self._segment_bytes)
        self._total = total
        self._names: list[str] = []
        self._cards: dict[str, str] = {}
        self._started = (time.time_ns(), time.monotonic_ns())
        self._number = 0
        self._written = 0
        self._sizes: list[tuple[int, int]] = []
        """Number of events and bytes of each full segment that is kept."""
        self._lost_segments = 0
        self._lost_events = 0
        self._lost_bytes = 0
        self._stopped = ""
        self._count = 0  # events written
        self._began = 0  # and those in front of the present segment
        self._indexed: int | None = None  # number of the last event in the index of this segment
        # The meta file first: without it the folder of a server that is killed now is not
        # recognised as a log by the next one.
        self._write_meta()
        self._file: BinaryIO | None = None
        self._open()

    @property
    def names(self) -> list[str]:
        """The names of the devices; the index is a device's number."""
        return self._names

    @property
    def ended(self) -> str:
        """Why nothing is written any more; empty as long as it is."""
        return self._stopped

    def device(self, name: str, card: str = "") -> int:
        """Return the number of the device called `name`; a new one is added to the meta file.

        `card` is the name of the card that an adapter is, if the caller knows it.
        """
        if card and self._cards.get(name) != card:
            self._cards[name] = card
            if name in self._names:
                self._write_meta()
        if name not in self._names:
            self._names.append(name)
            self._write_meta()
        return self._names.index(name)

    def write(self, batch: Batch) -> None:
        """Write a batch; begins a new segment when the present one is full."""
        file = self._file
        if file is None:
            return
        try:
            if self._indexed is None or self._count - self._indexed >= INDEX_EVERY:
                self._indexed = self._count
                entry = INDEX.pack(self._count, batch.first, self._written)
                _write_all(self._index, entry)
            _write_all(file, batch.data)
            self._written += len(batch.data)
            self._count += batch.events
            if self._written >= self._segment_bytes:
                self._next_segment()
        except OSError as error:
            log.warning("the bus log ends here: %s; free some space and start again", error)
            self._end(file, error)

    def _end(self, file: BinaryIO, error: OSError) -> None:
        """End the log behind its last whole batch, with the reason in the meta file."""
        with contextlib.suppress(OSError, ValueError):  # where it is full already, it is closed
            file.truncate(self._written)
        with contextlib.suppress(OSError):
            self.stop(f"{error.strerror}; free some space")

    def stop(self, why: str) -> None:
        """End the log and write the reason `why` to the meta file; later events are dropped.

        Raises OSError when the meta file cannot be written.
        """
        if self._file is None:
            return
        self._stopped = why
        self.close()
        self._write_meta()

    def close(self) -> None:
        """Close the files; a warning tells how many events were deleted."""
        if self._file is not None:
            if self._lost_events:
                log.warning(
                    "the bus log kept its newest %d events; %d before them (%d MiB) were deleted",
                    self._count - self._lost_events,
                    self._lost_events,
                    self._lost_bytes >> 20,
                )
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
            "cards": self._cards,
            "capture": self._capture,
            "segments_dropped": self._lost_segments,
            "events_dropped": self._lost_events,
            "bytes_dropped": self._lost_bytes,
            "stopped": self._stopped,
            "code": compiled.kind_of(DEVICE),
        }
        path, text = self._folder / META_NAME, json.dumps(meta)
        new = path.with_name(META_NAME + ".new")
        try:
            new.write_text(text)
            os.replace(new, path)
        except OSError as error:
            new.unlink(missing_ok=True)
            if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not path.exists():
                raise
            # The blocks that the file has are written anew where a disk is full.
            with path.open("r+b", buffering=0) as file:
                _write_all(file, text.encode().ljust(path.stat().st_size))


def _drop_old(folder: Path) -> None:
    """Remove the segments of the log in `folder`; raises OSError for files of another origin."""
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
    """Return whether `Segments` wrote the file `path`."""
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


class Background:
    """Calls `write` with each batch, in order, in a thread of its own."""

    def __init__(self, write: Callable[[Batch], None]) -> None:
        self._write = write
        self._lock = threading.Lock()
        self._waiting = 0
        self._batches: SimpleQueue[Batch | threading.Event | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="bus log", daemon=True)
        self._thread.start()

    def put(self, batch: Batch) -> bool:
        """Hand a batch over; return whether there was room for it."""
        with self._lock:
            if self._waiting + len(batch.data) > MOST_BYTES:
                return False
            self._waiting += len(batch.data)
        self._batches.put(batch)
        return True

    def wait(self, seconds: float | None = None) -> None:
        """Return when all that was handed over is written, or after `seconds`."""
        written = threading.Event()
        self._batches.put(written)
        written.wait(seconds)

    def close(self) -> None:
        """Write all batches that were handed over, and end the thread."""
        self._batches.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (batch := self._batches.get()) is not None:
            if isinstance(batch, threading.Event):
                batch.set()
                continue
            try:
                self._write(batch)
            except Exception:
                log.exception("the bus log lost %d events", batch.events)
            with self._lock:
                self._waiting -= len(batch.data)
