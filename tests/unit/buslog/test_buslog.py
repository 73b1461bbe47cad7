"""The bus log: what is recorded is read back, decoded, filtered, bounded, also on a slow disk."""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from string import Formatter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bluebridge.device.buslog.reader import Event, Filter, LogError, LogReader
from bluebridge.device.buslog.record import META_NAME, RECORD, segment_name
from bluebridge.device.buslog.segments import Batch, Segments
from bluebridge.device.buslog.writer import FileLog
from bluebridge.device.layout.buslog import VERSION, Kind, What
from bluebridge.device.layout.events import TELLING, Fact, Told
from bluebridge.device.layout.mlx4 import bar0, cqe, uar, wqe
from bluebridge.host_tools.analyzer import log_command as cli
from bluebridge.host_tools.analyzer.decode import decode
from bluebridge.host_tools.analyzer.event_lines import json_line, table_line


def _event(kind: Kind, address: int, data: bytes, **more: int) -> Event:
    return Event(
        0, 1.5, "a", kind, more.get("bar", 0), What(more.get("what", What.OTHER)),
        more.get("obj", 0), address, more.get("length", len(data)), data,
    )  # fmt: skip


def _write(folder: Path) -> None:
    log = FileLog(folder)
    a, b = log.device("a"), log.device("b")
    log.record(a, Kind.MMIO_WRITE, 2, 0x80014, 4, uar.send_doorbell(0x41).to_bytes(4, "big"))
    log.record(a, Kind.DMA_READ, 0, 0x5000, 4096, bytes(4096), What.PAYLOAD, 0x41)
    log.record(b, Kind.IRQ, 0, 3, 0, b"")
    log.tell(b, Fact.MARK, text="x" * 200)
    log.close()


def test_events_come_back_in_order(tmp_path: Path) -> None:
    _write(tmp_path)
    events = list(LogReader(tmp_path))
    assert [event.device for event in events] == ["a", "a", "b", "b"]
    assert [event.time for event in events] == sorted(event.time for event in events)
    assert (events[1].length, len(events[1].data)) == (4096, 64)
    assert events[3].values == {"text": "x" * 200}
    assert decode(events[0]) == "UAR[128].send qpn=0x41"


@pytest.mark.parametrize(("most", "capture"), [(64, 64), (64, 16), (8, 64)])
def test_transfers_of_a_message_are_the_events_that_each_would_be(
    tmp_path: Path, most: int, capture: int
) -> None:
    """The pieces of a message in one call, in front of others and behind them; their one time."""
    memory = memoryview(bytearray(range(250)))
    runs = [(1 << 40, 100), (7, 3), (1 << 63, 90)]
    views = [memory[:60], memory[60:100], memory[100:103], memory[103:193]]
    woken: list[str] = []
    with closing(FileLog(tmp_path, capture=capture)) as events:
        device = events.device("a")
        events.when_noted(lambda: woken.append("noted"))
        events.work = 1 << 63 | 5
        for each in range(2):
            events.transfers(device, Kind.DMA_READ, runs, views, 2 + each, most, What.PAYLOAD, 77)
            events.record(device, Kind.IRQ, 0, 1, 0, b"")
        events.transfers(device, Kind.DMA_READ, [], [], 0, most, What.PAYLOAD, 77)
    found = list(LogReader(tmp_path))
    kept = min(most, capture)
    rows = [
        (address, length, bytes(memory)[at : at + min(length, kept)])
        for (address, length), at in zip(runs, (0, 100, 103), strict=True)
    ]
    irq = (1, 0, b"")
    assert [(e.address, e.length, e.data) for e in found] == [*rows[:2], irq, *rows, irq]
    transfers = [e for e in found if e.kind is Kind.DMA_READ]
    assert {(e.what, e.obj, e.work, e.bar) for e in transfers} == {
        (What.PAYLOAD, 77, 1 << 63 | 5, 0)
    }
    assert woken == ["noted"]


def test_a_record_cut_short_is_left_out(tmp_path: Path) -> None:
    _write(tmp_path)
    segment = next(tmp_path.glob("events-*.bin"))
    whole = segment.read_bytes()
    for cut in range(len(whole)):
        segment.write_bytes(whole[:cut])
        assert len(list(LogReader(tmp_path))) < 4


def test_the_log_is_bounded_and_counts_what_is_dropped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = FileLog(tmp_path, total=1 << 20, segment=1 << 18)
    device = log.device("a")
    for number in range(20000):
        log.record(device, Kind.DMA_READ, 0, number, 64, bytes(64))
    log.close()
    size = sum(path.stat().st_size for path in tmp_path.glob("events-*.bin"))
    assert size < 9 << 17, "an eighth more, since whole records are written"
    reader = LogReader(tmp_path)
    assert reader.dropped
    kept = list(reader)
    assert kept[-1].address == 19999
    assert kept[0].number == 20000 - len(kept) == kept[0].address
    assert f"the oldest {20000 - len(kept)} events (" in reader.dropped_text
    assert caplog.messages == [
        "the bus log has 1 MiB, its limit (--log-limit): from now on its oldest events are deleted",
        f"the bus log kept its newest {len(kept)} events; {20000 - len(kept)} before them "
        f"({reader.meta['bytes_dropped'] >> 20} MiB) were deleted",
    ]


def test_a_small_limit_makes_small_segments(tmp_path: Path) -> None:
    log = FileLog(tmp_path, total=1 << 20)
    for number in range(20000):
        log.record(0, Kind.DMA_READ, 0, number, 64, bytes(64))
    log.close()
    assert sum(path.stat().st_size for path in tmp_path.glob("events-*.bin")) < 3 << 19


def test_a_full_disk_ends_the_log_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = FileLog(tmp_path, segment=1)
    full = tmp_path / segment_name(1)
    full.symlink_to("/dev/full")
    for _ in range(4):
        log.tell(0, Fact.MARK, text="x")
        log.flush()
    log.close()
    full.unlink()
    assert len(list(LogReader(tmp_path))) == 1
    assert caplog.text.count("the bus log ends here") == 1


def test_a_disk_that_fills_up_within_a_batch(tmp_path: Path) -> None:
    """A limit on the size of files fails the write where a full disk does: in the middle."""
    code = """
from pathlib import Path
from bluebridge.device.buslog.writer import FileLog
from bluebridge.device.layout.buslog import Kind
log = FileLog(Path("log"))
for _ in range(3):
    for number in range(2000):
        log.record(0, Kind.DMA_READ, 0, number, 64, bytes(64))
    log.flush()
log.close()
"""
    limited = f'ulimit -f 300; trap "" XFSZ; exec {sys.executable} -c "$0"'
    subprocess.run(["bash", "-c", limited, code], cwd=tmp_path, check=True, capture_output=True)
    reader = LogReader(tmp_path / "log")
    assert len(list(reader)) in range(1000, 4000)
    assert not reader.cut
    assert reader.stopped == "File too large; free some space"


def test_a_disk_without_a_free_block_still_takes_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = FileLog(tmp_path)
    log.tell(0, Fact.MARK, text="x")
    log.flush()

    def full(path: Path, text: str) -> int:
        path.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(Path, "write_text", full)
    log.stop("No space left on device")
    log.close()
    assert LogReader(tmp_path).stopped == "No space left on device"
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".bin", ".idx", ".json"]


def test_a_folder_without_log_and_another_version_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="holds no bus log"):
        LogReader(tmp_path)
    _write(tmp_path)
    meta = json.loads((tmp_path / META_NAME).read_text())
    for version in (VERSION - 1, VERSION + 1):
        (tmp_path / META_NAME).write_text(json.dumps(meta | {"version": version}))
        with pytest.raises(LogError, match=f"of version {version}, .*: use the bluebridge that"):
            LogReader(tmp_path)


def test_a_new_log_replaces_an_old_one_and_no_foreign_file(tmp_path: Path) -> None:
    _write(tmp_path / "log")
    FileLog(tmp_path / "log").close()
    assert not list(LogReader(tmp_path / "log"))
    for name, content in (("events-2024.bin", "mine"), (META_NAME, '{"version": 1}')):
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).write_text(content)
        with pytest.raises(FileExistsError, match=f"{name} is not of a bus log: remove it or"):
            FileLog(folder)
        assert [path.read_text() for path in folder.iterdir()] == [content]


def test_filters(tmp_path: Path) -> None:
    _write(tmp_path)
    reader = LogReader(tmp_path)
    assert len(list(reader.events(Filter(bar=2)))) == 1
    assert not list(reader.events(Filter(bar=0))), "what the device itself does is in no BAR"
    assert len(list(reader.events(Filter(device="b")))) == 2
    assert not list(reader.events(Filter(since=1e9)))


def _run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    status = cli.main(parser.parse_args(words))
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_the_command_prints_a_table_and_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _write(tmp_path)
    status, out, _ = _run(capsys, str(tmp_path), "--kind", "mmio", "--decode")
    assert status == 0
    assert "MWr" in out
    assert "send qpn=0x41" in out
    status, out, _ = _run(capsys, str(tmp_path), "--format", "jsonl", "--kind", "dma,irq")
    assert [json.loads(line)["kind"] for line in out.splitlines()] == ["dma_read", "irq"]
    status, out, _ = _run(capsys, str(tmp_path), "--bar", "2", "--from", "0", "--to", "60")
    assert (status, len(out.splitlines())) == (0, 2)
    status, out, err = _run(capsys, str(tmp_path), "--kind", "nonsense")
    assert (status, out) == (2, "")
    assert "nonsense" in err
    assert err.count("\n") == 1


def test_decoding_of_registers_work_requests_and_completions() -> None:
    value = (bar0.HCR_GO | 0x31).to_bytes(4, "big")
    event = _event(Kind.MMIO_WRITE, bar0.HCR_BASE + 0x18, value)
    assert decode(event) == "HCR.control go=1 opcode=0x31 (NOP)"
    data = wqe.CTRL.pack(opcode=wqe.SendOpcode.RDMA_WRITE, ds=3, cqe=3)
    data += wqe.RADDR.pack(va=0x1000, rkey=0x200) + wqe.DATA.pack(byte_count=64, lkey=5, va=0x3000)
    assert decode(_event(Kind.DMA_READ, 0, bytes(data), what=What.SQ_WQE, obj=0x41)) == (
        "WQE qpn=0x41 RDMA_WRITE signaled raddr=0x1000 rkey=0x200 sge=0x3000+64 lkey=0x5"
    )
    for syndrome, words in (
        (0x13, "REM_ACCESS_ERR (REMOTE_ACCESS_ERR)"), (0x05, "WR_FLUSH_ERR"),
        (0x7F, "GENERAL_ERR (0x7f)"),
    ):  # fmt: skip
        data = cqe.ERROR_CQE.pack(
            qpn=0x41, vendor_syndrome=0x88, syndrome=syndrome, is_send=1, opcode=cqe.OPCODE_ERROR
        )
        event = _event(Kind.DMA_WRITE, 0, bytes(data), what=What.CQE, obj=2)
        assert decode(event) == f"CQE cqn=0x2 qpn=0x41 send ERROR {words} vendor_err=0x88"


def test_decoding_of_a_datagram() -> None:
    """Only the device knows that the entry has an address vector, which is no scatter list."""
    data = wqe.CTRL.pack(opcode=wqe.SendOpcode.SEND, ds=5)
    av = wqe.AV.pack(pd=7, dgid=bytes(range(16)))
    data += wqe.DATAGRAM.pack(av=bytes(av), dqpn=0x250, qkey=0x1111, dmac=b"\2\0\0\0\0\1")
    data += wqe.DATA.pack(byte_count=64, lkey=5, va=0x3000)
    address = "av=000102030405060708090a0b0c0d0e0f dmac=02:00:00:00:00:01 dqpn=0x250 qkey=0x1111"
    event = _event(Kind.DMA_READ, 0, bytes(data), what=What.UD_WQE, obj=0x41)
    assert decode(event) == f"WQE qpn=0x41 SEND {address} sge=0x3000+64 lkey=0x5"
    short = _event(Kind.DMA_READ, 0, bytes(data[:64]), what=What.UD_WQE, obj=0x41, length=80)
    assert decode(short) == f"WQE qpn=0x41 SEND {address}"  # what the log keeps of it


@given(
    st.sampled_from(sorted(set(Kind) - TELLING)),
    st.sampled_from(list(What)),
    st.integers(0, (1 << 64) - 1),
    st.binary(max_size=64),
    st.sampled_from((0, 2)),
)
def test_any_event_can_be_decoded(
    kind: Kind, what: What, address: int, data: bytes, bar: int
) -> None:
    event = _event(kind, address, data, what=what, bar=bar, obj=7)
    assert "\n" not in table_line(event).replace("\n", "" if event.text else "\n")
    assert json.loads(json_line(event))["kind"] == kind.name.lower()


@given(st.data())
def test_any_fact_comes_back_as_it_was_told(data: st.DataObject) -> None:
    """Its values, in a line of words; of damaged bytes the values are read or refused."""
    fact = data.draw(st.sampled_from(Fact))
    numbers, texts = st.integers(0, (1 << 64) - 1), st.text("aö \"'\\={}[]0", max_size=9)
    forms = {name: texts if form.text else numbers for name, form in fact.fields.items()}
    values = data.draw(st.fixed_dictionaries(forms))
    packed = fact.pack(values)
    event = _event(fact.kind, 0, packed)
    event.told = Told(fact, fact.unpack(packed))
    assert event.values == values
    said = {name for _, name, _, _ in Formatter().parse(fact.template) if name}
    assert all(str(values[name]) in event.text for name in said if forms[name] is texts)
    assert json.loads(json_line(event))["values"] == values
    damaged = bytearray(packed[: data.draw(st.integers(0, len(packed)))])
    for at in data.draw(st.lists(st.integers(0, 99), max_size=3)) if damaged else ():
        damaged[at % len(damaged)] ^= 0xFF
    with contextlib.suppress(ValueError):
        fact.text(fact.unpack(bytes(damaged)))


def test_the_size_of_a_record_is_part_of_the_format() -> None:
    assert RECORD.size == 40


def test_segments_before_the_wanted_time_are_not_read(tmp_path: Path) -> None:
    log = FileLog(tmp_path, segment=1 << 12)
    for number in range(50):
        log.record(0, Kind.DMA_READ, 0, number, 64, bytes(64))
        log.flush()
    log.close()
    reader = LogReader(tmp_path)
    events = list(reader)
    assert [event.address for event in events] == list(range(50))
    for wanted in (0, 20, 49):
        late = list(reader.events(Filter(since=events[wanted].time)))
        assert [event.address for event in late] == list(range(wanted, 50))
    sorted(tmp_path.glob("events-*.bin"))[0].write_bytes(b"\0" * 900)
    assert len(list(reader.events(Filter(since=events[-1].time)))) == 1


def test_a_damaged_segment_is_named(tmp_path: Path) -> None:
    _write(tmp_path)
    segment = next(tmp_path.glob("events-*.bin"))
    segment.write_bytes(b"\xee" * 70000)
    with pytest.raises(LogError, match="damaged"):
        list(LogReader(tmp_path))


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
        log.keep(0, Kind.DMA_READ, 0, number, LONG, bytes(LONG))
    disk.free.set()
    log.flush()
    log.record(0, Kind.DMA_READ, 0, EVENTS, 64, bytes(64))
    log.close()
    *events, note, last = LogReader(tmp_path)
    kept = [event.address for event in events]
    assert kept == list(range(len(kept)))
    missing = EVENTS - len(kept)
    assert 0 < missing < EVENTS
    assert (note.fact, note.values) == (Fact.EVENTS_LOST, {"count": missing})
    assert last.address == EVENTS
    assert "events are missing so far" in caplog.text
