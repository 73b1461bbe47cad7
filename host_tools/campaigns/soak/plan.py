"""The order of a soak's rounds: drawn at random, the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from bluebridge.host_tools.campaigns.conformance.program import Program
from bluebridge.host_tools.campaigns.conformance.setups import Setup
from bluebridge.host_tools.campaigns.soak import drivers, traffic
from bluebridge.host_tools.campaigns.soak.drivers import Disturbance
from bluebridge.host_tools.campaigns.soak.rounds import Rounds
from bluebridge.host_tools.campaigns.soak.session import SoakSession
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.lab.config import NAMES

_DISTURBANCES_SHARE = 0.35
"""Share of the rounds that disturb drivers; the others are traffic."""
FAULT = "fault and recovery"
_IDLE, _FRAMES, _WRITES = "", "frames", "writes"


@dataclass(frozen=True)
class Candidate:
    """A disturbance, how often it is drawn, and under which traffic."""

    kind: str
    disturbance: Disturbance
    weight: int
    loads: tuple[str, ...]


# User space that has the device open holds mlx4_ib, so nothing is unloaded under RDMA traffic.
DISTURBANCES = (
    Candidate("unload and load mlx4", drivers.reload_modules(), 4, (_IDLE, _FRAMES)),
    Candidate("unload and load mlx4_ib", drivers.reload_modules("mlx4_ib"), 2, (_IDLE, _FRAMES)),
    Candidate("unload and load mlx4_en", drivers.reload_modules("mlx4_en"), 2, (_IDLE, _FRAMES)),
    Candidate("devlink reload", drivers.devlink_reload, 3, (_IDLE, _FRAMES, _WRITES)),
    Candidate("cable out and in", drivers.cable, 3, (_IDLE, _FRAMES)),
    Candidate("interface down and up", drivers.interface, 2, (_IDLE, _FRAMES)),
    Candidate(FAULT, drivers.fault, 2, (_IDLE, _FRAMES, _WRITES)),
)
KILL = Candidate("guest killed and restored", drivers.kill, 0, (_IDLE, _FRAMES, _WRITES))
_TARGETS = (("a",), ("b",), NAMES)


@dataclass(frozen=True)
class Turn:
    """A round that is planned."""

    kind: str
    what: str
    act: Callable[[SoakSession, Rounds], list[str]]
    """Does it and returns what was wrong; raises `LabError` when the pair is in trouble."""


class Plan:
    """An endless sequence of rounds."""

    def __init__(self, seed: int, setup: Setup, kill_every: int) -> None:
        """Every `kill_every` turns a guest is killed; never with 0."""
        self._random = random.Random(seed)
        self._programs = traffic.programs(setup)
        self._kill_every = kill_every
        self._number = 0

    def next(self) -> Turn:
        """Return the next turn of the sequence."""
        self._number += 1
        if self._kill_every and self._number % self._kill_every == 0:
            return self._disturb(KILL, self._random.choice(_TARGETS[:2]))
        if self._random.random() < _DISTURBANCES_SHARE:
            (chosen,) = self._random.choices(DISTURBANCES, [each.weight for each in DISTURBANCES])
            return self._disturb(chosen, self._random.choice(_TARGETS))
        (suite,) = self._random.choices([*traffic.SUITES], [*traffic.SUITES.values()])
        return _running(self._random.choice(self._programs[suite]))

    def _disturb(self, chosen: Candidate, names: tuple[str, ...]) -> Turn:
        load = self._random.choice(chosen.loads)
        what = f"{chosen.kind}: {' and '.join(names)}" + (f", under {load}" if load else "")
        disturbance = drivers.under(load, chosen.disturbance)

        def act(session: SoakSession, rounds: Rounds) -> list[str]:
            machines = [session.pair.machine(name) for name in names]
            disturbance(session, machines)
            session.settle(*machines)
            return session.complaints()

        return Turn(chosen.kind, what, act)


def _running(program: Program) -> Turn:
    def act(session: SoakSession, rounds: Rounds) -> list[str]:
        return traffic.run(session, program, rounds)

    return Turn(traffic.kind(program), f"{program.suite}: {program.name}", act)


def carry_out(turn: Turn, session: SoakSession, rounds: Rounds) -> list[str]:
    """Carry a turn out; returns what was wrong, with the complaints of the kernels in any case."""
    try:
        return turn.act(session, rounds)
    except LabError as error:
        rounds.say(f"trouble: {error}", error.transcript)
        return [str(error).splitlines()[0], *_complaints_after_failure(session, rounds)]


def _complaints_after_failure(session: SoakSession, rounds: Rounds) -> list[str]:
    try:
        return session.complaints()
    except LabError as error:
        rounds.say("trouble while listening", str(error))
        return []
