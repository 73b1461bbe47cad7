"""Plant defects, one after another, in copies of the tree; each must be noticed by its tests."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue

from tests.mutants import planting
from tests.mutants.planting import ROOT, Mutant, rows


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 if all were noticed, 1 if not, 2 for a wrong name, 130 after Ctrl-C."""
    options = _parser().parse_args(argv)
    if options.page:
        print(planting.text(), end="")
        return 0
    table = {mutant.name: mutant for mutant in rows()}
    if unknown := [name for name in options.names if name not in table]:
        print(f"there is no planted defect {unknown[0]}; tests/mutants/tables has them")
        return 2
    chosen = [table[name] for name in options.names] or list(table.values())
    with tempfile.TemporaryDirectory(prefix="bluebridge-mutants-") as folder:
        try:
            return _run(chosen, Path(folder), options.workers)
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)
            return 130


def _run(chosen: list[Mutant], folder: Path, workers: int) -> int:
    started = time.monotonic()
    copies = [folder / f"copy{number}" for number in range(min(workers, len(chosen)))]
    planting.copy(ROOT, copies[0])
    if not _sound(chosen, copies[0]):
        return 1
    for other in copies[1:]:
        planting.copy(copies[0], other)
    bad = _judge_all(chosen, copies)
    seconds = time.monotonic() - started
    print(f"{len(chosen)} planted defects, {len(chosen) - bad} noticed, {seconds:.0f} s")
    return 1 if bad else 0


def _sound(chosen: list[Mutant], folder: Path) -> bool:
    """Whether all tests pass without a defect; say what failed if not."""
    tests = sorted({test for mutant in chosen for test in mutant.tests})
    ended = planting.run_tests(folder, tests)
    if ended.status:
        print(ended.output, "The tests above fail without a planted defect.", sep="\n")
    return not ended.status


def _judge_all(chosen: list[Mutant], copies: list[Path]) -> int:
    """Return how many were not noticed."""
    free: SimpleQueue[Path] = SimpleQueue()
    for folder in copies:
        free.put(folder)
    with ThreadPoolExecutor(len(copies)) as pool:
        running = {pool.submit(_judge, mutant, free): mutant for mutant in chosen}
        try:
            return sum(not _told(running[done], done) for done in as_completed(running))
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            raise


def _judge(mutant: Mutant, free: SimpleQueue[Path]) -> planting.Verdict:
    folder = free.get()
    try:
        return planting.judge(mutant, folder)
    finally:
        free.put(folder)


def _told(mutant: Mutant, done: Future[planting.Verdict]) -> bool:
    verdict = done.result()
    word = "noticed" if verdict.noticed else "UNNOTICED"
    print(f"{word:9} {mutant.name}: {verdict.told}", flush=True)
    if not verdict.noticed:
        print(f"          {mutant.file}, rule: {mutant.rule}", flush=True)
    return verdict.noticed


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these (default: all)")
    parser.add_argument(
        "-n", dest="workers", type=int, default=2, help="copies side by side (default: 2)"
    )
    parser.add_argument("--page", action="store_true", help="print them as a page")
    return parser


if __name__ == "__main__":
    sys.exit(main())
