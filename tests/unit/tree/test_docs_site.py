"""The site of `make docs`: complete, strict about links, and without anything from outside."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.models.house import HOME

OUTSIDE = re.compile(
    r"""<(?:script|link rel="?stylesheet"?|img|iframe)[^>]*(?:src|href)="?https?:"""
)
HABITS = ("PETracer", "Wireshark", "Perfetto", "sysfs", "perf script")
COMMAND = re.compile(r"`bluebridge ([a-z]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site without the API reference."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)],
        cwd=HOME,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_is_there_and_can_be_searched(site: Path) -> None:
    names = {path.stem for path in (HOME / "docs").glob("*.md")} | {"registers", "fields"}
    assert {path.stem for path in site.glob("*.html")} >= names | {"index", "api-reference"}
    index = (site / "search" / "search_index.json").read_text()
    assert all(f'"{name}.html' in index for name in names)


def test_nothing_is_loaded_from_outside(site: Path) -> None:
    pages = list(site.glob("*.html"))
    found = {path.name: OUTSIDE.findall(path.read_text(encoding="utf-8")) for path in pages}
    assert [name for name, lines in found.items() if lines] == []


def test_the_reference_has_what_programs_use(tmp_path: Path) -> None:
    """What the Makefile asks for: interfaces with their texts."""
    makefile = (HOME / "Makefile").read_text().replace("\\\n", " ")
    (names,) = re.findall(r"^API := (.*)$", makefile, re.MULTILINE)
    words = [sys.executable, "-m", "pdoc", "--docformat", "markdown", "-o", str(tmp_path)]
    done = subprocess.run([*words, *names.split()], cwd=HOME, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    text = "".join(path.read_text() for path in tmp_path.rglob("*.html"))
    for name in ("QueuePair.post_send", "ProtectionDomain.reg_mr", "LogReader.events", "wait_for"):
        assert name in text, name
    assert not OUTSIDE.findall(text)


def test_habits_name_commands_that_there_are() -> None:
    from bluebridge.host_tools.arguments import COMMANDS

    text = (HOME / "docs" / "habits.md").read_text()
    assert all(f"**{habit}**" in text for habit in HABITS)
    assert set(COMMAND.findall(text)) <= COMMANDS.keys()


@pytest.mark.parametrize(
    "page, program", [("verbs.md", "send_receive.py"), ("hostile-peer.md", "hostile_peer.py")]
)
def test_a_page_shows_the_program_that_is_tested(page: str, program: str) -> None:
    text = (HOME / "docs" / page).read_text()
    assert f"```python\n{(HOME / 'docs' / program).read_text()}```\n" in text


def test_the_excerpt_of_the_readme_is_of_the_walk_and_says_what_is_drawn() -> None:
    """Who compares it with a run of theirs finds other queue pairs and keys."""
    readme, walk = ((HOME / name).read_text() for name in ("README.md", "docs/iteration.md"))
    line = re.compile(r"^    (\d+\.\d{6} [ab] .*)$", re.MULTILINE)
    excerpt, lines = ([" ".join(each.split()) for each in line.findall(t)] for t in (readme, walk))
    assert len(excerpt) == 10
    assert excerpt == lines[: len(excerpt)]
    for text in (readme, walk):
        before = text[: text.index(line.findall(text)[0])]
        assert "at random" in " ".join(before.split())
