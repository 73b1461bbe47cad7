"""Logs read from where it is needed, in parts, whatever bytes were changed on the disk."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from bluebridge.device.buslog.follow import Follower
from bluebridge.device.buslog.reader import PART_BYTES, Event, Filter, LogError, LogReader
from bluebridge.device.buslog.record import (
    INDEX,
    INDEX_EVERY,
    INDEX_SUFFIX,
    RECORD,
    SEGMENT_GLOB,
    segment_name,
)
from bluebridge.device.buslog.writer import FileLog
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.net.roce import Op
from bluebridge.host_tools import cli
from bluebridge.host_tools.cli import main
from tests.models import bus_traffic, capture_traffic

LENGTH_AT, FACT_AT = 24, 10
"""Where a record has the length of its event, and the number of a fact."""


def _with_length(segment: Path, length: int, kind: Kind) -> None:
    """Change the length of the last event of a kind."""
    data, position, place = bytearray(segment.read_bytes()), 0, 0
    while position < len(data):
        head = RECORD.unpack_from(data, position)
        if head[2] == kind:
            place = position
        position += RECORD.size + head[8]
    assert place
    data[place + LENGTH_AT : place + LENGTH_AT + 4] = length.to_bytes(4, "little")
    segment.write_bytes(data)


@pytest.mark.parametrize("options", ["--pcap", "--pcap --tlp", "--view wr", "--view table"])
@pytest.mark.parametrize("kind", [Kind.DMA_READ, Kind.WIRE], ids=lambda kind: kind.name)
def test_an_event_longer_than_any_transfer_is_damage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: Kind, options: str
) -> None:
    capture_traffic.write_log(tmp_path / "log", capture_traffic.everything())
    if kind is not Kind.WIRE:
        bus_traffic.write_log(tmp_path / "log")
    _with_length(tmp_path / "log" / segment_name(0), 0xFFFF_FFF0, kind)
    words = options.replace("--pcap", f"--pcap {tmp_path / 'file'}").split()
    assert main(["log", str(tmp_path / "log"), *words]) == 2
    assert "is damaged before byte" in capsys.readouterr().err
    assert not (tmp_path / "file").exists()


def test_a_message_longer_than_its_packets_is_damage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No zeros are made for a payload that the packets of the message cannot have."""
    route = capture_traffic.routes()["v1"]
    message = capture_traffic.request(route, Op.WRITE, 64)
    capture_traffic.write_log(tmp_path / "log", [message] * 2)
    _with_length(tmp_path / "log" / segment_name(0), 1 << 31, Kind.WIRE)
    assert main(["log", str(tmp_path / "log"), "--pcap", str(tmp_path / "file")]) == 2
    assert "is damaged: 2147483648 bytes in 1 packets" in capsys.readouterr().err


def _long_log(folder: Path) -> list[tuple[int, int]]:
    """A log of three segments with several entries of their indices each; number and address."""
    log = FileLog(folder, segment=200_000)
    a = log.device("a")
    for number in range(5 * INDEX_EVERY):
        log.record(a, Kind.DMA_WRITE, 0, number, 40, bytes(40), What.PAYLOAD, 1)
        if not number % 100:
            log.flush()
    log.close()
    return [(number, number) for number in range(5 * INDEX_EVERY)]


def _from_event(folder: Path, first: int) -> list[tuple[int, int]]:
    events = LogReader(folder).events(Filter(first=first))
    return [(event.number, event.address) for event in events]


def _huge_offset(index: bytearray) -> None:
    at = len(index) - INDEX.size
    number, when, _ = INDEX.unpack_from(index, at)
    INDEX.pack_into(index, at, number, when, (1 << 64) - 1)


def _huge_number(index: bytearray) -> None:
    _, when, offset = INDEX.unpack_from(index, 0)
    INDEX.pack_into(index, 0, (1 << 64) - 1, when, offset)


def _falling(index: bytearray) -> None:
    index[:] = index[-INDEX.size :] + index[: -INDEX.size]


def _cut(index: bytearray) -> None:
    del index[INDEX.size // 2 :]


@pytest.mark.parametrize("change", [_huge_offset, _huge_number, _falling, _cut])
def test_a_log_is_read_without_a_damaged_index(
    tmp_path: Path, change: Callable[[bytearray], None]
) -> None:
    folder = tmp_path / "log"
    every = _long_log(folder)
    for path in folder.glob(f"*{INDEX_SUFFIX}"):
        index = bytearray(path.read_bytes())
        change(index)
        path.write_bytes(index)
    first = len(every) - 700
    assert _from_event(folder, first) == every[first:]
    follower = Follower(LogReader(folder), at_end=True)
    assert (follower.number, list(follower.new())) == (len(every), [])
    saved = tmp_path / "page.html"
    assert main(["web", str(folder), "--event", str(first), "--save", str(saved)]) == 0
    assert saved.stat().st_size


@pytest.mark.parametrize("seed", range(10))
def test_an_index_with_any_bytes_changed_ends_no_command_with_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], seed: int
) -> None:
    folder, chosen = tmp_path / "log", random.Random(seed)
    every = _long_log(folder)
    for path in folder.glob(f"*{INDEX_SUFFIX}"):
        index = bytearray(path.read_bytes())
        for _ in range(chosen.randrange(1, 6)):
            index[chosen.randrange(len(index))] = chosen.randrange(256)
        path.write_bytes(index)
    first = str(chosen.randrange(len(every)))
    for words in (["log", "--limit", "3"], ["web", "--save", str(tmp_path / "page"), "--force"]):
        status = main([words[0], str(folder), "--event", first, *words[1:]])
        assert status == 0 or "is damaged" in capsys.readouterr().err


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


@pytest.mark.parametrize("number", [0, 255, Fact.RESET.value])
def test_a_fact_that_this_reader_does_not_know_is_refused(tmp_path: Path, number: int) -> None:
    """Also one of another kind of record: its fields would be read as others."""
    log = FileLog(tmp_path)
    log.tell(log.device("a"), Fact.MARK, text="here")
    log.close()
    segment = tmp_path / segment_name(0)
    data = bytearray(segment.read_bytes())
    data[FACT_AT] = number
    segment.write_bytes(data)
    with pytest.raises(LogError, match="damaged before byte"):
        list(LogReader(tmp_path))
