"""Run stock programs in guests, print a table, write the page."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence, Set
from pathlib import Path

from bluebridge.host_tools.errors import LabError, Progress, Reporter, UsageError
from bluebridge.images.cache import HOME
from bluebridge.printable import printable_lines
from tests.campaigns.conformance import results
from tests.campaigns.conformance.program import FAILED, Program, Verdict
from tests.campaigns.conformance.results import Entry, Journal
from tests.campaigns.conformance.runner import Run
from tests.campaigns.conformance.session import NotUp, Session
from tests.campaigns.conformance.suites import Choice, everything, in_short_run, key

_RUNS = HOME / "build" / "conformance"


def main(argv: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; returns the exit status.

    0: nothing failed. 1: something did. 2: a wrong command line. 130: stopped.
    """
    options = _parser().parse_args(argv)
    try:
        return _main(options)
    except LabError as error:
        print(f"conformance: {error}", file=sys.stderr)
        return error.status
    except KeyboardInterrupt:
        print("conformance: stopped", file=sys.stderr)
        return 130


def _main(options: argparse.Namespace) -> int:
    chosen = _chosen(options)
    if options.list:
        print("\n".join(key(choice) for choice in chosen))
        return 0
    journal = Journal(options.resume or _RUNS / time.strftime("%Y%m%d-%H%M%S"))
    progress = Reporter()
    progress(f"{len(chosen)} programs; to go on after a stop: --resume {journal.folder}")
    _run(chosen, journal, progress)
    found = {entry.key: entry for entry in journal.entries}
    entries = [found[key(choice)] for choice in chosen]
    return _report(entries, {key(choice) for choice in chosen})


def _report(entries: Sequence[Entry], chosen: Set[str]) -> int:
    """Print the table; write each page whose programs were all chosen."""
    print(printable_lines(results.table(entries)))
    for path, setups in results.PAGES.items():
        keys = {key(choice) for choice in everything() if choice[0] in setups}
        if keys <= chosen:
            found = [entry for entry in entries if entry.key in keys]
            path.write_text(results.page(path.read_text(), setups, found))
            print(f"written: {path}")
    failures = results.failures(entries)
    print(f"{len(entries)} programs, {len(failures)} failures")
    return 1 if failures else 0


def _chosen(options: argparse.Namespace) -> list[Choice]:
    chosen = [
        choice
        for choice in everything()
        if (not options.short or in_short_run(choice))
        and (not options.setup or choice[0].name in options.setup)
        and (not options.key or key(choice) in options.key)
        and all(word in key(choice) for word in options.only)
    ]
    if not chosen:
        raise UsageError("no program is called that", "see --list")
    return chosen


def _run(chosen: Sequence[Choice], journal: Journal, progress: Progress) -> None:
    """Run what the journal lacks, with one pair per setup and a new one after each failure."""
    left = [choice for choice in chosen if not journal.has(key(choice))]
    while left:
        setup = left[0][0]
        progress(f"a pair of guests: {setup.what}")
        try:
            with Session(setup, journal.folder / "logs") as session:
                while left and left[0][0] == setup:
                    if not _one(session, left.pop(0)[1], journal, progress):
                        break
        except NotUp as error:
            progress(f"{setup.name}: {error}")
            for _, program in (choice for choice in left if choice[0] == setup):
                why = Verdict(FAILED, f"the guests did not come up: {error.what}")
                journal.add(Entry(setup.name, program.suite, program.name, 0.0, (why,)))
            left = [choice for choice in left if choice[0] != setup]


def _one(session: Session, program: Program, journal: Journal, progress: Progress) -> bool:
    """Run one program; false when the session cannot be used afterwards."""
    run = Run(session, program)
    entry = run.entry()
    journal.add(entry)
    for line in results.lines(entry):
        progress(line)
    if entry.failed:
        progress(f"  its output: {journal.keep(entry, run.texts)}")
    return not run.broken


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaigns.conformance", description=__doc__
    )
    parser.add_argument("--short", action="store_true", help="only the quick programs")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="WORDS",
        help="only what has WORDS in its key",
    )
    parser.add_argument(
        "--key", action="append", default=[], help="only the program that --list calls so"
    )
    names = [setup.name for setups in results.PAGES.values() for setup in setups]
    parser.add_argument("--setup", action="append", choices=names, help="only these")
    parser.add_argument("--resume", type=Path, metavar="DIR", help="go on with the run in DIR")
    parser.add_argument("--list", action="store_true", help="print the keys and end")
    return parser


if __name__ == "__main__":
    sys.exit(main())
