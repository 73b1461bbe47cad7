"""Plant defects, one after another; the tests named for each must notice it."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

import pytest

from tests.mutants import judge
from tests.mutants.judge import Ended, Run
from tests.mutants.operations import DoesNotApply
from tests.mutants.page import text
from tests.mutants.table import Defect, rows

_BRIEF = "brief"
NEWLINE = "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 if all were noticed, 1 if not, 2 for a wrong name, 130 after Ctrl-C."""
    options = _parser().parse_args(argv)
    if options.page:
        print(text(), end="")
        return 0
    table = {defect.name: defect for defect in rows()}
    if unknown := [name for name in options.names if name not in table]:
        print(f"there is no planted defect {unknown[0]}; tests/mutants/tables has them")
        return 2
    chosen = [table[name] for name in options.names] or list(table.values())
    try:
        return _campaign(chosen, options.workers, options.by == "test")
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130


def _campaign(chosen: list[Defect], workers: int, brief: bool) -> int:
    began = time.monotonic()
    if said := judge.warm(sorted({test for defect in chosen for test in defect.tests})):
        print(said, "Not all the tests are there that defects name.", sep="\n")
        return 1
    runs = [Run(defect, defect.tests, brief) for defect in chosen if _applies(defect)]
    noticed = [ended for run, ended in judge.run_all(runs, workers) if _told(run, ended)]
    of_test = sum(ended.part == _BRIEF for ended in noticed)
    counts = f"{of_test} noticed by `make test`, {len(noticed)} by `make test-all`"
    sound = _sound(sorted({ended.test for ended in noticed}), workers)
    print(f"{len(chosen)} planted defects: {counts}; {time.monotonic() - began:.0f} s")
    return 0 if sound and len(noticed) == len(chosen) else 1


def _applies(defect: Defect) -> bool:
    try:
        defect.code(defect.file)
    except DoesNotApply as error:
        print(f"UNNOTICED {defect.name}: does not apply: {error}")
        return False
    return True


def _told(run: Run, ended: Ended) -> bool:
    """Say how a run ended; return whether a test noticed its defect."""
    defect = run.defect
    assert defect is not None
    why = _unnoticed(defect, ended)
    word = "UNNOTICED" if why else "noticed"
    told = why or f"{ended.test} - {ended.message.partition(NEWLINE)[0]}"
    print(f"{word:9} {defect.name}: {told}", flush=True)
    if why:
        print(f"          {defect.file}, rule: {defect.rule}", flush=True)
    return not why


def _unnoticed(defect: Defect, ended: Ended) -> str:
    """Why that is no notice; empty if it is one."""
    if ended.status is None:
        return f"pytest did not end in time\n{ended.output}"
    if ended.status == pytest.ExitCode.OK:
        return "nobody noticed"
    if ended.status == pytest.ExitCode.NO_TESTS_COLLECTED:
        return "`make test` runs none of its tests"
    if ended.status != pytest.ExitCode.TESTS_FAILED or not ended.test:
        return f"pytest ended with status {ended.status}\n{ended.output}"
    if ended.message.startswith("Failed: Timeout"):
        return f"noticed only by the time limit: {ended.test}"
    if _function(ended.test) not in map(_function, defect.tests):
        return f"another test failed: {ended.test}"
    return ""


def _function(test: str) -> str:
    return test.partition("[")[0]


def _sound(tests: list[str], workers: int) -> bool:
    """Whether the tests that noticed a defect pass without one; say which does not."""
    shares = (tuple(tests[number::workers]) for number in range(workers))
    runs = [Run(None, share) for share in shares if share]
    bad = [ended for _, ended in judge.run_all(runs, workers) if ended.status]
    for ended in bad:
        print(ended.output, f"{ended.test} fails without a planted defect.", sep="\n")
    return not bad


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these (default: all)")
    parser.add_argument(
        "-n", dest="workers", type=int, default=4, help="processes side by side (default: 4)"
    )
    parser.add_argument(
        "--by",
        choices=["test", "test-all"],
        default="test-all",
        help="whose tests must notice them: those of `make test`, or all (the default)",
    )
    parser.add_argument("--page", action="store_true", help="print them as a page")
    return parser


if __name__ == "__main__":
    sys.exit(main())
