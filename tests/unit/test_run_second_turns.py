"""Suites with guests: a test that fails gets a second turn alone, and what that makes of a run."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest import mock

import pytest

from bluebridge.host_tools.conformance.journal import Entry, Journal
from bluebridge.host_tools.conformance.program import FAILED, PASSED, SKIPPED, Verdict
from tests.run import __main__ as command
from tests.run import programs, pytest_suite, second_turns
from tests.run.child import ROOT, run_module
from tests.run.kept import Kept
from tests.run.outcome import Outcome, Result
from tests.run.pytest_suite import PytestSuite

BEGAN = time.strptime("2026-11-22 06:00:00", "%Y-%m-%d %H:%M:%S")


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    """What stays of a run."""
    return Kept(tmp_path / "unsteady", lambda: BEGAN)


@dataclass
class Scripted:
    """A suite whose tests fail as they are told."""

    first: tuple[str, ...] = ()
    """Tests that fail in the first turn."""
    second: tuple[str, ...] = ()
    """Tests that fail in the second turn."""
    incomplete: str = ""
    silent: bool = False
    """Whether a second turn says nothing of the test, as of one that is skipped."""
    name: str = "scripted"
    alone: list[str] = field(default_factory=list)
    """Tests that got a second turn."""

    def run(self, folder: Path) -> Outcome:
        """All of them."""
        failed = tuple(Result(test, "no luck", f"{test}: no luck\n") for test in self.first)
        return Outcome(failed, incomplete=self.incomplete)

    def run_one(self, test: str, folder: Path) -> Outcome:
        """One of them."""
        self.alone.append(test)
        result = Result(test, "no luck again", f"{test}\n")
        if test in self.second:
            return Outcome(failed=(result,))
        return Outcome() if self.silent else Outcome(passed=(result,))


def test_a_run_without_a_failure_leaves_nothing(kept: Kept) -> None:
    verdict = second_turns.run([Scripted()], kept)
    kept.close()
    assert verdict.passed
    assert second_turns.summary(verdict, kept) == ["passed: 0 unsteady, 2 allowed"]
    assert not kept.run.exists()
    assert not kept.list.exists()


@pytest.mark.parametrize(("count", "passed"), [(1, True), (2, True), (3, False)])
def test_at_most_two_tests_may_be_unsteady(kept: Kept, count: int, passed: bool) -> None:
    suite = Scripted(first=("t1", "t2", "t3")[:count])
    verdict = second_turns.run([suite], kept)
    assert suite.alone == list(suite.first)
    assert [each.test for each in verdict.unsteady] == suite.alone
    assert verdict.passed is passed
    assert not verdict.failed
    last = second_turns.summary(verdict, kept)[-1]
    assert last == f"{'passed' if passed else 'failed'}: {count} unsteady, 2 allowed"


def test_unsteady_tests_of_all_suites_count_together(kept: Kept) -> None:
    suites = [Scripted(first=("t1", "t2"), name="one"), Scripted(first=("t3",), name="other")]
    assert not second_turns.run(suites, kept).passed


def test_all_suites_run_before_any_second_turn(kept: Kept) -> None:
    order: list[str] = []

    @dataclass
    class Noting(Scripted):
        def run(self, folder: Path) -> Outcome:
            order.append(self.name)
            return super().run(folder)

        def run_one(self, test: str, folder: Path) -> Outcome:
            order.append(test)
            return super().run_one(test, folder)

    second_turns.run([Noting(first=("t1",), name="one"), Noting(name="other")], kept)
    assert order == ["one", "other", "t1"]


def test_what_fails_twice_fails_the_run(kept: Kept) -> None:
    verdict = second_turns.run([Scripted(first=("t1", "t2"), second=("t2",))], kept)
    assert not verdict.passed
    assert [each.test for each in verdict.failed] == ["t2"]
    assert [each.test for each in verdict.unsteady] == ["t1"]
    said = second_turns.summary(verdict, kept)
    assert said[0] == f"failed: t2: no luck; see {kept.folder('t2')}"
    for test, turn in (("t1", "first"), ("t1", "second"), ("t2", "first"), ("t2", "second")):
        assert (kept.folder(test) / turn / "report.txt").exists()


def test_a_second_turn_that_says_nothing_is_no_pass(kept: Kept) -> None:
    verdict = second_turns.run([Scripted(first=("t1",), silent=True)], kept)
    assert not verdict.passed and [each.test for each in verdict.failed] == ["t1"]


def test_a_suite_that_was_not_run_to_its_end_is_no_pass(kept: Kept) -> None:
    verdict = second_turns.run([Scripted(incomplete="stopped")], kept)
    assert not verdict.passed
    assert second_turns.summary(verdict, kept)[0] == "did not run to its end: scripted: stopped"


def test_many_failures_get_no_second_turn(kept: Kept) -> None:
    tests = tuple(f"t{number}" for number in range(second_turns.MOST_AGAIN + 1))
    suite = Scripted(first=tests)
    verdict = second_turns.run([suite], kept)
    assert not suite.alone and not verdict.passed
    assert [each.test for each in verdict.failed] == list(tests)


def test_the_list_shows_the_last_runs(kept: Kept, tmp_path: Path) -> None:
    second_turns.run([Scripted(first=("t1",))], kept)
    other = Kept(tmp_path / "unsteady", lambda: BEGAN)
    assert other.run != kept.run, "two runs may begin in the same second"
    verdict = second_turns.run([Scripted()], other)
    line = f"2026-11-22 06:00  t1  no luck  {kept.folder('t1')}"
    assert second_turns.summary(verdict, other) == [
        f"unsteady in the last runs ({kept.list}):",
        f"  {line}",
        "passed: 0 unsteady, 2 allowed",
    ]


# Runs of pytest.

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


def _in_this_process(words: Sequence[str], folder: Path) -> int:
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
    verdict = second_turns.run([suite], kept)
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
    verdict = second_turns.run([suite], kept)
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


def test_a_session_that_was_killed_has_no_end(tmp_path: Path) -> None:
    record = tmp_path / "record"
    record.write_text('{"passed": "test_it.py::test_it", "folders": []}\n')
    outcome = pytest_suite.read(record, -9)
    assert "interrupted or could not start (status -9)" in outcome.incomplete


def test_a_record_that_does_not_explain_the_status(tmp_path: Path) -> None:
    record = tmp_path / "record"
    record.write_text('{"end": 1, "stopped": ""}\n')
    assert "do not explain" in pytest_suite.read(record, 1).incomplete
    assert "interrupted" in pytest_suite.read(record, 0).incomplete
    assert "interrupted" in pytest_suite.read(tmp_path / "none", 0).incomplete


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
from tests.run.child import run_module
run_module(["slow_to_end"], Path.cwd())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_stopped_waits_for_its_child(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C goes to both; of SIGTERM the child hears through its parent."""
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
    def stop(suites: object, kept: Kept) -> second_turns.Verdict:
        kept.work("vm")
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "KEPT", tmp_path / "unsteady")
    monkeypatch.setattr(second_turns, "run", stop)
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
    outcome = programs.read(journal, 1)
    (failed,) = outcome.failed
    assert (failed.test, failed.reason) == ("roce/own/bad", "no luck")
    assert failed.folders[0].read_text() == "=== client\nwhat it printed\n"
    assert [each.test for each in outcome.passed] == ["roce/own/good"]
    assert not outcome.incomplete
    assert programs.read(journal, 130).incomplete
    assert programs.read(journal, 0).incomplete
