"""A test session with a lab: its folders, the signals that end it, its reports."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from types import FrameType
from typing import cast

import pytest

from bluebridge.host_tools.pytest_plugin.lab import Lab
from bluebridge.host_tools.pytest_plugin.report import add_sections, places, sections, tidy
from bluebridge.host_tools.pytest_plugin.scratch import Keep, ScratchBase

_FAILED = pytest.StashKey[bool]()


@contextlib.contextmanager
def open_lab(config: pytest.Config, folders: pytest.TempPathFactory) -> Iterator[Lab]:
    """Yield the session's lab; meanwhile a signal to end ends the session in good order."""
    base = ScratchBase(_root(config, folders), _keep(config))
    with Lab(base) as lab, _signals_end_the_session():
        yield lab


def _keep(config: pytest.Config) -> Keep:
    return cast(
        Keep, config.getoption("bluebridge_keep") or config.getini("bluebridge_keep") or "failed"
    )


def _root(config: pytest.Config, folders: pytest.TempPathFactory) -> Path:
    """Return this process's own folder: several sessions, or workers of one, may run at once."""
    chosen = config.getini("bluebridge_scratch")
    if not chosen:
        return folders.getbasetemp() / "bluebridge"
    base = config.rootpath / Path(chosen).expanduser()
    return base / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"


@contextlib.contextmanager
def _signals_end_the_session() -> Iterator[None]:
    """SIGTERM and SIGHUP end the session as Ctrl-C does, unless they have handlers already."""

    def leave(number: int, _frame: FrameType | None) -> None:
        pytest.exit(f"stopped by {signal.Signals(number).name}", returncode=128 + number)

    free: list[signal.Signals] = []
    if threading.current_thread() is threading.main_thread():
        numbers = (signal.SIGTERM, signal.SIGHUP)
        free = [each for each in numbers if signal.getsignal(each) is signal.SIG_DFL]
    for number in free:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in free:
            signal.signal(number, signal.SIG_DFL)


def report(
    lab: Lab, item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Wrap the making of a report: tidy tracebacks, add sections, judge the folders."""
    excinfo = call.excinfo
    if excinfo is not None and not item.config.getoption("fulltrace"):
        tidy(excinfo)
    made = yield
    if excinfo is not None and not excinfo.errisinstance(pytest.skip.Exception):
        lab.failed(item.nodeid)
    if made.failed:
        item.stash[_FAILED] = True
        error = excinfo.value if excinfo is not None else None
        add_sections(made, list(sections(lab, item.nodeid, error)))
        new = [each for each in places(lab, item.nodeid) if each not in item.user_properties]
        item.user_properties.extend(new)  # the report of the teardown, which pytest reads, has them
        made.user_properties = list(item.user_properties)
    if call.when == "teardown":
        lab.base.judge(item.nodeid, item.stash.get(_FAILED, False))
    return made
