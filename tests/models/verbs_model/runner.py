"""Runs the state machine until it has made as many steps as were asked for."""

from __future__ import annotations

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
