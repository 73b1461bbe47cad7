"""Failed tests get a second turn, alone; what that makes of the whole run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    again: list[Result] = field(default_factory=list)
    """The unsteady ones that are on the list from an earlier run."""
    failed: list[Result] = field(default_factory=list)
    """They failed twice, or got no second turn."""
    incomplete: list[str] = field(default_factory=list)
    """Suites that did not run to their end, and why."""

    @property
    def passed(self) -> bool:
        """Whether the run passes."""
        bad = self.failed or self.incomplete or self.again
        return not bad and len(self.unsteady) <= MOST_UNSTEADY


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
    verdict.again += [result for result in verdict.unsteady if kept.has(result.test)]
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
    lines += [
        f"unsteady again: {each.test}: mend it, then delete its lines from {kept.list}"
        for each in verdict.again
    ]
    result = "passed" if verdict.passed else "failed"
    return [*lines, f"{result}: {', '.join(_counts(verdict))}"]


def _counts(verdict: Verdict) -> Iterator[str]:
    """How many tests, and suites, did not simply pass."""
    if len(verdict.failed) > MOST_AGAIN:
        yield f"{len(verdict.failed)} failed (more than {MOST_AGAIN}: none was run again)"
    elif verdict.failed:
        yield f"{len(verdict.failed)} failed twice"
    yield f"{len(verdict.unsteady)} unsteady ({MOST_UNSTEADY} allowed)"
    if verdict.again:
        yield f"{len(verdict.again)} unsteady again (none allowed)"
    if count := len(verdict.incomplete):
        yield f"{count} suite{'s' if count > 1 else ''} incomplete"


def _told(what: str, results: Sequence[Result], kept: Kept) -> list[str]:
    return [f"{what}: {each.test}: {each.reason}; see {kept.folder(each.test)}" for each in results]
