"""pytest plugin that records results, and the end of the session, as lines of JSON.

`-p tests.run.recorder --record=FILE`. A failure of a fixture, of a collection or of a worker of
pytest-xdist is recorded as a failed test's is. The last line has the key `end`, and the numbers of
tests that were collected (without deselected ones) and that ended; a session that was killed leaves
no such line.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

_FOLDERS = "folders"
_LONGEST_REASON = 200
_WORKER = "[gw"
"""Begins the line by which pytest-xdist says in which worker a test ran."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The file to write."""
    parser.addoption("--record", metavar="FILE", help="record results here, as lines of JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Record in one process only: the workers of pytest-xdist report to their controller."""
    path = config.getoption("--record")
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(Path(path)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note where the transcripts of a test are."""
    report = yield
    if report.failed or report.when == "call":
        report.user_properties.append((_FOLDERS, [str(path) for path in _transcripts(item)]))
    return report


def _transcripts(item: pytest.Item) -> Iterator[Path]:
    """Folders of a test's pairs, its own folder, and those that its fixtures name."""
    fixtures: dict[str, Any] = getattr(item, "funcargs", None) or {}
    if (base := getattr(fixtures.get("lab"), "base", None)) is not None:
        yield from (scratch.path for scratch in base.used_by(item.nodeid))
    if (own := fixtures.get("tmp_path")) is not None:
        yield own
    for value in fixtures.values():
        if isinstance(found := getattr(value, "transcripts", None), Path):
            yield found


class Recorder:
    """Writes each result at once, so that a session that is killed has told of its failures."""

    def __init__(self, path: Path) -> None:
        """`path` is made anew."""
        self._path = path
        self._ended: set[str] = set()
        path.write_text("")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A module that cannot be imported, for example."""
        if report.failed:
            self._write(collection=report.nodeid, report=report.longreprtext)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A failed setup, call or teardown; a call that passed."""
        if report.failed or report.when == "teardown":
            self._ended.add(report.nodeid)
        folders = dict(report.user_properties).get(_FOLDERS, [])
        if report.failed:
            told = {"reason": _reason(report), "report": _text(report)}
            self._write(failed=report.nodeid, **told, folders=folders)
        elif report.passed and report.when == "call":
            self._write(passed=report.nodeid, folders=folders)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """The exit status, and why the session stopped before its end (`-x` is one reason)."""
        stopped = str(session.shouldfail or session.shouldstop or "")
        numbers = {"collected": session.testscollected, "ended": len(self._ended)}
        self._write(end=int(exitstatus), stopped=stopped, **numbers)

    def _write(self, **fields: object) -> None:
        with self._path.open("a") as stream:
            stream.write(json.dumps(fields) + "\n")


def _reason(report: pytest.TestReport) -> str:
    """The message of the exception in one line."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else report.longreprtext
    lines = (line.strip() for line in text.splitlines())
    said = (line for line in lines if line and not line.startswith(_WORKER))
    return next(said, "no message")[:_LONGEST_REASON]


def _text(report: pytest.TestReport) -> str:
    """The traceback and the sections below it."""
    sections = "".join(f"\n--- {title}\n{text}" for title, text in report.sections)
    return f"{report.nodeid}: {report.when}\n{report.longreprtext}\n{sections}\n"
