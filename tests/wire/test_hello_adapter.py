"""docs/hello_adapter.py works, and its page says what it does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import groupby
from pathlib import Path

import pytest

from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.layout.buslog import Kind
from tests.models.server import ROOT

PAGE = (ROOT / "docs/hello-adapter.md").read_text(encoding="utf-8")
TIME_AND_DATA = re.compile(r"^\s*\d+\.\d+|(?<= )[0-9a-f]{8,32}(?= )")


def _run(*words: str) -> str:
    """The output of a program of this checkout, which must succeed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *words]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Return what the program prints, and its log."""
    folder = tmp_path_factory.mktemp("hello")
    return _run("docs/hello_adapter.py", str(folder)), folder / "log"


def test_it_says_hello_as_the_page_has_it(said: tuple[str, Path]) -> None:
    assert said[0].endswith("hello, adapter\n")
    assert "".join(f"    {line}\n" for line in said[0].splitlines()) in PAGE


def test_the_page_names_its_commands_in_their_order(said: tuple[str, Path]) -> None:
    steps = re.findall(r"^\| [^|]+ \| ([^|]*) \| [^|]+ \|$", PAGE, re.MULTILINE)
    named = [name for step in steps for name in re.findall(r"`([A-Z0-9_]+)`", step)]
    commands = [event.values for event in LogReader(said[1]) if event.kind is Kind.COMMAND]
    assert {each["status"] for each in commands} == {"OK"}
    assert named == [name for name, _ in groupby(each["name"] for each in commands)]


def test_the_page_shows_the_last_step_as_it_was(said: tuple[str, Path]) -> None:
    lines = _run("-m", "bluebridge.host_tools.cli", "log", str(said[1]), "--decode").splitlines()
    plain = [" ".join(TIME_AND_DATA.sub("", line).split()) for line in lines]
    first = next(n for n, line in enumerate(plain) if "UAR[128].send" in line)
    last = next(n for n, line in enumerate(plain) if "CQE cqn=0x80" in line)
    assert "".join(f"    {line}\n" for line in plain[first : last + 1]) in PAGE


def test_it_is_short() -> None:
    """About 150 lines, those of the imports and empty ones left out."""
    lines = (ROOT / "docs/hello_adapter.py").read_text(encoding="utf-8").splitlines()
    begin = next(n for n, line in enumerate(lines) if line.startswith("WORDS"))
    assert sum(bool(line.strip()) for line in lines[begin:]) <= 150
