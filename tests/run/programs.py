"""The quick programs of the conformance run as a suite."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

from tests.campaigns.conformance import results
from tests.campaigns.conformance.program import FAILED, PASSED
from tests.campaigns.conformance.results import Entry, Journal
from tests.campaigns.conformance.suites import everything, in_short_run, key
from tests.run.pytest_suite import ONE_TEST, SUITE, run_module
from tests.run.turns import Outcome, Result, ended_by_limit

_COMPLETE = (0, 1)


@dataclass(frozen=True)
class Programs:
    """Stock programs between two guests."""

    name: str = "conformance"

    def run(self, folder: Path) -> Outcome:
        """Run all quick ones."""
        chosen = {key(choice) for choice in everything() if in_short_run(choice)}
        return _run(("--short",), folder, SUITE, chosen)

    def run_one(self, test: str, folder: Path) -> Outcome:
        """Run one between guests of its own; `test` is its key."""
        return _run(("--key", test), folder, ONE_TEST, {test})


def _run(words: tuple[str, ...], folder: Path, limit: float, chosen: Set[str]) -> Outcome:
    command = ("tests.campaigns.conformance", *words, "--resume", str(folder))
    status = run_module(command, limit=limit)
    outcome = read(Journal(folder), status, chosen)
    return ended_by_limit(outcome, limit) if status is None else outcome


def read(journal: Journal, status: int | None, chosen: Set[str]) -> Outcome:
    """What a run of the programs with the keys `chosen` came to.

    It left `journal` and ended with exit status `status`.
    """
    bad = [entry for entry in journal.entries if entry.failed]
    good = [entry for entry in journal.entries if not entry.failed and entry.counts()[PASSED]]
    return Outcome(
        tuple(_result(entry, journal) for entry in bad),
        tuple(_result(entry, journal) for entry in good),
        _missing(chosen - {entry.key for entry in journal.entries}, status, bool(bad)),
    )


def _missing(left: Set[str], status: int | None, failed: bool) -> str:
    """Why the journal says nothing about some programs; empty if it does about all.

    The status is 1 after a failed program, after a `LabError` and after a traceback alike.
    """
    told = f"the conformance run ended with status {status}"
    if left:
        return f"{told}; not run: {len(left)} programs, {min(left)} for one"
    return "" if status in _COMPLETE and failed == bool(status) else told


def _result(entry: Entry, journal: Journal) -> Result:
    reason = next((each.reason for each in entry.verdicts if each.status == FAILED), "")
    places = (journal.output(entry), journal.folder / "logs")
    return Result(entry.key, reason, "\n".join(results.lines(entry)) + "\n", places)
