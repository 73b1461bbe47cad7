"""What `bluebridge log` shows in a terminal, and what a pipe gets."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from bluebridge.device.buslog import cli, terminal
from bluebridge.host_tools.commands.copy_progress import CopyProgress
from tests.unit.analysis_log import Sender

ESCAPES = re.compile("\x1b\\[[0-9]*m")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    sender = Sender(tmp_path / "log")
    sender.post(64, by="doorbell")
    sender.log.close()
    return tmp_path / "log"


def _run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[str, str]:
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    assert cli.main(parser.parse_args(list(map(str, words)))) == 0
    said = capsys.readouterr()
    return said.out, said.err


@pytest.fixture
def columns(monkeypatch: pytest.MonkeyPatch) -> int:
    """Standard output is a terminal of so many columns."""
    monkeypatch.setattr(terminal, "width", lambda: 80)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return 80


@pytest.mark.parametrize("view", ["events", "table", "wr", "traffic"])
def test_a_pipe_gets_whole_lines_without_colour(
    log: Path, view: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    out, err = _run(capsys, log, "--view", view)
    assert "\x1b" not in out and "…" not in out
    assert max(map(len, out.splitlines())) > 40
    assert err == ""


def test_a_terminal_gets_lines_of_its_width_and_a_word_about_the_rest(
    log: Path, columns: int, capsys: pytest.CaptureFixture[str]
) -> None:
    out, err = _run(capsys, log, "--view", "table")
    lines = [ESCAPES.sub("", line) for line in out.splitlines()]
    assert max(map(len, lines)) == columns
    assert f"were cut at {columns} columns" in err


def test_a_narrow_terminal_shows_the_words_rather_than_the_data(
    log: Path, columns: int, capsys: pytest.CaptureFixture[str]
) -> None:
    out, _ = _run(capsys, log, "--decode")
    doorbell = next(line for line in out.splitlines() if "].send qpn=" in line)
    assert "\x1b[36mhost->dev\x1b[0m" in doorbell


def test_no_colour_where_it_is_not_wanted(
    log: Path, columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    out, _ = _run(capsys, log)
    assert "\x1b" not in out


def test_a_copy_tells_bytes_share_rate_and_what_is_left() -> None:
    progress = CopyProgress("big", 200_000_000)
    progress(50_000_000)
    assert progress.text(5.0) == "big: 50 of 200 MB (25 %), 10.0 MB/s, 15 s to go"
    unknown = CopyProgress("a:big")
    unknown(50_000_000)
    assert unknown.text(5.0) == "a:big: 50 MB, 10.0 MB/s"
