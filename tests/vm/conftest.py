"""`bluebridge` as a subprocess, and the means to see that it left nothing behind."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.models.lab_commands import Commands
from tests.models.lab_tool import Tool, tools
from tests.models.plugin_project import Project

ROOT = Path(__file__).resolve().parent.parent.parent
BOOT_SECONDS = 240
_TEST_SECONDS = 3 * BOOT_SECONDS


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests with guests, whose pairs may have to boot first, the time for it."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(_TEST_SECONDS))


@pytest.fixture
def tool(tmp_path: Path) -> Iterator[Callable[..., Tool]]:
    """Starts `bluebridge WORDS...`; ended with the test."""
    with tools(tmp_path) as start:
        yield start


@pytest.fixture
def bluebridge(tmp_path: Path) -> Iterator[Commands]:
    """Commands with a registry of this test's own; nothing may be left after `down`."""
    commands = Commands(tmp_path)
    yield commands
    commands.close()


@pytest.fixture
def project(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """Whatever happens in it, no run folder may stay."""
    runtime = tmp_path_factory.mktemp("r")  # short: names of sockets are limited
    yield Project(tmp_path, runtime)
    deadline = time.monotonic() + 20  # a shell removes the folders of a killed process
    while list(runtime.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not list(runtime.iterdir())
