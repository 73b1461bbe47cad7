"""A folder of tests that pytest runs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bluebridge.host_tools.processes import termination_as_exception
from tests.run.turns import Outcome, Result, ended_by_limit

ROOT = Path(__file__).resolve().parents[2]
SUITE = 40 * 60.0
"""Seconds for a whole suite. The longest takes 7 minutes on two idle cores, and a session of
pytest-xdist whose workers crash may wait for ever."""
ONE_TEST = 10 * 60.0
"""Seconds for one test in a second turn. pytest-timeout ends a test after 2 minutes; images and a
snapshot may have to be made before."""
TO_END = 60.0
"""Seconds for a child that is interrupted after its limit to end its guests and write reports."""


def run_module(words: Sequence[str], folder: Path = ROOT, limit: float = SUITE) -> int | None:
    """Run `python -m WORDS...` in `folder`; returns its exit status, None if `limit` ended it.

    The child leads a process group of its own. After `limit` seconds that gets SIGINT, and SIGKILL
    if the child has not ended `TO_END` seconds later. Ctrl-C, SIGTERM and SIGHUP are handed on; the
    child ends in its own order before this raises `KeyboardInterrupt` or `SystemExit`.
    """
    with (
        termination_as_exception(),
        subprocess.Popen(
            [sys.executable, "-m", *words], cwd=folder, stdin=subprocess.DEVNULL, process_group=0
        ) as child,
    ):
        try:
            return child.wait(limit)
        except subprocess.TimeoutExpired:
            _end(child)
            return None
        except KeyboardInterrupt:
            _hand_on(child)
            raise
        except SystemExit:
            child.terminate()
            raise


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the process group of a child: as Ctrl-C does, then by SIGKILL."""
    try:
        _signal(child, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(TO_END)
    finally:
        _signal(child, signal.SIGKILL)


def _hand_on(child: subprocess.Popen[bytes]) -> None:
    """Interrupt the process group of a child, again at each further Ctrl-C, until it has ended."""
    while child.returncode is None:
        with contextlib.suppress(KeyboardInterrupt):
            _signal(child, signal.SIGINT)
            child.wait()


def _signal(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to the group that a child leads; none if it has ended."""
    if child.poll() is None:
        os.killpg(child.pid, number)


_Line = dict[str, Any]
_COMPLETE = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)


@dataclass(frozen=True)
class PytestSuite:
    """The tests that `tests` names: side by side with `options`, a single one without."""

    name: str
    tests: tuple[str, ...]
    options: tuple[str, ...] = ()
    root: Path = ROOT
    """Where pytest runs; the node ids begin there."""
    start: Callable[[Sequence[str], Path, float], int | None] = run_module
    """Runs a module with its arguments in a folder, for so many seconds at most; returns the exit
    status, None if the limit ended it."""

    def run(self, folder: Path) -> Outcome:
        """Run all of them."""
        return self._run((*self.tests, *self.options), folder, SUITE)

    def run_one(self, test: str, folder: Path) -> Outcome:
        """Run one in a process of its own, without workers."""
        return self._run((test, "-n", "0", "--bluebridge-keep=always"), folder, ONE_TEST)

    def _run(self, words: Sequence[str], folder: Path, limit: float) -> Outcome:
        record = folder / "record.jsonl"
        recording = ("-p", "tests.run.recorder", f"--record={record}")
        kept = ("-o", f"bluebridge_scratch={folder / 'scratch'}")
        status = self.start(("pytest", *words, *recording, *kept), self.root, limit)
        outcome = read(record, status)
        return ended_by_limit(outcome, limit) if status is None else outcome


def read(record: Path, status: int | None) -> Outcome:
    """What a recorded session came to that ended with exit status `status`."""
    found = (
        [json.loads(line) for line in record.read_text().splitlines()] if record.is_file() else []
    )
    failed = _results(found, "failed")
    bad = {each.test for each in failed}
    passed = tuple(each for each in _results(found, "passed") if each.test not in bad)
    return Outcome(failed, passed, _missing(found, status, bool(failed)))


def _missing(found: Sequence[_Line], status: int | None, failed: bool) -> str:
    """Why the session says nothing about some of its tests; empty if it does about all."""
    for line in found:
        if "collection" in line:
            return f"{line['collection']} could not be collected"
    ends = [line for line in found if "end" in line]
    if not ends or ends[-1]["end"] != status or status not in _COMPLETE:
        return f"pytest was interrupted or could not start (status {status})"
    if ends[-1]["stopped"]:
        return f"pytest stopped early: {ends[-1]['stopped']}"
    if left := ends[-1]["collected"] - ends[-1]["ended"]:
        return f"{left} of {ends[-1]['collected']} tests did not run to their end"
    if failed != (status == pytest.ExitCode.TESTS_FAILED):
        return f"pytest ended with status {status}, which its results do not explain"
    return ""


def _results(found: Sequence[_Line], kind: str) -> tuple[Result, ...]:
    """One result for each test: its call and its teardown may both have failed."""
    tests: dict[str, list[_Line]] = {}
    for line in found:
        if kind in line:
            tests.setdefault(line[kind], []).append(line)
    return tuple(_result(test, parts) for test, parts in tests.items())


def _result(test: str, parts: Sequence[_Line]) -> Result:
    folders = dict.fromkeys(Path(path) for part in parts for path in part["folders"])
    reports = [part.get("report", f"{test}: passed\n") for part in parts]
    return Result(test, parts[0].get("reason", ""), "\n".join(reports), tuple(folders))
