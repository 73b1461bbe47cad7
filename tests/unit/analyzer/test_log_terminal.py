"""Tests of what `bluebridge log` shows in a terminal, and what a pipe gets."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.buslog.writer import FileLog
from bluebridge.device.fabric.faults.stage import FaultRules
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.layout.events import Fact
from bluebridge.device.server.control import ControlCommands
from bluebridge.host_tools.analyzer import output
from bluebridge.host_tools.analyzer.conditions import Condition, LiveSearch
from bluebridge.host_tools.analyzer.event_lines import table_line
from bluebridge.host_tools.analyzer.log_command import VIEWS
from bluebridge.host_tools.cli import main
from bluebridge.host_tools.commands.copy import CopyProgress
from tests.models.analysis_log import A, Sender, posted
from tests.unit.analyzer.conftest import Run

ESCAPES = re.compile("\x1b\\[[0-9]*m")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return posted(tmp_path / "log", size=64, by="doorbell")


@pytest.fixture
def columns(monkeypatch: pytest.MonkeyPatch) -> int:
    """Standard output is a terminal of so many columns."""
    monkeypatch.setattr(output, "width", lambda: 80)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return 80


@pytest.mark.parametrize("view", ["events", "table", "wr", "traffic"])
def test_a_pipe_gets_whole_lines_without_colour(
    log: Path, view: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    _, out, err = run(log, "--view", view)
    assert "\x1b" not in out and "…" not in out
    assert max(map(len, out.splitlines())) > 40
    assert err == ""


def test_a_terminal_gets_lines_of_its_width_and_a_word_about_the_rest(
    log: Path, columns: int, run: Run
) -> None:
    _, out, err = run(log, "--view", "table")
    lines = [ESCAPES.sub("", line) for line in out.splitlines()]
    assert max(map(len, lines)) == columns
    assert f"were cut at {columns} columns" in err


def test_a_narrow_terminal_shows_the_words_rather_than_the_data(
    log: Path, columns: int, run: Run
) -> None:
    _, out, _ = run(log, "--decode")
    doorbell = next(line for line in out.splitlines() if "].send qpn=" in line)
    assert "\x1b[36mhost->dev\x1b[0m" in doorbell


def test_no_colour_where_it_is_not_wanted(
    log: Path, columns: int, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    _, out, _ = run(log)
    assert "\x1b" not in out


def test_a_copy_tells_bytes_share_rate_and_what_is_left() -> None:
    progress = CopyProgress("big", 200_000_000)
    progress(50_000_000)
    assert progress.text(5.0) == "big: 50 of 200 MB (25 %), 10.0 MB/s, 15 s to go"
    unknown = CopyProgress("a:big")
    unknown(50_000_000)
    assert unknown.text(5.0) == "a:big: 50 MB, 10.0 MB/s"


EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"


def test_texts_of_guests_and_users_move_no_cursor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Marks, notes, commands and the reason of a stopped log, in every view and in `watch`."""
    log = FileLog(tmp_path / "log")
    a = log.device("a")
    commands = ControlCommands({}, FaultRules(lambda *_: None, log), events=log)
    for fact in Fact:
        values = {name: f"x\n {EVIL}" for name, form in fact.fields.items() if form.text}
        log.tell(a, fact, **values)
    commands.execute(f"mark {EVIL}")
    commands.execute(f"log stop {EVIL}")
    log.close()
    for view in VIEWS:
        if view not in ("bridge", "ntrdma"):
            assert main(["log", str(tmp_path / "log"), "--view", view]) == 0
            said = capsys.readouterr()
            assert set("\x1b\x07\x9b\u202e").isdisjoint(said.out + said.err)
    condition = Condition.parse("kind=note")
    (event, *_) = LiveSearch(LogReader(tmp_path / "log"), condition).new()
    assert r"x\n \x1b]0;owned\x07\x1b[2J\x9b31m\u202e" in table_line(event)
    assert main(["log", str(tmp_path / "log"), "--mark", EVIL]) == 0
    assert r"mark: \x1b]0;owned" in capsys.readouterr().out


def test_the_table_has_places_times_between_and_words(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = Sender(tmp_path / "log")
    sender.log.record(A, Kind.CONFIG_WRITE, 0, 4, 2, b"\6\0")
    sender.post(400, by="doorbell", inline=False, announced=True)
    sender.log.close()
    command = (tmp_path / "log", "--view", "table")
    head, *lines = run(*command).out.splitlines()
    starts = [head.index(name) for name in ("timestamp", "delta us", "bytes", "for", "decoded")]
    assert starts == sorted(starts)
    for line, parts in zip(
        lines,
        (
            ("Config Write", " 0x4 ", " 2 ", "config access", "Command"),
            ("Memory Write", "BAR2+0x80014", " 4 ", "doorbell of QP 0x48", ".send qpn=0x48"),
            ("Memory Read", " 0x100000 ", " 48 ", "WQE read of QP 0x48", "sge=0x200000+400"),
            ("Completion with data", " 0x100000 ", " 48 "),
            ("Memory Read", " 0x200000 ", " 400 ", "payload read of QP 0x48"),
            ("Completion with data", " 0x200000 ", " 256 "),
            ("Completion with data", " 0x200100 ", " 144 "),
        ),
        strict=False,
    ):
        assert all(part in line for part in parts), line
    assert "vector 1 " in lines[-1] and lines[-1].endswith("interrupt, vector 1")
    times = [float(line.split()[2]) for line in lines]
    deltas = [float(line.split()[4]) for line in lines]
    assert sum(deltas) == pytest.approx(times[-1] - times[0], abs=0.1)
    found = [json.loads(line) for line in run(*command, "--json").out.splitlines()]
    assert found[1]["decoded"].endswith(".send qpn=0x48")
    assert (found[-1]["address"], found[-1]["vector"]) == (None, 1)
    monkeypatch.setattr(output, "width", lambda: 190)
    monkeypatch.setenv("NO_COLOR", "1")
    narrow = run(*command).out.splitlines()
    assert "Data=" not in "".join(narrow) and "qpn=0x48" in narrow[2]
