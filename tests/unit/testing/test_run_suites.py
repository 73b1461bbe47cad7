"""How suites with guests are run: pytest, conformance programs, and what stops a run."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from tests.campaigns.conformance.program import FAILED, PASSED, SKIPPED, Verdict
from tests.campaigns.conformance.results import Entry, Journal
from tests.run import __main__ as command
from tests.run import programs, pytest_suite, turns
from tests.run.pytest_suite import ROOT, PytestSuite, run_module
from tests.run.turns import Kept, Suite

UNSTEADY = """
import pytest

def _first_time(path):
    before = path.exists()
    path.touch()
    return not before

def test_unsteady(request, tmp_path):
    (tmp_path / "log").write_text("what happened")
    assert not _first_time(request.config.rootpath / "tried"), "the host was busy"

@pytest.fixture
def guest(request):
    assert not _first_time(request.config.rootpath / "tried-guest"), "no guest"
    yield 1
    assert not _first_time(request.config.rootpath / "tried-end"), "it did not end"

def test_with_a_guest(guest):
    assert guest

def test_good():
    pass
"""


def _in_this_process(words: Sequence[str], folder: Path, limit: float) -> int:
    """Stands for a process of its own, which takes a second to start."""
    with contextlib.chdir(folder), mock.patch.dict(sys.modules):
        sys.modules.pop("test_it", None)
        return int(pytest.main([*words[1:], f"--basetemp={folder.parent / 'base'}"]))


def _suite(folder: Path, text: str, *options: str) -> PytestSuite:
    project = folder / "project"
    project.mkdir()
    (project / "pytest.ini").write_text(
        "[pytest]\naddopts = -p no:cacheprovider --import-mode=importlib\n"
    )
    (project / "test_it.py").write_text(text)
    return PytestSuite("vm", ("test_it.py",), options, project, _in_this_process)


def test_an_unsteady_test_passes_alone_and_both_transcripts_stay(
    tmp_path: Path, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With workers at first and without them then, in processes of their own."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    suite = replace(_suite(tmp_path, UNSTEADY, "-n", "1"), start=run_module)
    for name in ("tried-guest", "tried-end"):
        (suite.root / name).touch()
    verdict = turns.run([suite], kept)
    kept.close()
    assert verdict.passed
    (found,) = verdict.unsteady
    assert found.test == "test_it.py::test_unsteady"
    assert found.reason == "AssertionError: the host was busy"
    places = kept.folder(found.test)
    assert "the host was busy" in (places / "first" / "report.txt").read_text()
    for turn in ("first", "second"):
        (log,) = (places / turn).glob("*/log")
        assert log.read_text() == "what happened"
    assert {path.name for path in kept.run.iterdir()} == {places.name}


def test_a_fixture_that_fails_fails_its_test(tmp_path: Path, kept: Kept) -> None:
    """Its setup in the first turn, its end in the second: that is no pass."""
    suite = _suite(tmp_path, UNSTEADY)
    (suite.root / "tried").touch()
    verdict = turns.run([suite], kept)
    (found,) = verdict.failed
    assert found.test == "test_it.py::test_with_a_guest" and "no guest" in found.reason
    second = (kept.folder(found.test) / "second" / "report.txt").read_text()
    assert "teardown" in second and "it did not end" in second
    assert not verdict.passed and not verdict.unsteady


@pytest.mark.parametrize(
    ("text", "options", "why"),
    [
        ("import nothing_of_that_name", (), "test_it.py could not be collected"),
        ("def test_it(): raise KeyboardInterrupt", (), "interrupted or could not start (status 2)"),
        ("def test_it(): pass", ("--no-such-option",), "could not start (status 4)"),
        ("", (), "could not start (status 5)"),
        ("def test_it(): assert False", ("-x",), "stopped early: stopping after 1 failures"),
    ],
)
def test_what_keeps_tests_from_running_is_no_pass(
    tmp_path: Path, kept: Kept, text: str, options: tuple[str, ...], why: str
) -> None:
    outcome = _suite(tmp_path, text, *options).run(kept.work("x"))
    assert why in outcome.incomplete


def test_a_record_that_does_not_explain_the_status(tmp_path: Path) -> None:
    """That of a session that was killed has no end."""
    record = tmp_path / "record"
    record.write_text('{"passed": "test_it.py::test_it", "folders": []}\n')
    outcome = pytest_suite.read(record, -9)
    assert "interrupted or could not start (status -9)" in outcome.incomplete
    record.write_text('{"end": 1, "stopped": "", "collected": 1, "ended": 1}\n')
    assert "do not explain" in pytest_suite.read(record, 1).incomplete
    assert "interrupted" in pytest_suite.read(record, 0).incomplete
    assert "interrupted" in pytest_suite.read(tmp_path / "none", 0).incomplete


CRASHING = """
import os, pytest

@pytest.mark.parametrize("number", range(3))
def test_crash(number):
    os._exit(1)

def test_later():
    pass

def test_deselected():
    pass
"""


def test_tests_that_no_worker_was_left_for_are_missing(
    tmp_path: Path, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    options = ("-n", "1", "--max-worker-restart=1", "-k", "not deselected")
    suite = replace(_suite(tmp_path, CRASHING, *options), start=run_module)
    outcome = suite.run(kept.work("x"))
    assert outcome.incomplete == "2 of 4 tests did not run to their end"
    assert len(outcome.failed) == 2
    assert outcome.failed[0].reason.startswith("worker 'gw0' crashed while running")


def test_deselected_and_skipped_tests_are_not_missing(tmp_path: Path, kept: Kept) -> None:
    text = "import pytest\ndef test_a(): pass\ndef test_b(): pass\ndef test_c(): pytest.skip('x')"
    outcome = _suite(tmp_path, text, "-k", "not test_b").run(kept.work("x"))
    assert not outcome.incomplete and [each.test for each in outcome.passed] == [
        "test_it.py::test_a"
    ]


# The time limit.

NEVER_ENDS = """
import signal, subprocess, sys, time
from pathlib import Path

signal.signal(signal.SIGINT, signal.SIG_IGN)
Path("helper").write_text(str(subprocess.Popen(["sleep", "60"]).pid))
time.sleep(60)
"""


def test_a_child_that_does_not_end_is_ended_with_its_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "never_ends.py").write_text(NEVER_ENDS)
    monkeypatch.setattr(pytest_suite, "TO_END", 0.1)
    assert run_module(["never_ends"], tmp_path, 3.0) is None
    status = Path("/proc", (tmp_path / "helper").read_text(), "status")
    with contextlib.suppress(FileNotFoundError):  # or left for another process to wait for
        deadline = time.monotonic() + 30  # a busy machine takes a moment to end a process
        while "State:\tZ" not in status.read_text() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert "State:\tZ" in status.read_text()


@pytest.mark.parametrize("suite", [PytestSuite("vm", ("tests",)), programs.Programs()])
def test_a_suite_that_was_ended_by_its_limit_is_incomplete(
    suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = []

    def ended(words: Sequence[str], folder: Path = ROOT, limit: float = 0.0) -> None:
        limits.append(limit)

    monkeypatch.setattr(programs, "run_module", ended)
    if isinstance(suite, PytestSuite):
        suite = replace(suite, start=ended)
    assert suite.run(tmp_path).incomplete == "it was ended after 40 minutes"
    assert suite.run_one("x", tmp_path).incomplete == "it was ended after 10 minutes"
    assert limits == [2400, 600]


# The command.

SLOW_TO_END = """
import signal, sys, time
from pathlib import Path

def leave(*_):
    time.sleep(1)
    Path("ended").touch()
    sys.exit(2)

signal.signal(signal.SIGINT, leave)
signal.signal(signal.SIGTERM, leave)
Path("started").touch()
time.sleep(60)
"""
RUNS_IT = """
from pathlib import Path
from tests.run.pytest_suite import run_module
run_module(["slow_to_end"], Path.cwd(), 60)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_stopped_waits_for_its_child(tmp_path: Path, number: signal.Signals) -> None:
    """The child hears of Ctrl-C and of SIGTERM through its parent."""
    (tmp_path / "slow_to_end.py").write_text(SLOW_TO_END)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", RUNS_IT],
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as parent:
        while not (tmp_path / "started").exists():
            assert parent.poll() is None
            time.sleep(0.01)
        send = os.killpg if number is signal.SIGINT else os.kill
        send(parent.pid, number)
        assert parent.wait() != 0
    assert (tmp_path / "ended").exists()


def test_the_command_stopped_by_ctrl_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(suites: object, kept: Kept) -> turns.Verdict:
        kept.work("vm")
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "KEPT", tmp_path / "unsteady")
    monkeypatch.setattr(turns, "run", stop)
    assert command.main([]) == 130
    assert not list((tmp_path / "unsteady").iterdir())


# Conformance programs.


def _entry(name: str, *verdicts: Verdict) -> Entry:
    return Entry("roce", "own", name, 1.0, verdicts)


def test_programs_that_failed(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    bad = _entry("bad", Verdict(PASSED, part="x"), Verdict(FAILED, "no luck", "y"))
    for entry in (bad, _entry("good", Verdict(PASSED)), _entry("none", Verdict(SKIPPED))):
        journal.add(entry)
    journal.keep(bad, [("client", "what it printed")])
    keys = {"roce/own/bad", "roce/own/good", "roce/own/none"}
    outcome = programs.read(journal, 1, keys)
    (failed,) = outcome.failed
    assert (failed.test, failed.reason) == ("roce/own/bad", "no luck")
    assert failed.folders[0].read_text() == "=== client\nwhat it printed\n"
    assert [each.test for each in outcome.passed] == ["roce/own/good"]
    assert not outcome.incomplete
    assert programs.read(journal, 130, keys).incomplete
    assert programs.read(journal, 0, keys).incomplete


def test_programs_that_never_ran(tmp_path: Path) -> None:
    """One failed, and the next pair did not start: the status is 1 for either reason."""
    journal = Journal(tmp_path)
    journal.add(_entry("bad", Verdict(FAILED, "no luck")))
    outcome = programs.read(journal, 1, {"roce/own/bad", "roce/own/next", "roce/own/other"})
    assert [each.test for each in outcome.failed] == ["roce/own/bad"]
    assert outcome.incomplete == (
        "the conformance run ended with status 1; not run: 2 programs, roce/own/next for one"
    )


# The long lists.


@pytest.mark.parametrize(("tests", "runs", "status"), [(0, 4, 0), (1, 4, 2), (130, 3, 2)])
def test_the_long_lists_run_both_and_fail_if_either_did(
    tmp_path: Path, tests: int, runs: int, status: int
) -> None:
    """Unless the first was stopped. 2 is the status of `make` for a failure."""
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\necho "$2" >> {tmp_path}/runs\n[ "$2" != tests.run ] || exit {tests}\n'
    )
    python.chmod(0o755)
    words = ["make", "-o", "setup", "conformance", f"BIN={tmp_path}"]
    assert subprocess.run(words, cwd=ROOT, capture_output=True, check=False).returncode == status
    names = ["tests.mutants", "pytest", "tests.run", "tests.campaigns.conformance"]
    assert (tmp_path / "runs").read_text().split() == names[:runs]
