"""`python -m tests.run`: the suites with guests, and a second turn for what failed in them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tests.run import turns
from tests.run.programs import Programs
from tests.run.pytest_suite import ROOT, PytestSuite
from tests.run.turns import Kept, Suite

KEPT = ROOT / "build" / "unsteady"


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0 passed, 1 failed or incomplete, 130 stopped by Ctrl-C."""
    options = _parser().parse_args(argv)
    kept = Kept(KEPT)
    try:
        verdict = turns.run(_suites(options.workers, options.long), kept)
        print("\n".join(turns.summary(verdict, kept)))
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    finally:
        kept.close()
    return 0 if verdict.passed else 1


def _suites(workers: str, long: bool) -> list[Suite]:
    side_by_side = ("-n", workers, "--dist", "loadfile", "--durations=25")
    if long:
        return [PytestSuite("vm", ("tests/vm",), (*side_by_side, "-m", "long"))]
    return [PytestSuite("vm", ("tests/vm",), (*side_by_side, "--rest")), Programs()]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.run", description=__doc__)
    parser.add_argument(
        "-n", dest="workers", default="2", help="workers of pytest-xdist for tests/vm (default: 2)"
    )
    parser.add_argument(
        "--long", action="store_true", help="the tests marked `long` instead, and no programs"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
