"""The bus log on a slow disk: nobody waits for it, and what is missing is counted."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.buslog.segments import Batch, Segments
from bluebridge.device.buslog.writer import FileLog
from bluebridge.device.layout.buslog import Kind

EVENTS = 2000
LONG = 1 << 16


class Disk:
    """Holds every write while it is not `free`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free = threading.Event()
        write = Segments.write

        def slow(segments: Segments, batch: Batch) -> None:
            assert self.free.wait(30)
            write(segments, batch)

        monkeypatch.setattr(Segments, "write", slow)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk(monkeypatch)
    yield disk
    disk.free.set()


@pytest.fixture
def log(tmp_path: Path, disk: Disk) -> FileLog:
    log = FileLog(tmp_path)
    log.device("a")
    log.write_behind()
    return log


def test_nothing_is_missing_and_in_order_at_the_end(
    tmp_path: Path, disk: Disk, log: FileLog
) -> None:
    for number in range(EVENTS):
        log.record(0, Kind.DMA_READ, 0, number, 64, bytes(64))
        if not number % 100:
            log.hand_over()
    disk.free.set()
    log.close()
    assert [event.address for event in LogReader(tmp_path)] == list(range(EVENTS))


def test_events_beyond_the_bound_are_counted(
    tmp_path: Path, disk: Disk, log: FileLog, caplog: pytest.LogCaptureFixture
) -> None:
    """Those that were kept come first, then the note with the number of those that were not."""
    for number in range(EVENTS):
        log.record(0, Kind.NOTE, 0, number, LONG, bytes(LONG))
    disk.free.set()
    log.flush()
    log.record(0, Kind.DMA_READ, 0, EVENTS, 64, bytes(64))
    log.close()
    *events, note, last = LogReader(tmp_path)
    kept = [event.address for event in events]
    assert kept == list(range(len(kept)))
    missing = EVENTS - len(kept)
    assert 0 < missing < EVENTS
    assert note.text == f"the disk is too slow: {missing} events are missing so far"
    assert last.address == EVENTS
    assert "events are missing so far" in caplog.text
