"""What comes next: drawn by lot, the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from bluebridge.host_tools.conformance.program import Program
from bluebridge.host_tools.conformance.setups import Setup
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.lab.pair import NAMES
from bluebridge.host_tools.soak import drivers, traffic
from bluebridge.host_tools.soak.drivers import Deed
from bluebridge.host_tools.soak.rounds import Rounds
from bluebridge.host_tools.soak.session import SoakSession

_DEEDS_SHARE = 0.35
"""How many of the rounds do something to drivers; the others are traffic."""
FAULT = "fault and recovery"
_IDLE, _FRAMES, _WRITES = "", "frames", "writes"


@dataclass(frozen=True)
class Chance:
    """A deed that may be drawn: how often, and under which traffic."""

    kind: str
    deed: Deed
    weight: int
    loads: tuple[str, ...]


# User space that has the device open holds mlx4_ib, so nothing is unloaded under RDMA traffic.
CHANCES = (
    Chance("unload and load mlx4", drivers.reload_modules(), 4, (_IDLE, _FRAMES)),
    Chance("unload and load mlx4_ib", drivers.reload_modules("mlx4_ib"), 2, (_IDLE, _FRAMES)),
    Chance("unload and load mlx4_en", drivers.reload_modules("mlx4_en"), 2, (_IDLE, _FRAMES)),
    Chance("devlink reload", drivers.devlink_reload, 3, (_IDLE, _FRAMES, _WRITES)),
    Chance("cable out and in", drivers.cable, 3, (_IDLE, _FRAMES)),
    Chance("interface down and up", drivers.interface, 2, (_IDLE, _FRAMES)),
    Chance(FAULT, drivers.fault, 2, (_IDLE, _FRAMES, _WRITES)),
)
KILL = Chance("guest killed and restored", drivers.kill, 0, (_IDLE, _FRAMES, _WRITES))
_WHOM = (("a",), ("b",), NAMES)


@dataclass(frozen=True)
class Turn:
    """A round to come."""

    kind: str
    what: str
    act: Callable[[SoakSession, Rounds], list[str]]
    """Does it and returns what was wrong; raises `LabError` when the pair is in trouble."""


class Plan:
    """An endless row of turns."""

    def __init__(self, seed: int, setup: Setup, kill_every: int) -> None:
        """Every `kill_every` turns a guest is killed; never with 0."""
        self._random = random.Random(seed)
        self._programs = traffic.programs(setup)
        self._kill_every = kill_every
        self._number = 0

    def next(self) -> Turn:
        """The next turn."""
        self._number += 1
        if self._kill_every and self._number % self._kill_every == 0:
            return self._doing(KILL, self._random.choice(_WHOM[:2]))
        if self._random.random() < _DEEDS_SHARE:
            (chance,) = self._random.choices(CHANCES, [each.weight for each in CHANCES])
            return self._doing(chance, self._random.choice(_WHOM))
        (suite,) = self._random.choices([*traffic.SUITES], [*traffic.SUITES.values()])
        return _running(self._random.choice(self._programs[suite]))

    def _doing(self, chance: Chance, names: tuple[str, ...]) -> Turn:
        load = self._random.choice(chance.loads)
        what = f"{chance.kind}: {' and '.join(names)}" + (f", under {load}" if load else "")
        deed = drivers.under(load, chance.deed)

        def act(session: SoakSession, rounds: Rounds) -> list[str]:
            machines = [session.pair.machine(name) for name in names]
            deed(session, machines)
            session.settle(*machines)
            return session.complaints()

        return Turn(chance.kind, what, act)


def _running(program: Program) -> Turn:
    def act(session: SoakSession, rounds: Rounds) -> list[str]:
        return traffic.run(session, program, rounds)

    return Turn(traffic.kind(program), f"{program.suite}: {program.name}", act)


def play(turn: Turn, session: SoakSession, rounds: Rounds) -> list[str]:
    """Act, and hear the kernels all the same when it went wrong; returns what was wrong."""
    try:
        return turn.act(session, rounds)
    except LabError as error:
        rounds.say(f"trouble: {error}", error.transcript)
        return [str(error).splitlines()[0], *_last_words(session, rounds)]


def _last_words(session: SoakSession, rounds: Rounds) -> list[str]:
    try:
        return session.complaints()
    except LabError as error:
        rounds.say("trouble while listening", str(error))
        return []
