"""Suites with guests: a test that fails gets a second turn alone, and what that makes of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.run import turns
from tests.run.turns import Kept, Outcome, Result
from tests.unit.testing.conftest import BEGAN


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
    verdict = turns.run([Scripted()], kept)
    kept.close()
    assert verdict.passed
    assert turns.summary(verdict, kept) == ["passed: 0 unsteady (2 allowed)"]
    assert not kept.run.exists()
    assert not kept.list.exists()


MANY = tuple(f"t{number}" for number in range(turns.MOST_AGAIN + 1))


@pytest.mark.parametrize(
    ("suites", "last"),
    [
        ([Scripted(first=("t1",))], "passed: 1 unsteady (2 allowed)"),
        ([Scripted(first=("t1", "t2"))], "passed: 2 unsteady (2 allowed)"),
        ([Scripted(first=("t1", "t2", "t3"))], "failed: 3 unsteady (2 allowed)"),
        (
            [Scripted(first=("t1", "t2"), name="one"), Scripted(first=("t3",), name="other")],
            "failed: 3 unsteady (2 allowed)",
        ),
        (
            [Scripted(first=("t1", "t2"), second=("t2",))],
            "failed: 1 failed twice, 1 unsteady (2 allowed)",
        ),
        ([Scripted(first=("t1",), silent=True)], "failed: 1 failed twice, 0 unsteady (2 allowed)"),
        (
            [Scripted(first=("t1",), second=("t1",)), Scripted(incomplete="stopped", name="other")],
            "failed: 1 failed twice, 0 unsteady (2 allowed), 1 suite incomplete",
        ),
        (
            [Scripted(first=MANY)],
            "failed: 11 failed (more than 10: none was run again), 0 unsteady (2 allowed)",
        ),
    ],
)
def test_what_a_run_came_to(kept: Kept, suites: list[Scripted], last: str) -> None:
    verdict = turns.run(suites, kept)
    summary = turns.summary(verdict, kept)
    assert (verdict.passed, summary[-1]) == (last.startswith("passed"), last)
    for suite in suites:
        assert suite.alone == ([] if suite.first == MANY else [*suite.first])
        told = f"did not run to its end: {suite.name}: stopped"
        assert (told in summary) is bool(suite.incomplete)


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

    turns.run([Noting(first=("t1",), name="one"), Noting(name="other")], kept)
    assert order == ["one", "other", "t1"]


def test_what_fails_twice_fails_the_run(kept: Kept) -> None:
    verdict = turns.run([Scripted(first=("t1", "t2"), second=("t2",))], kept)
    assert not verdict.passed
    assert [each.test for each in verdict.failed] == ["t2"]
    assert [each.test for each in verdict.unsteady] == ["t1"]
    said = turns.summary(verdict, kept)
    assert said[0] == f"failed: t2: no luck; see {kept.folder('t2')}"
    for test, turn in (("t1", "first"), ("t1", "second"), ("t2", "first"), ("t2", "second")):
        assert (kept.folder(test) / turn / "report.txt").exists()


def test_the_list_shows_the_last_runs(kept: Kept, tmp_path: Path) -> None:
    turns.run([Scripted(first=("t1",))], kept)
    other = Kept(tmp_path / "unsteady", lambda: BEGAN)
    assert other.run != kept.run, "two runs may begin in the same second"
    verdict = turns.run([Scripted()], other)
    line = f"2026-11-22 06:00  t1  no luck  {kept.folder('t1')}"
    assert turns.summary(verdict, other) == [
        f"unsteady in the last runs ({kept.list}):",
        f"  {line}",
        "passed: 0 unsteady (2 allowed)",
    ]


def test_what_is_on_the_list_may_not_be_unsteady_again(kept: Kept, tmp_path: Path) -> None:
    """Until its lines are deleted; a test whose name begins alike is another one."""
    turns.run([Scripted(first=("t1",))], kept)
    other = Kept(tmp_path / "unsteady", lambda: BEGAN)
    verdict = turns.run([Scripted(first=("t1", "t"))], other)
    assert [each.test for each in verdict.again] == ["t1"] and not verdict.passed
    *_, line, last = turns.summary(verdict, other)
    assert line == f"unsteady again: t1: mend it, then delete its lines from {other.list}"
    assert last == "failed: 2 unsteady (2 allowed), 1 unsteady again (none allowed)"
    other.list.unlink()
    assert turns.run([Scripted(first=("t1",))], Kept(tmp_path / "unsteady")).passed


def test_tests_with_similar_names_have_folders_of_their_own(kept: Kept) -> None:
    suite = Scripted(first=("t[a b]", "t[a:b]"), second=("t[a:b]",))
    turns.run([suite], kept)
    for test in suite.first:
        for turn in ("first", "second"):
            assert test in (kept.folder(test) / turn / "report.txt").read_text()


def test_a_transcript_that_vanishes_is_told_and_the_rest_kept(
    kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "scratch"
    source.mkdir()
    for name in ("console", "log"):
        (source / name).write_text(name)

    def after_listing(folder: str, names: Sequence[str]) -> set[str]:
        """The file is removed between the listing of its folder and its copy."""
        (Path(folder) / "log").unlink()
        return set()

    monkeypatch.setattr("tests.run.turns._unwanted", after_listing)
    kept.keep(Result("t1", report="why\n", folders=(source,)), "first")
    place = kept.folder("t1") / "first"
    assert [path.name for path in (place / "0-scratch").iterdir()] == ["console"]
    report = (place / "report.txt").read_text()
    assert report.startswith("why\nnot copied completely: ") and "log" in report
