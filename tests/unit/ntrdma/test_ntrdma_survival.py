"""A peer that is killed, rebooted or reloaded in each state of its port: the other recovers."""

from __future__ import annotations

import pytest

from bluebridge.device.layout.ntrdma.port import PortState
from tests.world.ntrdma.survival import CASES, Survival
from tests.world.ntrdma.world import Death

TIMES = 3


@pytest.mark.parametrize(("state", "how"), CASES)
def test_the_peer_ends(state: PortState, how: Death) -> None:
    survival = Survival(state, how, 7)
    for _ in range(TIMES):
        survival.once()
    assert survival.world.completed > TIMES
