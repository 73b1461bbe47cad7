"""The log as a ring that stops, marks in it, and the control socket's words for both."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bluebridge.device.buslog.follow import Follower
from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.buslog.writer import EventLog, FileLog
from bluebridge.device.fabric.faults.stage import FaultRules
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.layout.events import Fact
from bluebridge.device.pci.loop import EventLoop
from bluebridge.device.server.control import ControlCommands, ControlSocket
from bluebridge.host_tools import arguments, cli
from bluebridge.host_tools.analyzer.conditions import Condition, LiveSearch
from bluebridge.host_tools.commands import mark, ps, up_options
from bluebridge.host_tools.errors import UsageError
from bluebridge.host_tools.keeper import registry
from bluebridge.host_tools.keeper.record import GuestRecord, PairRecord
from bluebridge.host_tools.lab import log_stop
from bluebridge.host_tools.web.book import Book, Query

SECONDS = 30.0


class Server:
    """The log and the control socket of a device server without devices."""

    def __init__(self, folder: Path) -> None:
        self.loop = EventLoop()
        self.log = FileLog(folder / "bus", total=1 << 20)
        self.a = self.log.device("a")
        rules = FaultRules(self.loop.call_later, EventLog())
        self.commands = ControlCommands({}, rules, None, self.log)
        self.path = folder / "c"
        self.socket = ControlSocket(self.path, self.commands, self.loop)

    def interrupt(self, vector: int) -> None:
        self.log.record(self.a, Kind.IRQ, 0, vector, 0, b"")

    def close(self) -> None:
        self.socket.close()
        self.log.close()
        self.loop.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    server.close()


def test_a_stopped_log_keeps_what_was_before_and_says_why(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.interrupt(1)
    assert server.commands.execute("log stop for tests") == ["ok"]
    server.interrupt(2)
    server.log.flush()
    assert server.commands.execute("log stop") == [
        "error: the log has been stopped already: `bluebridge ps` says why"
    ]
    assert server.commands.execute("log pause") == ["error: write: log stop [TEXT]"]
    reader = LogReader(tmp_path)
    assert [event.kind for event in reader] == [Kind.IRQ, Kind.NOTE]
    assert reader.stopped == "for tests"
    assert cli.main(["log", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert "the log was stopped: for tests" in captured.err
    assert captured.out.splitlines()[-1].endswith("the log was stopped: for tests")
    record = PairRecord(1, [], logs=str(tmp_path))
    ps.show(record)
    assert "note: the bus log was stopped: for tests" in capsys.readouterr().out


def test_a_mark_is_of_no_work_request_and_a_stopped_log_takes_none(
    server: Server, tmp_path: Path
) -> None:
    server.log.work = 1 << 56 | 7
    assert server.commands.execute("mark here") == ["ok"]
    server.log.work = 1 << 56 | 7
    assert server.commands.execute("log stop") == ["ok"]
    (refused,) = server.commands.execute("mark too late")
    assert refused.startswith("error: the log has been stopped")
    assert [event.work for event in LogReader(tmp_path)] == [0, 0]


def test_events_are_numbered_when_segments_went_meanwhile(tmp_path: Path) -> None:
    log = FileLog(tmp_path, total=40_000, segment=10_000)
    a = log.device("a")

    def interrupts(count: int) -> None:
        for vector in range(count):
            log.record(a, Kind.IRQ, 0, vector, 0, b"")
        log.flush()

    interrupts(10)
    follower = Follower(LogReader(tmp_path), at_end=True)
    for _ in range(80):
        interrupts(50)
    assert list(follower.heads())
    assert follower.number == 10 + 80 * 50
    log.close()


def test_the_reason_says_how_many_events_were_not_looked_at(tmp_path: Path) -> None:
    """The search was behind by more than the ring holds."""
    log = FileLog(tmp_path, total=40_000, segment=10_000)
    a = log.device("a")
    log.record(a, Kind.IRQ, 0, 1, 0, b"")
    log.flush()
    search = LiveSearch(LogReader(tmp_path), Condition.parse("vector=77"))
    assert not list(search.new()) and not search.skipped
    for number in range(4000):
        log.record(a, Kind.IRQ, 0, 1, 0, b"")
        if number % 50 == 49:
            log.flush()
    log.record(a, Kind.IRQ, 0, 77, 0, b"")
    log.flush()
    (event,) = search.new()
    first = next(iter(LogReader(tmp_path)))
    assert event.number == 4001
    assert search.skipped == first.number - 1 > 0
    reason = log_stop.reason("vector=77", event, search)
    assert reason.startswith("vector=77: event 4001, a MSI-X vector 77")
    assert f"({search.skipped} events were deleted before" in reason
    log.close()


def test_a_number_of_many_digits_is_refused(server: Server) -> None:
    for line in ("release", "remove"):
        (answer,) = server.commands.execute(f"{line} {'9' * 5000}")
        assert answer.startswith("error: '999") and len(answer) < 200


def test_a_text_too_long_is_refused_and_not_cut(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = "error: the text has 1001 letters; at most 1000 are possible"
    for line in ("mark", "log stop"):
        assert server.commands.execute(f"{line} {'x' * 1001}") == [error]
    assert server.commands.execute(f"mark {'x' * 1000}") == ["ok"]
    server.log.flush()
    assert [event.text for event in LogReader(tmp_path)] == ["mark: " + "x" * 1000]
    monkeypatch.setattr(registry, "pairs", lambda: [(Path(), PairRecord(1, [GuestRecord("a")]))])
    with pytest.raises(UsageError, match="1001 letters"):
        mark.split(["x" * 1001])


def test_words_without_a_log(tmp_path: Path) -> None:
    loop = EventLoop()
    commands = ControlCommands({}, FaultRules(loop.call_later, EventLog()))
    for line in ("mark x", "log stop"):
        assert commands.execute(line) == [
            "error: there is no bus log: start the server with --log DIR"
        ]
    loop.close()


def test_the_log_ends_shortly_after_the_event(server: Server, tmp_path: Path) -> None:
    """A ring of 1 MiB, of which the oldest is gone; what led to the event is there."""
    argv = [sys.executable, "-m", "bluebridge.host_tools.lab.log_stop"]
    argv += [str(tmp_path / "bus"), str(server.path), "vector=77"]
    for _ in range(40_000):
        server.interrupt(1)
    server.log.flush()
    follower = subprocess.Popen(argv)
    server.interrupt(77)
    server.interrupt(78)
    server.log.flush()

    def look() -> None:
        if follower.poll() is None:
            server.loop.call_later(0.05, look)
        else:
            server.loop.stop()

    look()
    server.loop.run()
    assert follower.returncode == 0
    server.interrupt(79)
    server.log.flush()
    reader = LogReader(tmp_path)
    assert reader.dropped
    events = list(reader)
    numbers = {event.address: event.number for event in events if event.kind is Kind.IRQ}
    assert numbers[77] == 40_000 and 78 in numbers and 79 not in numbers
    assert reader.stopped == "vector=77: event 40000, a MSI-X vector 77"
    assert len(events) > 10_000


def test_views_begin_and_end_at_marks(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for vector, text in enumerate(("boot", "test one begins", "test one ends", "test two begins")):
        assert server.commands.execute(f"mark {text}") == ["ok"]
        server.interrupt(vector)
    server.log.flush()
    assert server.commands.execute("mark") == ["error: write: mark TEXT"]

    def shown(*words: str) -> list[str]:
        assert cli.main(["log", str(tmp_path), "--decode", "--limit", "9", *words]) == 0
        lines = capsys.readouterr().out.splitlines()[1:]
        return [line.partition("note")[2].strip() or line[-1] for line in lines]

    one = ["mark: test one begins", "1", "mark: test one ends"]
    assert shown("--from-mark", "one begins", "--to-mark", "ends") == one
    assert shown("--mark", "begins") == ["mark: test two begins", "3"]
    assert server.commands.execute("mark boot again") == ["ok"]
    server.log.flush()
    assert shown("--from-mark", "boot", "--to-mark", "one begins")[0] == "mark: boot"
    assert shown("--bar", "4") == []
    assert shown("--kind", "irq", "--to-mark", "boot") == []
    assert cli.main(["log", str(tmp_path), "--mark", "three"]) == 2
    error = capsys.readouterr().err
    assert "no mark in the log has 'three'" in error and "'test two begins'" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("up --stop-on syndrom!=0", "--stop-on: syndrom!=0: no field syndrom; did you mean"),
        ("up --stop-on kind=irq --bare", "--stop-on is about the bus log; leave out --bare"),
        ("up --stop-on kind=irq -- --no-log", "--stop-on is about the bus log"),
        ("mark here", "nothing runs; start a pair with `bluebridge up`"),
    ],
)
def test_what_makes_no_sense_is_one_line_and_status_2(
    line: str,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert cli.main(line.split()) == 2
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1


def test_the_ring_is_the_limit_of_the_log() -> None:
    options = arguments.parse(["up", "--ring", "64MiB", "--stop-on", "syndrome!=0"])
    assert up_options.hardware(options).log_limit == 64 << 20
    assert options.stop_on == "syndrome!=0"


@pytest.mark.parametrize(
    ("words", "split"),
    [
        (["b", "before", "the pull"], ("b", "before the pull")),
        (["before the pull"], ("", "before the pull")),
        (["a"], ("", "a")),
        (["a", "a"], ("a", "a")),
    ],
)
def test_whose_log_gets_a_mark(
    words: list[str], split: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guest that is named first, if something follows; else of the newest pair as a whole."""
    record = PairRecord(1, [GuestRecord("a"), GuestRecord("b")])
    monkeypatch.setattr(registry, "pairs", lambda: [(Path(), record)])
    assert mark.split(words) == split


def test_a_mark_of_a_guest_is_of_all_its_functions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = FileLog(tmp_path)
    devices = [log.device(name) for name in ("a.ntb4", "b.ntb4", "a", "b")]
    commands = ControlCommands({}, FaultRules(lambda *_: None, log), events=log)
    for line in ("mark @a of a", "mark @b of b", "mark @c of both"):
        assert commands.execute(line) == ["ok"]
    for device in devices:
        log.tell(device, Fact.BUS_MASTER, on=1)
    log.close()

    def shown(*words: str) -> list[str]:
        assert cli.main(["log", str(tmp_path), *words]) == 0
        lines = capsys.readouterr().out.splitlines()
        return [line.partition("mark: ")[2].strip() for line in lines if "mark: " in line]

    assert [event.device for event in LogReader(tmp_path)][:2] == ["a", "b"]
    both = ["of a", "of b", "@c of both"]
    book = Book(tmp_path)
    for options in (), ("--view", "all"):
        assert shown(*options) == both
        for name in ("a.ntb4", "b.ntb4", "a", "b"):
            wanted = [f"of {name[0]}", "@c of both"]
            assert shown("--device", name, *options) == wanted
            found = book.page(0, 9, Query(device=name)).found
            titles = [each.title for each in found if each.mark_of is not None]
            assert titles == [f"mark: {each}" for each in wanted]
    assert shown("--device", "a", "--bar", "2") == shown("--device", "a", "--kind", "irq") == []
