"""`python -m tests.models.verbs_model [--steps N] [--seed N] [--shrink]`: model against hardware.

A seed gives the same steps again. A difference ends it with the steps that lead there; with
`--shrink`, which takes minutes, with the shortest ones.
"""

from __future__ import annotations

import argparse
import sys

from tests.models.verbs_model.runner import run


def main() -> int:
    """Exit status 0; a difference is an exception."""
    parser = argparse.ArgumentParser(prog="python -m tests.models.verbs_model", description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000, help="at least (default 100000)")
    parser.add_argument("--seed", type=int, default=1, help="what to begin with (default 1)")
    parser.add_argument("--shrink", action="store_true", help="shorten the steps to a difference")
    options = parser.parse_args()
    steps = run(options.steps, options.seed, shrink=options.shrink)
    print(f"{steps} steps, no difference")
    return 0


if __name__ == "__main__":
    sys.exit(main())
