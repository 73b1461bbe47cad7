"""Both engines of RTRS together: no I/O is lost, doubled or torn, and nothing leaks.

Many more worlds: `python -m tests.world rtrs --seeds 10000`.
"""

from __future__ import annotations

import pytest

from tests.world import seeds
from tests.world.rtrs.application import Lost
from tests.world.rtrs.world import World, replay, run

SEEDS = 100
STEPS = 50


@pytest.mark.worlds
def test_worlds_with_faults() -> None:
    seeds.each("rtrs", replay, range(SEEDS))


@pytest.mark.worlds
@pytest.mark.parametrize(
    "faults",
    [
        ("hang",),
        ("lose_info_request",),
        ("reconnect_in_silence",),
        ("break_connection", "cut"),
        ("silence", "disconnect_by_server"),
    ],
    ids="-".join,
)
def test_worlds_with_few_kinds_of_faults(faults: tuple[str, ...]) -> None:
    """Two faults that seldom meet in a world with all of them meet often in each seed."""
    name = f"rtrs --faults {','.join(faults)}"
    seeds.each(name, lambda seed: run(seed, faults), range(4))


@pytest.mark.parametrize("side", ["client", "server"])
def test_either_side_vanishes_at_every_step(side: str) -> None:
    """After each of the first 50 things that it does: while it connects, then among requests."""
    for step in range(STEPS):
        world = World(1000 + step, faults=())
        world.vanish(side, step + 1)
        world.run()
        assert world.vanished, f"{side} does not do {step + 1} things"


def test_a_seed_replays() -> None:
    first, second = run(7), run(7)
    assert first.clock.now == second.clock.now
    assert first.disk.executed == second.disk.executed


def test_a_lost_write_would_be_seen() -> None:
    world = World(3)
    world.disk.ignore_writes = True
    with pytest.raises(Lost, match="a write was lost"):
        world.run()
