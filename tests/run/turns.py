"""What stays of a run: the transcripts of tests that failed, and the list of unsteady tests."""

from __future__ import annotations

import hashlib
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
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


SHOWN = 10
"""How many of the last lines of the list are shown."""
_LARGEST = 256 << 20
"""Bytes; larger files are not copied."""
_LONGEST_NAME = 80
"""Characters of the readable part of a folder's name."""
_DATE = "%Y-%m-%d %H:%M"
_DATE_LENGTH = 16


class Kept:
    """`root`/list.txt and a folder for each run with a failure, named after its beginning."""

    def __init__(self, root: Path, clock: Callable[[], time.struct_time] = time.localtime) -> None:
        """Makes the folder of this run."""
        self.list = root / "list.txt"
        self._began = clock()
        self.run = _new(root / time.strftime("%Y%m%d-%H%M%S", self._began))
        self._work = self.run / "work"

    def work(self, name: str) -> Path:
        """A new folder for what a suite records while it runs; `close` removes it."""
        folder = self._work / _file_name(name)
        folder.mkdir(parents=True)
        return folder

    def folder(self, test: str) -> Path:
        """Where the transcripts of a test are kept."""
        return self.run / _file_name(test)

    def keep(self, result: Result, turn: str) -> None:
        """Copy the transcripts of one turn, `first` or `second`, of a test."""
        place = self.folder(result.test) / turn
        place.mkdir(parents=True)
        with (place / "report.txt").open("w") as report:
            report.write(result.report)
            for number, source in enumerate(result.folders):
                report.writelines(_copy(source, place / f"{number}-{source.name}"))

    def add(self, unsteady: Sequence[Result]) -> None:
        """Put tests that passed in their second turn on the list."""
        if not unsteady:
            return
        date = time.strftime(_DATE, self._began)
        with self.list.open("a") as stream:
            for each in unsteady:
                stream.write(f"{date}  {each.test}  {each.reason}  {self.folder(each.test)}\n")

    def last_lines(self) -> list[str]:
        """The end of the list: unsteady tests of the last runs, this one's included."""
        return self._lines()[-SHOWN:]

    def has(self, test: str) -> bool:
        """Whether a test is on the list."""
        return any(line[_DATE_LENGTH:].startswith(f"  {test}  ") for line in self._lines())

    def _lines(self) -> list[str]:
        return self.list.read_text().splitlines() if self.list.is_file() else []

    def close(self) -> None:
        """Remove what only this run needed; its folder too when nothing was kept."""
        shutil.rmtree(self._work, ignore_errors=True)
        if not any(self.run.iterdir()):
            self.run.rmdir()


def _new(path: Path) -> Path:
    """Make a folder called `path`, or `path` with a number when there is one."""
    number = 1
    while True:
        made = path if number == 1 else path.with_name(f"{path.name}-{number}")
        try:
            made.mkdir(parents=True)
            return made
        except FileExistsError:
            number += 1


def _file_name(test: str) -> str:
    """A name of its own for each test: what of it may stand in a name, and a digest of all."""
    readable = re.sub(r"[^A-Za-z0-9_.=]+", "-", test).strip("-.")[-_LONGEST_NAME:]
    return f"{readable}-{hashlib.sha256(test.encode()).hexdigest()[:8]}"


def _copy(source: Path, target: Path) -> Iterator[str]:
    """Copy a file or a folder, without sockets and without what is larger than a transcript.

    Yields a line when something could not be copied: processes that end may still remove files.
    """
    try:
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True, ignore=_unwanted)
        elif source.is_file():
            shutil.copy2(source, target)
    except OSError as error:  # of `copytree` at its end: it has copied all else
        yield f"not copied completely: {source}: {error}\n"


def _unwanted(folder: str, names: Iterable[str]) -> set[str]:
    return {name for name in names if not _wanted(Path(folder) / name)}


def _wanted(path: Path) -> bool:
    if path.is_symlink() or path.is_dir():
        return True
    try:
        return path.is_file() and path.stat().st_size <= _LARGEST
    except FileNotFoundError:
        return False


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
