"""Runs in a guest: rdma-core's own tests, one JSON line for each.

    python3 in_guest.py FOLDER [OPTION ...]

FOLDER holds the package `tests`; options are those of its `run_tests.py` (`--gid N`). Tests of
vendors' devices are left out; with the variable ONLY, all are but those that begin so.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
import unittest
from importlib import import_module
from typing import Any

OTHERS = ("test_mlx5", "test_efa", "test_cuda")


class Lines(unittest.TestResult):
    """Prints a test's outcome when it is known: id, status, reason, seconds."""

    def startTest(self, test: unittest.TestCase) -> None:
        """Take the time."""
        super().startTest(test)
        self._start = time.monotonic()

    def _line(self, test: unittest.TestCase, status: str, reason: str = "") -> None:
        seconds = round(time.monotonic() - self._start, 3)
        found = {"test": test.id(), "status": status, "reason": reason, "seconds": seconds}
        print(json.dumps(found), flush=True)

    def addSuccess(self, test: unittest.TestCase) -> None:
        """A test passed."""
        self._line(test, "passed")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        """A test says why it cannot run here."""
        self._line(test, "skipped", reason)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        """A test failed; the reason is the exception's first line."""
        self._line(test, "failed", _reason(err))

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        """A test broke."""
        self._line(test, "failed", _reason(err))


def _reason(err: Any) -> str:
    kind, value, _ = err
    return f"{kind.__name__}: {value}".splitlines()[0]


def main() -> None:
    """Run all generic tests.

    Objects of tests that were skipped are never collected: pyverbs then closes them after their
    context, in freed memory, and now and then crashes.
    """
    folder = sys.argv.pop(1)
    sys.path[:0] = [folder, f"{folder}/tests"]
    package = import_module("tests")
    package.parser.parse_args()
    suite, only = unittest.TestSuite(), os.environ.get("ONLY")
    for module in package.__test_modules__:
        name = module.__name__.rpartition(".")[2]
        if name.startswith(only) if only else not name.startswith(OTHERS):
            suite.addTests(unittest.defaultTestLoader.loadTestsFromModule(module))
    gc.disable()
    suite.run(Lines())
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
