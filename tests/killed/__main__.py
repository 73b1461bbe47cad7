"""`python -m tests.killed [--times N] [--seed N]`: kill any process of a lab under traffic.

Prints a table; the exit status is 1 when something was left, somebody was not told within the time
that the documents promise, or the next `up` failed.
"""

from __future__ import annotations

import argparse
import sys

from bluebridge.host_tools.processes.termination import termination_as_exception
from tests.killed.rounds import Rounds


def main() -> int:
    """Run once."""
    parser = argparse.ArgumentParser(prog="python -m tests.killed", description=__doc__)
    parser.add_argument("--times", type=int, default=20, help="rounds (default 20)")
    parser.add_argument("--seed", type=int, default=1, help="what draws victims and moments")
    options = parser.parse_args()
    rounds = Rounds(options.seed, lambda text: print(text, file=sys.stderr, flush=True))
    try:
        with termination_as_exception():
            rounds.run(options.times)
    finally:
        print(*rounds.table(), sep="\n")
    return int(rounds.failed > 0)


if __name__ == "__main__":
    sys.exit(main())
