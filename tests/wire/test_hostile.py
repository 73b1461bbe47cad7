"""A short run of all attacks at once: `python -m tests.hostile` does as many as one likes."""

from __future__ import annotations

from pathlib import Path

from tests.hostile.__main__ import too_late
from tests.hostile.attacks import LAST, SLICES
from tests.hostile.bystander import Report
from tests.hostile.campaign import Campaign, Outcome, Plan

MIB = 1 << 20


def test_a_bystander_beside_all_attacks(vfio_user_library: Path, tmp_path: Path) -> None:
    """Two guests that attack, one after the other; what they held is gone with them."""
    told: list[str] = []
    plan = Plan(4000, rounds=1, part=1 / 8, long=64 * MIB, not_ready=40)
    outcome = Campaign(plan, tmp_path, told.append).run(quiet_seconds=0.2)
    assert outcome.exceptions == 0, outcome.log
    assert outcome.leaked == 0
    assert outcome.bystander.wrong == 0 and outcome.bystander.operations > 20
    assert {*outcome.by_attack} == {attack.__name__ for attack in (*SLICES, *LAST)}, told
    first, _, last = outcome.memory
    assert last < first + 16 * MIB


def test_late_answers_and_slow_calls_are_told() -> None:
    report = Report.of(0, [0.3] * 1000, [0.001] * 998 + [0.03, 0.09])
    outcome = Outcome(0, {}, 0, 0.0, 0, ["a call held the loop"], 0, (0, 0, 0), report, report, "")
    assert too_late(outcome, 20, 100) == [
        "99.9 % of the answers: 30.0 ms of 20",
        "a call held the loop",
    ]
    assert too_late(outcome, 30, 80) == ["the worst answer: 90.0 ms of 80", "a call held the loop"]
