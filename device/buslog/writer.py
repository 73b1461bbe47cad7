"""The bus log's writer: events are packed when they are noted, and written later in batches.

So neither device nor message waits for the disk. `bluebridge.device.buslog.segments` describes the
files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from bluebridge import compiled
from bluebridge.device.buslog.packing import CAPTURE, Records
from bluebridge.device.buslog.record import host_of
from bluebridge.device.buslog.segments import (
    SEGMENT_BYTES,
    TOTAL_BYTES,
    Background,
    Batch,
    Segments,
)
from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.events import Fact, Value
from bluebridge.device.pieces import Run
from bluebridge.device.throttle import Throttle
from bluebridge.hot_modules import DEVICE

log: Final = logging.getLogger(__name__)

BATCH_BYTES: Final = 1 << 16
"""Collected bytes after which they are written; few enough for the processor's cache."""

Data = bytes | bytearray | memoryview
_OTHER: Final = int(What.OTHER)


class EventLog:
    """A log of events; without `segments` it discards them.

    `capture` is the number of data bytes kept, `active` whether events are kept, `stopped` whether
    they are dropped from now on. `work` names the work request that the next events belong to
    (`bluebridge.device.buslog.record`).
    """

    def __init__(self, segments: Segments | None = None, capture: int = 0) -> None:
        self.capture = capture
        self.active = segments is not None
        self.stopped = segments is None
        self.work = 0
        self._segments = segments
        self._behind: Background | None = None
        self._records = _new_records()
        self._when_noted: Callable[[], None] | None = None
        self._lost = 0  # events, without notes of lost events
        self._loss_notes = 0  # among the collected events
        self._losses = Throttle()

    def device(self, name: str, card: str = "") -> int:
        """Return the number of the device called `name`; a new one is added to the meta file.

        `card` is the name of the card that an adapter is.
        """
        return 0 if self._segments is None else self._segments.device(name, card)

    def functions_of(self, guest: str) -> list[str]:
        """Return the log's devices of a guest; the first is its HCA, named as the guest."""
        names = [] if self._segments is None else self._segments.names
        found = [name for name in names if host_of(name) == guest]
        return sorted(found, key=lambda name: name != guest)

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
        """Record an event; at most `capture` bytes of `data` are kept."""
        if self.stopped:
            return
        kept: Data = data
        if len(data) > self.capture:
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
        """Record an event and keep all of `data`, whatever the log's limit."""
        if self.stopped:
            return
        records = self._records
        records.event(device, kind, bar, what, obj, address, length, self.work, data)
        self._noted(records)

    def tell(self, device: int, fact: Fact, **values: Value) -> None:
        """Record what a device tells; a field of the fact that is not given is 0 or empty."""
        if not self.stopped:
            data = fact.pack(values)
            obj = int(values.get(fact.object, 0))
            self.keep(device, fact.kind, fact.value, 0, len(data), data, _OTHER, obj)

    def transfers(
        self,
        device: int,
        kind: int,
        runs: Sequence[Run],
        views: Sequence[memoryview],
        count: int,
        most: int,
        what: int,
        obj: int,
    ) -> None:
        """Record an event for each of the first `count` runs, at most `most` bytes of `views`."""
        if self.stopped:
            return
        records, kept = self._records, min(most, self.capture)
        records.transfers(device, kind, runs, views, count, kept, what, obj, self.work)
        self._noted(records, count)

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
        """Record a message that leaves a port (`bluebridge.device.buslog.wire`).

        `before` are the bytes between `HEAD` and the payload; `before` and `payload` are kept
        whole: the caller has cut its payload to what is kept.
        """
        if self.stopped:
            return
        records = self._records
        records.message(
            device, what, target_qpn, address, length, self.work, flags, op, syndrome, source_qpn,
            psn, packets, key, immediate, before, payload,
        )  # fmt: skip
        self._noted(records)

    def when_noted(self, action: Callable[[], None]) -> None:
        """Call `action` at the first event after each `hand_over` or `flush`."""
        self._when_noted = action

    def _noted(self, records: Records, events: int = 1) -> None:
        if records.count == events and self._when_noted is not None:
            self._when_noted()
        if records.size() >= BATCH_BYTES:
            self.hand_over()

    def write_behind(self) -> None:
        """Let a thread write from now on, so that a slow disk delays nobody.

        This must be called inside the sandbox, since a thread inherits the sandbox of its maker.
        """
        if self._behind is None and self._segments is not None:
            self.flush()
            self._behind = Background(self._segments.write)

    def hand_over(self) -> None:
        """Write all collected events, or hand them to the thread if there is one.

        They are lost when the thread is too far behind; the log and the server's log then say so.
        """
        count, first, segments = self._records.count, self._records.first, self._segments
        if not count or segments is None:
            return
        batch = Batch(self._records.take(), count, first)
        if self._behind is None:
            segments.write(batch)
        elif self._behind.put(batch):
            self._loss_notes = 0
        else:
            self._lost += count - self._loss_notes
            self._loss_notes = 1
            if self._losses.admits():
                log.warning(
                    "bus log: the disk is too slow, %d events are missing so far", self._lost
                )
            self.tell(0, Fact.EVENTS_LOST, count=self._lost)

    def flush(self) -> None:
        """Write all collected events."""
        self.hand_over()
        if self._behind is not None:
            self._behind.wait()

    def missing(self, seconds: float) -> str:
        """Return why what was noted up to now is not all in the log; empty if it is.

        Waits up to `seconds` for the thread that writes: what is not written by then may yet be.
        """
        if self._segments is None:
            return "there is none"
        lost = self._lost
        if not self.stopped:
            self.hand_over()
            if self._behind is not None:
                self._behind.wait(seconds)
        return "the disk is too slow" if self._lost != lost else self._segments.ended

    def stop(self, why: str) -> bool:
        """End the log with a note of the reason; return whether it had not ended yet.

        Later events are dropped. Raises OSError when the meta file cannot be written.
        """
        segments = self._segments
        if self.stopped or segments is None:
            return False
        self.work = 0
        self.tell(0, Fact.LOG_STOPPED, reason=why)
        self.flush()
        self.stopped = True
        segments.stop(why)
        return True

    def close(self) -> None:
        """Write all collected events and close the files."""
        self.flush()
        if self._behind is not None:
            self._behind.close()
            self._behind = None
        if self._segments is not None:
            self._segments.close()


class FileLog(EventLog):
    """A log in `folder`, which it makes; raises OSError when that is impossible.

    An older log in the folder is replaced; other files with names of a log's files raise
    FileExistsError.

    `total` bounds the bytes on disk: the oldest segments are deleted. A full disk ends the log with
    one warning and does not affect the device.
    """

    def __init__(
        self,
        folder: Path,
        *,
        capture: int = CAPTURE,
        total: int = TOTAL_BYTES,
        segment: int = SEGMENT_BYTES,
    ) -> None:
        super().__init__(Segments(folder, capture, total, segment), capture)


def _new_records() -> Records:
    """Return the kind of `Records` that is fastest in this process."""
    if compiled.kind_of(DEVICE) == "pure":
        return Records()
    try:
        from bluebridge.device.buslog.native_packing import NativeRecords
    except ImportError:  # a machine without librt, which mypy installs
        return Records()
    return NativeRecords()
