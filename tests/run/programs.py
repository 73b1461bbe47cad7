"""The quick programs of the conformance run as a suite."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bluebridge.host_tools.conformance import page
from bluebridge.host_tools.conformance.journal import Entry, Journal
from bluebridge.host_tools.conformance.program import FAILED, PASSED
from tests.run.child import run_module
from tests.run.outcome import Outcome, Result

_COMPLETE = (0, 1)


@dataclass(frozen=True)
class Programs:
    """Stock programs between two guests; a failure with a known cause counts as none."""

    name: str = "conformance"

    def run(self, folder: Path) -> Outcome:
        """Run all quick ones."""
        return _run(("--short",), folder)

    def run_one(self, test: str, folder: Path) -> Outcome:
        """Run one between guests of its own; `test` is its key."""
        return _run(("--key", test), folder)


def _run(words: tuple[str, ...], folder: Path) -> Outcome:
    status = run_module(("bluebridge.host_tools.conformance", *words, "--resume", str(folder)))
    return read(Journal(folder), status)


def read(journal: Journal, status: int) -> Outcome:
    """What a run came to that left `journal` and ended with exit status `status`."""
    bad = [entry for entry in journal.entries if page.unexpected([entry])]
    good = [entry for entry in journal.entries if not entry.failed and entry.counts()[PASSED]]
    complete = status in _COMPLETE and bool(bad) == bool(status)
    return Outcome(
        tuple(_result(entry, journal) for entry in bad),
        tuple(_result(entry, journal) for entry in good),
        "" if complete else f"the conformance run ended with status {status}",
    )


def _result(entry: Entry, journal: Journal) -> Result:
    reason = next((each.reason for each in entry.verdicts if each.status == FAILED), "")
    places = (journal.output(entry), journal.folder / "logs")
    return Result(entry.key, reason, "\n".join(page.lines(entry)) + "\n", places)
