"""Failed tests get a second turn, alone; what that makes of the whole run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.run.kept import Kept
from tests.run.outcome import Outcome, Result, Suite

MOST_UNSTEADY = 2
"""Tests that may fail at first and pass alone in a run that passes."""
MOST_AGAIN = 10
"""With more failures than that nothing is run again: a busy host is not the cause."""


@dataclass
class Verdict:
    """The tests of a run that did not simply pass."""

    unsteady: list[Result] = field(default_factory=list)
    """They failed, and passed alone; each as it failed."""
    failed: list[Result] = field(default_factory=list)
    """They failed twice, or got no second turn."""
    incomplete: list[str] = field(default_factory=list)
    """Suites that did not run to their end, and why."""

    @property
    def passed(self) -> bool:
        """Whether the run passes."""
        return not (self.failed or self.incomplete) and len(self.unsteady) <= MOST_UNSTEADY


def run(suites: Sequence[Suite], kept: Kept) -> Verdict:
    """Run suite after suite, then each failed test once more with nothing beside it."""
    verdict = Verdict()
    first = [(suite, _first_turn(suite, kept, verdict)) for suite in suites]
    failed = [(suite, result) for suite, outcome in first for result in outcome.failed]
    if len(failed) > MOST_AGAIN:
        verdict.failed += [result for _, result in failed]
    else:
        for suite, result in failed:
            passed = _second_turn(suite, result.test, kept)
            (verdict.unsteady if passed else verdict.failed).append(result)
    kept.add(verdict.unsteady)
    return verdict


def _first_turn(suite: Suite, kept: Kept, verdict: Verdict) -> Outcome:
    outcome = suite.run(kept.work(suite.name))
    if outcome.incomplete:
        verdict.incomplete.append(f"{suite.name}: {outcome.incomplete}")
    for result in outcome.failed:
        kept.keep(result, "first")
    return outcome


def _second_turn(suite: Suite, test: str, kept: Kept) -> bool:
    """Whether the test passes alone."""
    outcome = suite.run_one(test, kept.work(f"second-{suite.name}-{test}"))
    for result in (*outcome.failed, *outcome.passed):
        kept.keep(result, "second")
    passed = [result.test for result in outcome.passed]
    return passed == [test] and not (outcome.failed or outcome.incomplete)


def summary(verdict: Verdict, kept: Kept) -> list[str]:
    """The last lines of a run."""
    lines = [f"did not run to its end: {each}" for each in verdict.incomplete]
    lines += _told("failed", verdict.failed, kept)
    lines += _told("unsteady (failed, and passed alone)", verdict.unsteady, kept)
    if listed := kept.last_lines():
        lines += [f"unsteady in the last runs ({kept.list}):", *(f"  {line}" for line in listed)]
    result = "passed" if verdict.passed else "failed"
    count = len(verdict.unsteady)
    return [*lines, f"{result}: {count} unsteady, {MOST_UNSTEADY} allowed"]


def _told(what: str, results: Sequence[Result], kept: Kept) -> list[str]:
    return [f"{what}: {each.test}: {each.reason}; see {kept.folder(each.test)}" for each in results]
