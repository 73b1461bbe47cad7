"""Commands in README and on pages are ones that `bluebridge` takes, with options that it has."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from bluebridge.host_tools.arguments import COMMANDS, parse
from tests.models.house import HOME

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
