"""Commands in README and on pages are ones that `bluebridge` takes; those of a log are run."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from bluebridge.device.buslog.record import MARK
from bluebridge.device.layout.buslog import Kind
from bluebridge.host_tools.arguments import COMMANDS, parse
from bluebridge.host_tools.cli import main
from tests.models.analysis_log import A, Sender
from tests.models.house import HOME
from tests.models.ntrdma_log import Pair

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


def _adapters(folder: Path) -> None:
    """Write the log of two sends, each after a mark that pages name."""
    sender = Sender(folder)
    for text in ("before the pull", "after it"):
        note = MARK + text.encode()
        sender.log.record(A, Kind.NOTE, 0, 0, len(note), note)
        sender.post()
    sender.log.close()


def _bridges(folder: Path) -> None:
    """Write the log of the two sides of NTRDMA as they meet."""
    Pair(folder).log.close()


@pytest.mark.parametrize("words", RUN)
def test_every_command_that_reads_a_log_runs(
    words: list[str], home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A page's own names of logs stand for one log, whatever the run that the page shows."""
    log = home / "bluebridge" / "run-1"
    (_bridges if {"bridge", "ntrdma"} & {*words} else _adapters)(log / "bus")
    given = [_filled_in(word, log) for word in words]
    assert main(given) == 0, capfd.readouterr().err


def _filled_in(word: str, log: Path) -> str:
    """Return a word as the reader of a page would write it."""
    if re.fullmatch(r"(DIR|LOG)\d?", word) or word.startswith("/tmp/"):
        return str(log)
    return str(Path(word).expanduser()) if word.startswith("~") else word
