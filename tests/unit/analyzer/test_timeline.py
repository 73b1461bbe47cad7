"""The timeline of `--perfetto`, read back by the rules of Perfetto's trace processor."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bluebridge.device.buslog.reader import Event, LogReader
from bluebridge.device.layout.buslog import Kind
from bluebridge.host_tools.analyzer.activity import ActivityAssembler
from bluebridge.host_tools.analyzer.timeline import picture, timeline
from bluebridge.host_tools.analyzer.timeline.overview import (
    BLOCK_EVENTS,
    MOST_BINS,
    Block,
    Rates,
    outstanding,
    stretches,
)
from bluebridge.host_tools.analyzer.timeline.trace_file import TraceFile
from bluebridge.host_tools.analyzer.timeline.tracks import MOST_LANES, Drawing, Lanes, Tracks
from bluebridge.host_tools.analyzer.views.traffic import Traffic
from tests.models.analysis_log import nine_posts
from tests.models.facts import with_fact
from tests.models.trace_reader import TraceReader
from tests.unit.analyzer.conftest import Run
from tests.unit.analyzer.test_analysis import EVENTS

SQL = Path(timeline.__file__).with_name("response_times.sql")
SVG = "{http://www.w3.org/2000/svg}"
REQUESTS = 9
ADDRESSES = (1 << 64) - 1


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return nine_posts(tmp_path / "log")


def _drawn(run: Run, log: Path, *words: object) -> TraceReader:
    path = log.parent / "t.pftrace"
    assert run(log, "--perfetto", path, "--force", *words)[0] == 0
    return TraceReader.of(path)


def test_every_event_is_shown(log: Path, run: Run) -> None:
    trace = _drawn(run, log)
    assert trace.events() == {event.number for event in LogReader(log)}


def test_a_track_for_each_function_and_kind(log: Path, run: Run) -> None:
    trace = _drawn(run, log)
    paths = {tuple(trace.path(one.track)) for one in trace.slices}
    assert paths == {
        ("machine a", "HCA a", "work requests of QP 0x48"),
        ("machine b", "HCA b", "for QP 0x48 of a"),
    }
    whole = [one for one in trace.slices if one.category == "work request" and not one.depth]
    assert len(whole) == 2 * REQUESTS
    assert {one.args.get("posted by") for one in whole} == {
        "doorbell", "BlueFlame", "fallback", None,
    }  # fmt: skip
    assert {one.args.get("status") for one in whole} == {"OK", None}


def test_arrows_lead_across_both_machines(log: Path, run: Run) -> None:
    trace = _drawn(run, log)
    ends = [
        (trace.path(one.track)[0], one.category, trace.path(other.track)[0], other.category)
        for one, other in trace.arrows()
    ]
    assert ends.count(("machine a", "request", "machine b", "payload write")) == REQUESTS
    assert ends.count(("machine b", "response", "machine a", "CQE")) == REQUESTS
    assert ends.count(("machine a", "doorbell", "machine a", "interrupt")) == 1
    assert ends.count(("machine a", "BlueFlame write", "machine a", "interrupt")) == 2


def test_counters(log: Path, run: Run) -> None:
    """Bytes per second in each direction add up to the bytes of the log."""
    trace = _drawn(run, log)
    names = {track.name: track.number for track in trace.tracks.values() if track.counter}
    assert set(names) == {
        "bytes to the host", "bytes from the host", "bytes to the wire",
        "outstanding work requests",
        "outstanding work requests of QP 0x48",
    }  # fmt: skip
    levels = [
        value for _, track, value in trace.values if track == names["outstanding work requests"]
    ]
    assert levels[-1] == 0
    assert max(levels) >= 1


def test_bins_of_the_rates_widen_and_lose_nothing() -> None:
    rates = Rates()
    for second in range(20):
        rates.add((0, Kind.DMA_WRITE), second * 10**9, 100)
        rates.add((0, Kind.MMIO_READ), second * 10**9, 10)
    ((key, values),) = rates.ways(["a/2"]).items()
    assert key == ("a", "to the host")
    assert len(values) <= MOST_BINS
    times = [place * rates.width for place, value in enumerate(values) if value]
    assert sum(values) == 20 * 110
    assert [(time + rates.width) // 10**9 for time in times] == list(range(20))


def test_a_long_log_is_cut_with_a_word(tmp_path: Path, run: Run) -> None:
    log = nine_posts(tmp_path / "long", 150)
    total = sum(1 for _ in LogReader(log))
    limit = 4 * BLOCK_EVENTS
    assert total > 2 * limit
    path = tmp_path / "t.pftrace"
    status, _, err = run(log, "--perfetto", path, "--limit", limit)
    assert (status, err.count("\n")) == (0, 1)
    assert f" of {total} events " in err
    assert "--limit for more" in err
    trace = TraceReader.of(path)
    gaps = [one for one in trace.slices if one.category == "not drawn"]
    cut = sum(int(value) for one in gaps for value in one.args.values())
    assert len(trace.events()) + cut == total
    assert 0 < len(trace.events()) <= limit


def test_one_machine_and_a_small_limit(log: Path, run: Run) -> None:
    trace = _drawn(run, log, "--device", "b")
    assert not [one for one in trace.slices if one.category == "work request"]
    total = sum(1 for _ in LogReader(log))
    assert len(_drawn(run, log, "--limit", total).events()) == total
    assert len(_drawn(run, log, "--limit", 12).events()) == 12
    path = log.parent / "t.pftrace"
    assert f"12 of {total} events" in run(log, "--perfetto", path, "--force", "--limit", 12).err


def test_a_compressed_timeline(log: Path, run: Run) -> None:
    plain = _drawn(run, log)
    path = log.parent / "t.pftrace.gz"
    assert run(log, "--perfetto", path)[0] == 0
    assert TraceReader.of(path).slices == plain.slices
    assert path.stat().st_size < (log.parent / "t.pftrace").stat().st_size


def test_modelled_time_is_in_processes_of_its_own(log: Path, run: Run) -> None:
    trace = _drawn(run, log, "--profile", "system-x")
    modelled = [one for one in trace.slices if one.category == "modelled"]
    assert {tuple(trace.path(one.track)) for one in modelled} >= {
        ("machine a, modelled by system-x", "to the host"),
        ("machine b, modelled by system-x", "to the host"),
    }
    assert all(one.duration > 0 for one in modelled)


def test_without_the_package(log: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("perfetto")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "perfetto", None)
    for name in ("timeline", "trace_file"):
        monkeypatch.delitem(sys.modules, f"bluebridge.host_tools.analyzer.timeline.{name}", False)
    status, _, err = run(log, "--perfetto", log.parent / "t.pftrace")
    assert (status, err.count("\n")) == (2, 1)
    assert "pip install 'bluebridge[timeline]'" in err
    assert not (log.parent / "t.pftrace").exists()


def test_the_sql_gives_the_response_times_of_the_traffic_view(log: Path, run: Run) -> None:
    base = _drawn(run, log).tables()
    base.executescript(SQL.read_text())
    rows = {
        (function.removeprefix("HCA "), kind, after): rest
        for function, kind, after, *rest in base.execute(
            "SELECT function_name, kind, cause, count, min_us, mean_us, max_us, p99_us "
            "FROM bluebridge_response_times WHERE sort = 'transaction'"
        )
    }
    traffic = Traffic(["a", "b"])
    traffic.add(LogReader(log))
    compared = 0
    for line in traffic.lines():
        if (found := rows.get(_key(line))) is None:
            continue
        count, _, least, mean, greatest, p99 = line[55:].split()[:6]
        assert found[0] == int(count)
        assert found[1:4] == pytest.approx([float(least), float(mean), float(greatest)], abs=0.06)
        assert found[4] == pytest.approx(float(p99), rel=0.03, abs=0.06)
        compared += 1
    assert compared == len(rows) > 5


def _key(line: str) -> tuple[str, str, str]:
    """Machine, kind and cause of a line of the traffic view."""
    return line[:3].strip(), line[4:30].strip(), line[31:53].strip()


def test_a_picture_of_a_span(log: Path) -> None:
    end = max(event.time for event in LogReader(log))
    path = log.parent / "t.svg"
    assert picture.main([str(log), str(path), f"0:{end + 1e-4}"]) == 0
    root = ElementTree.parse(path).getroot()
    texts = [one.text.strip() for one in root.iter(f"{SVG}text") if one.text]
    for name in ("machine a · HCA a", "work requests of QP 0x48", "for QP 0x48 of a"):
        assert name in texts
    assert len(list(root.iter(f"{SVG}rect"))) >= REQUESTS


@pytest.mark.parametrize(
    ("words", "why"), [(["LOG", "FILE"], "usage: "), (["none", "FILE", "0:1"], "holds no bus log")]
)
def test_a_picture_of_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], why: str
) -> None:
    path = tmp_path / "t.svg"
    assert picture.main([word.replace("FILE", str(path)) for word in words]) == 2
    err = capsys.readouterr().err
    assert why in err and err.count("\n") == 1
    assert not path.exists()


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 300)), max_size=200))
def test_slices_of_a_lane_never_overlap(slices: list[tuple[int, int]]) -> None:
    made: list[int] = []

    def new() -> int:
        made.append(len(made))
        return made[-1]

    lanes = Lanes(new)
    ends: dict[int, int] = {}
    for begin, length in sorted(slices):
        lane = lanes.take(begin, begin + length)
        if lane is None:
            assert len(made) == MOST_LANES
            continue
        assert ends.get(lane, 0) <= begin
        ends[lane] = begin + length


@given(
    st.lists(st.tuples(st.integers(1, BLOCK_EVENTS), st.booleans()), max_size=200),
    st.integers(BLOCK_EVENTS, 50 * BLOCK_EVENTS),
)
def test_stretches_cover_a_log_and_keep_the_limit(
    sizes: list[tuple[int, bool]], limit: int
) -> None:
    blocks = [Block(0, 0, 0, rare, events) for events, rare in sizes]
    found = stretches(blocks, limit)
    assert [block for stretch in found for block in stretch.blocks] == blocks
    drawn = sum(stretch.events for stretch in found if stretch.drawn)
    assert drawn <= limit
    assert drawn or not blocks


@given(st.lists(EVENTS, max_size=60))
@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_whatever_is_in_the_log_can_be_drawn(events: list[Event]) -> None:
    """Each event is shown once, and the trace keeps all rules."""
    assembler = ActivityAssembler(["a", "b"])
    found = []
    for number, event in enumerate(events):
        event.number, event.time = number, number / 1000
        event.address &= ADDRESSES
        found += assembler.feed(with_fact(event))
    found += assembler.finish()
    pieces: list[bytes] = []
    trace = TraceFile(pieces.append)
    tracks = Tracks(trace)
    marks = [*Drawing(tracks).draw(found), *outstanding(found, tracks)]
    marks.sort(key=lambda mark: mark.time)
    trace.add(marks)
    trace.close()
    assert TraceReader(b"".join(pieces)).events() == set(range(len(events)))
