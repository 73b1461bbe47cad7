"""`bluebridge` as a subprocess, and the means to see that it left nothing behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.models.lab_commands import Commands
from tests.models.lab_tool import Tool

ROOT = Path(__file__).resolve().parent.parent.parent
BOOT_SECONDS = 240


@pytest.fixture
def tool(tmp_path: Path) -> Iterator[Callable[..., Tool]]:
    """Starts `bluebridge WORDS...`; ended with the test."""
    started: list[Tool] = []

    def start(*words: str) -> Tool:
        started.append(Tool(tmp_path, words))
        return started[-1]

    yield start
    for each in started:
        each.kill()


@pytest.fixture
def bluebridge(tmp_path: Path) -> Iterator[Commands]:
    """Commands with a registry of this test's own; nothing may be left after `down`."""
    commands = Commands(tmp_path)
    yield commands
    commands.close()
