"""`bluebridge log DIR --pcap FILE`: the file, its options, and what it says of bad input."""

from __future__ import annotations

import argparse
import json
import os
import threading
from pathlib import Path

import pytest

from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.buslog.record import META_NAME
from bluebridge.device.buslog.writer import FileLog
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.net.roce import Op
from bluebridge.host_tools.analyzer import log_command as cli
from tests.models.capture_reader import Parsed, parse, read_file
from tests.models.capture_traffic import MTU, content, everything, request, routes, write_log
from tests.unit.analyzer.conftest import Run


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of every kind of message."""
    write_log(tmp_path / "log", everything())
    return tmp_path / "log"


def _parsed(path: Path) -> list[Parsed]:
    return [packet for frame in read_file(path) if (packet := parse(frame)) is not None]


def test_a_capture_of_everything(log: Path, tmp_path: Path, run: Run) -> None:
    file = tmp_path / "all.pcapng"
    status, out, err = run(log, "--pcap", file)
    frames = read_file(file)
    assert (status, out) == (0, "")
    assert err == f"{file}: {len(frames)} frames of {len(everything())} messages\n"
    assert {frame.interface for frame in frames} == {"a"}
    assert len(_parsed(file)) == len(frames) - 1  # all but the ARP request
    assert list(tmp_path.glob("all*")) == [file]


def test_time_stamps_are_those_of_the_log(log: Path, tmp_path: Path, run: Run) -> None:
    run(log, "--pcap", tmp_path / "file")
    times = [frame.time_ns for frame in read_file(tmp_path / "file")]
    started = json.loads((log / META_NAME).read_text())["started_ns"]
    assert times == sorted(times)
    assert 0 < times[0] - started < 10**10
    first = next(event for event in LogReader(log) if event.kind is Kind.WIRE)
    assert times[0] == started + round(first.time * 1e9)


@pytest.mark.parametrize(("version", "other"), [("v1", "v2"), ("v2", "v1")])
def test_a_version_of_roce(log: Path, tmp_path: Path, run: Run, version: str, other: str) -> None:
    assert run(log, "--pcap", tmp_path / "file", "--roce", version)[0] == 0
    networks = {packet.network for packet in _parsed(tmp_path / "file")}
    assert any(name.startswith(version) for name in networks)
    assert not any(name.startswith(other) for name in networks)


def test_a_device_and_a_time(log: Path, tmp_path: Path, run: Run) -> None:
    nobody = run(log, "--pcap", tmp_path / "file", "--from", "1000")
    nobody.refused("holds no message of the fabric that passes the filters, without --tlp")
    assert not (tmp_path / "file").exists()
    assert run(log, "--pcap", tmp_path / "file", "--from", "0", "--to", "60")[0] == 0


def test_payload_that_was_not_kept_is_zeros_or_left_out(tmp_path: Path, run: Run) -> None:
    messages = [request(routes()["v1"], op, 2 * MTU) for op in (Op.SEND, Op.READ)]
    write_log(tmp_path / "log", messages, capture=300)
    _, _, err = run(tmp_path / "log", "--pcap", tmp_path / "filled")
    assert "3 frames of 2 messages; of 1 the log kept the beginning only" in err
    filled = _parsed(tmp_path / "filled")
    assert [packet.whole for packet in filled] == [True] * 3
    assert filled[0].payload == content(300).ljust(MTU, b"\0")
    assert filled[1].payload == bytes(MTU)
    run(tmp_path / "log", "--pcap", tmp_path / "cut", "--cut")
    assert [packet.payload for packet in _parsed(tmp_path / "cut")] == [content(300), b"", b""]


def test_a_file_that_is_there(log: Path, tmp_path: Path, run: Run) -> None:
    file = tmp_path / "mine"
    file.write_text("precious")
    run(log, "--pcap", file).refused("exists: name another file or add --force")
    assert file.read_text() == "precious"
    assert run(log, "--pcap", file, "--force")[0] == 0
    assert read_file(file)


def test_places_that_cannot_be_written(log: Path, tmp_path: Path, run: Run) -> None:
    gone = tmp_path / "none" / "file"
    run(log, "--pcap", gone).refused(f"{gone}: No such file or directory; name a file")
    run(log, "--pcap", tmp_path).refused("is a folder: name a file")


def test_a_full_disk(log: Path, run: Run) -> None:
    run(log, "--pcap", "/dev/full").refused("No space left on device; free some space")


def test_a_pipe_is_written_to(log: Path, tmp_path: Path, run: Run) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    heard: list[bytes] = []
    reader = threading.Thread(target=lambda: heard.append(pipe.read_bytes()))
    reader.start()
    assert run(log, "--pcap", pipe)[0] == 0
    reader.join()
    (tmp_path / "copy").write_bytes(heard[0])
    assert read_file(tmp_path / "copy")


def test_standard_output(
    log: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    assert cli.main(parser.parse_args([str(log), "--pcap", "-"])) == 0
    captured = capfdbinary.readouterr()
    (tmp_path / "copy").write_bytes(captured.out)
    assert read_file(tmp_path / "copy")
    assert b"standard output: " in captured.err


def test_a_log_without_messages(tmp_path: Path, run: Run) -> None:
    log = FileLog(tmp_path / "log")
    log.tell(log.device("a"), Fact.MARK, text="hello")
    log.close()
    late = run(tmp_path / "log", "--pcap", tmp_path / "file", "--from", "1000")
    late.refused("holds no message of the fabric and no access that passes the filters")
    run(tmp_path / "none", "--pcap", tmp_path / "file").refused("holds no bus log")
    assert not (tmp_path / "file").exists()


def test_a_log_whose_writer_was_killed(log: Path, tmp_path: Path, run: Run) -> None:
    """All whole events are written, and the rest is mentioned."""
    segment = next(log.glob("events-*.bin"))
    segment.write_bytes(segment.read_bytes()[:-1])
    status, _, err = run(log, "--pcap", tmp_path / "file")
    assert status == 1
    assert "the log's last event is cut short" in err
    assert len(_parsed(tmp_path / "file")) > 100


def test_a_damaged_record_leaves_no_file(log: Path, tmp_path: Path, run: Run) -> None:
    segment = next(log.glob("events-*.bin"))
    data = segment.read_bytes()
    segment.write_bytes(data[:2000] + b"\xee" * 2000 + data[4000:])
    run(log, "--pcap", tmp_path / "file").refused("damaged")
    assert list(tmp_path.iterdir()) == [log]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--roce", "v1"], "--roce needs --pcap FILE"),
        (["--cut"], "--cut needs --pcap FILE"),
        (["--force"], "--force needs --pcap or --perfetto FILE"),
        (["--pcap", "x", "--kind", "wire"], "--kind chooses events to print"),
        (["--pcap", "x", "--bar", "0"], "--bar chooses events to print"),
        (["--pcap", "x", "--decode"], "--decode chooses events to print"),
    ],
)
def test_options_that_do_not_go_together(log: Path, run: Run, words: list[str], why: str) -> None:
    run(log, *words).refused(why)
    assert not Path("x").exists()


def test_messages_have_words(log: Path, run: Run) -> None:
    status, out, _ = run(log, "--kind", "wire", "--decode")
    assert status == 0
    assert "ARP who has 192.168.69.2? tell 192.168.69.1" in out
    assert "RC WRITE_IMM qpn=0x800240 > qpn=0x250 psn=0xfffffe bytes=2051" in out
    assert "RNR_NAK timer=14 > qpn=0x800240" in out
    assert "MAD CM RTU tid=0x1234" in out
