"""A peer of NTRDMA that ends in each state, in each way, again and again; the other one lives on.

The survivor finds the next peer by itself. After each death all bytes are what the model says, no
memory is in use that was not before, and no scratchpad is touched while both ports are ready.
"""

from __future__ import annotations

from collections import Counter

from bluebridge.device.layout.ntrdma.port import PortState
from tests.world.ntrdma.side import Stopped
from tests.world.ntrdma.world import ABSENCES, Death, World

CASES = [(state, how) for state in PortState for how in Death]
_BUSY_STEPS = 40


class Survival:
    """A world whose side 0 ends at a state, time after time; `completed` counts what it did."""

    def __init__(self, state: PortState, how: Death, seed: int = 0) -> None:
        self.world = World(seed, trouble=False)
        self.world.settle()
        self._state, self._how = state, how

    def once(self) -> None:
        """One death, and what comes after it. Raises `AssertionError`."""
        world = self.world
        self._stop()
        world.die(0, self._how, world.chance.choice(ABSENCES))
        world.settle()
        world.check()
        world.check_twins()
        world.check_memory()
        before = [side.transport.spad_accesses for side in world.sides]
        self._work()
        world.settle()
        assert [side.transport.spad_accesses for side in world.sides] == before

    def _work(self) -> None:
        for _ in range(_BUSY_STEPS):
            self.world.step()

    def _stop(self) -> None:
        """Bring side 0 to the state, from work that is under way, and stop it there."""
        world = self.world
        self._work()
        if self._state is PortState.READY:
            return
        side = world.sides[0]
        side.stops_at, side.stops_at_once = self._state, self._how is not Death.RELOADED
        world.link(False)
        world.back_at = world.now
        world.come_back()
        try:
            for _ in range(4000):
                world.step()
                if side.came:
                    return
        except Stopped:
            assert side.engine.port.state is self._state
            return
        raise AssertionError(f"the port never came to state {self._state.name}")


def replay(seed: int) -> Counter[str]:
    """Let a peer end, in the state and the way that the seed says; what happened."""
    survival = Survival(*CASES[seed % len(CASES)], seed)
    survival.once()
    world = survival.world
    return Counter({"deaths": world.deaths, "operations done": world.completed})
