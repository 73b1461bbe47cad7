"""A log is read from where it is needed to where it is needed, in parts."""

from __future__ import annotations

import random
from itertools import islice
from pathlib import Path

import pytest

from bluebridge.device.buslog.reader import PART_BYTES, Event, Filter, LogReader
from bluebridge.device.buslog.record import INDEX_EVERY, SEGMENT_GLOB
from bluebridge.device.buslog.writer import FileLog
from bluebridge.device.layout.buslog import Kind
from bluebridge.host_tools import cli

COUNT = 20_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of `COUNT` events in several segments, every hundredth an interrupt."""
    folder = tmp_path_factory.mktemp("log")
    log = FileLog(folder, segment=1 << 17)
    for number in range(COUNT):
        kind = Kind.DMA_READ if number % 100 else Kind.IRQ
        log.record(0, kind, 0, number, 8, bytes(8))
    log.close()
    assert len(list(folder.glob(SEGMENT_GLOB))) > 5
    return folder


@pytest.fixture(scope="module")
def events(folder: Path) -> list[Event]:
    """All of its events."""
    return list(LogReader(folder))


def _spoilt(folder: Path, copy: Path, kept: range) -> Path:
    """A copy of the log in which only the segments `kept`, counted from 0, can be read."""
    for path in folder.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    for number, path in enumerate(sorted(copy.glob(SEGMENT_GLOB))):
        if number not in kept:
            path.write_bytes(b"\xee" * 1000)
    return copy


def test_any_event_is_found_by_its_number(folder: Path, events: list[Event]) -> None:
    numbers = [0, 1, INDEX_EVERY - 1, INDEX_EVERY, INDEX_EVERY + 1, COUNT - 1, COUNT]
    for first in (*numbers, *random.Random(1).sample(range(COUNT), 40)):
        found = LogReader(folder).events(Filter(first=first))
        assert list(islice(found, 2)) == events[first : first + 2]


def test_any_time_is_found(folder: Path, events: list[Event]) -> None:
    for event in random.Random(2).sample(events, 40):
        wanted = Filter(since=event.time, until=event.time + 1e-3)
        found = list(LogReader(folder).events(wanted))
        first, last = found[0].number, found[-1].number
        assert found == events[first : last + 1]
        assert first - event.number in (0, 1)  # times are rounded to nanoseconds
        assert last == COUNT - 1 or events[last + 2].time > event.time + 1e-3


def test_a_late_event_needs_no_earlier_segment(
    folder: Path, tmp_path: Path, events: list[Event]
) -> None:
    copy = _spoilt(folder, tmp_path, range(4, 100))
    for wanted in (Filter(first=COUNT - 5), Filter(first=COUNT - 5, since=events[3].time)):
        assert list(LogReader(copy).events(wanted)) == events[-5:]


def test_an_early_end_needs_no_later_segment(
    folder: Path, tmp_path: Path, events: list[Event]
) -> None:
    copy = _spoilt(folder, tmp_path, range(1))
    found = list(LogReader(copy).events(Filter(until=events[100].time)))
    assert 99 <= len(found) <= 101
    assert found == events[: len(found)]


def test_rare_events_have_the_numbers_that_they_have_among_all(
    folder: Path, events: list[Event]
) -> None:
    wanted = Filter(kinds=frozenset((Kind.IRQ,)))
    assert list(LogReader(folder).events(wanted)) == events[::100]


def test_records_across_the_parts_of_a_segment(tmp_path: Path) -> None:
    sizes = [PART_BYTES - 39, 100, 3 * PART_BYTES, 0, 5, PART_BYTES]
    log = FileLog(tmp_path, capture=4 * PART_BYTES)
    for size in sizes:
        log.record(0, Kind.DMA_READ, 0, 0, size, bytes(size))
    log.close()
    reader = LogReader(tmp_path)
    assert [len(event.data) for event in reader] == sizes
    assert not reader.cut


def test_a_screen_of_a_log_is_not_cut_short(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Although the first part of its segment ends within a record."""
    log = FileLog(tmp_path)
    for _ in range(3 * PART_BYTES // 100):
        log.record(0, Kind.DMA_READ, 0, 0, 59, bytes(59))
    log.close()
    assert cli.main(["log", str(tmp_path), "--limit", str(2 * PART_BYTES // 100)]) == 0
    assert capsys.readouterr().err == ""


def test_a_span_has_the_events_at_its_ends() -> None:
    """Seconds are rounded to nanoseconds: cut, many events would lie behind their time."""
    for time in range(1, 10**9, 999_983):
        span = Filter(since=time / 1e9, until=time / 1e9).raw((), 0)
        assert (span.begin, span.end) == (time, time)
