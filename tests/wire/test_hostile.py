"""A short run of all attacks at once: `python -m tests.hostile` does as many as one likes."""

from __future__ import annotations

from pathlib import Path

from tests.hostile.attacks import LAST, SLICES
from tests.hostile.campaign import Campaign, Plan

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
