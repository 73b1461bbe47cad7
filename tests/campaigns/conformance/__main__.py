"""Print the results of `make conformance` as a table, and write the pages that have all of theirs.

    python -m tests.campaigns.conformance [--card CARD] [DIR]

DIR has the results of `pytest tests/vm/test_programs.py --card CARD --results DIR`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bluebridge.device import cards
from bluebridge.host_tools.errors import UsageError
from bluebridge.images.cache import HOME
from bluebridge.printable import printable_lines
from tests.campaigns.conformance import results
from tests.campaigns.conformance.results import Journal
from tests.campaigns.conformance.suites import everything, key

RESULTS = HOME / "build" / "conformance"


def main(folder: Path, card: str = cards.DEFAULT) -> int:
    """Return the exit status: 1 if a program failed, 2 where there are no results."""
    try:
        journal = Journal(folder)
    except UsageError as error:
        print(f"conformance: {error}", file=sys.stderr)
        return error.status
    choices = everything(card)
    found = [journal.entries[key(each)] for each in choices if key(each) in journal.entries]
    print(printable_lines(results.table(found)))
    for path, setups in results.PAGES.items():
        keys = [key(each) for each in choices if each[0] in setups]
        if keys and all(each in journal.entries for each in keys):
            entries = [journal.entries[each] for each in keys]
            path.write_text(results.page(path.read_text(), setups, entries))
            print(f"written: {path}")
    if len(found) == len(choices):
        journal.end()
    failures = results.failures(found)
    print(f"{len(found)} of {len(choices)} programs, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaigns.conformance", description=__doc__
    )
    parser.add_argument("folder", type=Path, nargs="?", default=RESULTS, metavar="DIR")
    parser.add_argument("--card", choices=tuple(cards.CARDS), default=cards.DEFAULT)
    options = parser.parse_args()
    sys.exit(main(options.folder, options.card))
