"""Commands in README and on pages are ones that `bluebridge` takes; those of a log are run.

What a page shows behind one must be what it prints but for numbers, which are of one run.
"""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from bluebridge.device.buslog.writer import FileLog
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.mlx4 import eqe, uar
from bluebridge.host_tools.arguments import COMMANDS, parse
from bluebridge.host_tools.cli import main
from tests.models.analysis_log import A, Sender
from tests.models.house import HOME
from tests.models.ntrdma_log import Pair
from tests.unit.analyzer.test_wire_check import capture, traffic_frames

PAGES = [HOME / "README.md", *sorted((HOME / "docs").glob("*.md"))]
LINE = re.compile(r"^    (?:\$ )?(?:\.venv/bin/)?bluebridge (.+)$", re.MULTILINE)
INLINE = re.compile(r"`(?:\.venv/bin/)?bluebridge ([^`]+)`")
ENDS = ("|", ">", "<", "&", ";", "#", "2>&1", "&&")


def _lines(text: str) -> Iterator[tuple[str, bool]]:
    """The commands of a page, and whether each is a whole line and not named in a sentence."""
    joined = text.replace("\\\n", " ")
    yield from ((line, True) for line in LINE.findall(joined))
    yield from ((line, False) for line in INLINE.findall(joined))


def _words(line: str) -> list[str]:
    """The words of a command line up to a comment, a pipe or a redirection; N is any number."""
    words = []
    with contextlib.suppress(ValueError):  # a quotation that goes on in the next line
        for word in shlex.split(re.sub(r"\bN\b", "1", line.replace("\\|", "|")), comments=True):
            if word in ENDS:
                break
            words.append(word)
    return words


def _reads_a_log(words: list[str]) -> bool:
    """Whether a command needs a log and nothing that runs, and ends by itself."""
    return (
        words[:1] == ["log"]
        or words[:2] == ["model", "DIR"]
        or (words[:1] == ["web"] and "--save" in words)
        or words[:2] == ["check", "wire"]
    )


RUN = [
    pytest.param(words, id=f"{path.name}: {' '.join(words)}")
    for path in PAGES
    for line, whole in _lines(path.read_text(encoding="utf-8"))
    if whole and "..." not in line and "[" not in line and _reads_a_log(words := _words(line))
]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_command_of_a_page_is_taken(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A sentence may name a command by a part of it, a line may not."""
    wrong = []
    for line, whole in _lines(path.read_text(encoding="utf-8")):
        words = _words(line)
        if len(words) < 2 or "..." in words or "…" in line or "[" in line:
            continue  # a name, something left out, a synopsis
        if words[0] not in COMMANDS:
            wrong.append(line)
            continue
        try:
            parse(words)
        except SystemExit:
            said = capsys.readouterr().err
            if whole or "there is no" in said:
                wrong.append(f"{line}: {said.strip()}")
    assert wrong == []


def test_a_wrong_command_is_noticed() -> None:
    assert _words("log DIR --decode | less  # all") == ["log", "DIR", "--decode"]
    page = "Run `bluebridge log --x`:\n\n    $ bluebridge up --pairs N  # some\n"
    assert list(_lines(page)) == [("up --pairs N  # some", True), ("log --x", False)]
    with pytest.raises(SystemExit):
        parse(_words("log --x"))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a user without any files, in which the newest run will be."""
    for name in ("XDG_STATE_HOME", "XDG_RUNTIME_DIR", "HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _excerpts(text: str) -> Iterator[tuple[list[str], list[str]]]:
    """The commands of a page that print something there, and the lines that they print."""
    command: list[str] = []
    shown: list[str] = []
    for line in [*text.splitlines(), ""]:
        begins = LINE.match(line)
        if begins or not line.startswith("    "):
            if shown and _reads_a_log(command) and not {"--pcap", "--dissector"} & {*command}:
                yield command, shown
            command, shown = _words(begins[1]) if begins else [], []
        elif command:
            shown.append(line)


NOT_RECORDED = {"log DIR --view bridge --tree"}
"""Excerpts of runs of which no log here has everything: stores, a copy and a masked doorbell."""
EXCERPTS = [
    pytest.param(*each, id=f"{path.name}: {' '.join(each[0])}")
    for path in PAGES
    for each in _excerpts(path.read_text(encoding="utf-8"))
    if " ".join(each[0]) not in NOT_RECORDED
]
NUMBER = re.compile(r"0x[0-9a-f]+|-?\d+(\.\d+)?|(?<= )-(?= )")


def _shape(line: str) -> str:
    """A line without what differs from run to run: numbers, absent ones too, sides and columns."""
    return " ".join(re.sub(r"\b[ab]\b", "@", NUMBER.sub("#", line)).split())


def _is_among(line: str, printed: set[str]) -> bool:
    """Whether a line was printed; `…` or `...` stands for words that the page leaves out."""
    parts = [re.escape(part.strip()) for part in re.split(r"…|\.\.\.", _shape(line))]
    pattern = re.compile(".*".join(parts))
    return any(pattern.fullmatch(each) for each in printed)


def _adapters(folder: Path) -> None:
    """Write the log of two sends, each after a mark that pages name."""
    sender = Sender(folder)
    for text in ("before the pull", "after it"):
        sender.log.tell(A, Fact.MARK, text=text)
        sender.post()
    sender.log.close()


def _bridges(folder: Path) -> None:
    """Write the log of the two sides of NTRDMA as they meet."""
    Pair(folder).log.close()


def _faults(folder: Path) -> None:
    """Write a log in which a cable is pulled, and the driver told."""
    log = FileLog(folder)
    log.device("a")
    log.tell(A, Fact.CONTROL, line="link a down")
    log.tell(A, Fact.LINK, port=1, cable=0, link=0)
    event = bytes(eqe.PORT_EQE.pack(type=eqe.EventType.PORT_CHANGE, port=1))
    log.record(A, Kind.DMA_WRITE, 0, 0x500000, len(event), event, What.EQE, 4)
    log.record(A, Kind.IRQ, 0, 0, 0, b"")
    arm = (uar.EQ_ARM | 3).to_bytes(4, "big")
    log.record(A, Kind.MMIO_WRITE, 2, uar.eq_doorbell_offset(4), 4, arm)
    log.close()


def _packets(path: Path) -> None:
    """Write a capture of a READ that lost an answer."""
    capture(path, traffic_frames(17))


@pytest.mark.parametrize(("words", "shown"), EXCERPTS)
def test_what_a_page_shows_is_what_is_printed(
    words: list[str],
    shown: list[str],
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    _adapters(home / "adapters")
    _bridges(home / "bridges")
    _faults(home / "faults")
    _packets(home / "packets")
    for log in home.iterdir():
        main([_filled_in(word, log) for word in words])
    printed = {_shape(line) for line in capsys.readouterr().out.splitlines()}
    assert [line for line in shown if not _is_among(line, printed)] == []


def test_a_word_that_is_not_printed_is_noticed() -> None:
    printed = {_shape("   8   0.0   write doorbell, 4 bytes")}
    assert _is_among("  815   0.1  write doorbell, 4 bytes", printed)
    assert _is_among("  815   0.1  write … bytes", printed)
    assert not _is_among("  815   0.1  wrote doorbell, 4 bytes", printed)
    page = "So:\n\n    bluebridge log DIR\n      1 b\n\nAnd\n\n    bluebridge up\n    up\n"
    assert list(_excerpts(page)) == [(["log", "DIR"], ["      1 b"])]


@pytest.mark.parametrize("words", RUN)
def test_every_command_that_reads_a_log_runs(
    words: list[str], home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A page's own names of logs stand for one log, whatever the run that the page shows."""
    log = home / "bluebridge" / "run-1"
    if words[0] == "check":
        log = home / "capture"
        _packets(log)
    else:
        (_bridges if {"bridge", "ntrdma"} & {*words} else _adapters)(log / "bus")
    given = [_filled_in(word, log) for word in words]
    assert main(given) == 0, capfd.readouterr().err


def _filled_in(word: str, log: Path) -> str:
    """Return a word as the reader of a page would write it."""
    if re.fullmatch(r"(DIR|LOG)\d?|.*\.pcap|.*/run-.*", word) or word.startswith("/tmp/"):
        return str(log)
    return str(Path(word).expanduser()) if word.startswith("~") else word
