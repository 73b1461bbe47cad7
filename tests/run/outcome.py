"""What a run of a suite came to: the tests that failed or passed, and whether it was whole."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Result:
    """A test that has run."""

    test: str
    """What names it in its suite: a node id of pytest, or the key of a conformance program."""
    reason: str = ""
    """Why it failed, in one line."""
    report: str = ""
    """All that its suite says of it."""
    folders: tuple[Path, ...] = ()
    """Folders and files with its consoles, logs and bus log."""


@dataclass(frozen=True)
class Outcome:
    """One run of a suite, or of one test of it."""

    failed: tuple[Result, ...] = ()
    passed: tuple[Result, ...] = ()
    incomplete: str = ""
    """Why some of the tests did not run; empty when all of them did."""


def ended_by_limit(outcome: Outcome, limit: float) -> Outcome:
    """The outcome of a run that was ended after `limit` seconds."""
    return replace(outcome, incomplete=f"it was ended after {limit / 60:g} minutes")


class Suite(Protocol):
    """Tests that use guests."""

    @property
    def name(self) -> str:
        """Its name in messages and paths."""
        ...

    def run(self, folder: Path) -> Outcome:
        """Run all of it; what it records is put into `folder`, which exists."""
        ...

    def run_one(self, test: str, folder: Path) -> Outcome:
        """Run one test with nothing beside it, and keep its transcripts even if it passes."""
        ...
