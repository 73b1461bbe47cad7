"""`python -m tests.models.verbs_model [--steps N] [--seed N] [--shrink]`: model against hardware.

A seed gives the same steps again. A difference ends it with the steps that lead there; with
`--shrink`, which takes minutes, with the shortest ones.
"""

from __future__ import annotations

import argparse
import sys

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis.stateful import run_state_machine_as_test

from tests.models.verbs_model.machine import VerbsMachine

STEPS = 80
"""Of one example, from two fresh HCAs."""
EXAMPLES = 100
"""With one seed."""


def run(steps: int, seed: int, *, shrink: bool = False) -> int:
    """At least `steps` steps, with the seeds from `seed` on; how many they were.

    `shrink`: look for the shortest steps to a difference, for some minutes.
    """

    class Counted(VerbsMachine):
        steps = 0

    examples = max(1, min(EXAMPLES, -(-steps // STEPS)))
    settings = hypothesis.settings(
        max_examples=examples,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    while Counted.steps < steps:
        machine = hypothesis.seed(seed)(Counted)
        try:
            run_state_machine_as_test(machine, settings=settings)
        except Exception as error:
            error.add_note(f"with seed {seed}")
            raise
        seed += 1
    return Counted.steps


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
