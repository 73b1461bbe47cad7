"""Programs of the conformance run as rounds of the soak."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

from bluebridge.host_tools.agent import Command
from bluebridge.host_tools.campaigns.conformance.program import PASSED, Program
from bluebridge.host_tools.campaigns.conformance.runner import Run
from bluebridge.host_tools.campaigns.conformance.setups import Setup
from bluebridge.host_tools.campaigns.conformance.suites import everything
from bluebridge.host_tools.campaigns.soak.rounds import Rounds
from bluebridge.host_tools.campaigns.soak.session import SoakSession
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.programs.readiness import VERBS_PORT, listening

SUITES = {"network": 3, "pingpong": 2, "connections": 3, "perftest": 5}
"""The suites whose brief programs are run, and how often next to one another."""
_FLOOD = "ping -f -q -s 1000 {} > /dev/null 2>&1"
_WRITES = "ib_write_bw -s 65536 -D 600 {x}"
_SECONDS = 120.0
_PATIENCE = 3
"""Times the limit of the conformance run: a busy host is no failure, and what hangs still hangs."""


def programs(setup: Setup) -> dict[str, Sequence[Program]]:
    """Suite by suite, what can be run under `setup`."""
    return {
        suite: [
            replace(program, limit=_PATIENCE * program.limit)
            for where, program in everything()
            if where == setup and program.suite == suite and program.brief
        ]
        for suite in SUITES
    }


def kind(program: Program) -> str:
    """The row of the table in which it counts: the tool, or what is done with it."""
    words = program.name.split()
    return program.name if program.suite == "network" else words[0]


def run(session: SoakSession, program: Program, rounds: Rounds) -> list[str]:
    """Run it between the guests; returns what was wrong."""
    done = Run(session, program)
    entry = done.entry()
    for title, text in done.texts:
        rounds.say(title, text)
    return [
        ": ".join(filter(None, (each.status, each.part, each.reason)))
        for each in entry.verdicts
        if each.status != PASSED
    ]


@contextlib.contextmanager
def flowing(session: SoakSession, writes: bool) -> Iterator[None]:
    """Frames from b to a while the block runs, with `writes` RDMA WRITEs as well.

    Neither is judged: whoever asks for it breaks something underneath.
    """
    with contextlib.ExitStack() as stack:
        a, b = (machine.agent for machine in session.pair.machines)

        def start(command: Command) -> None:
            stack.callback(_end, command)

        start(b.start(session.words.fill(_FLOOD.format("{server}"))))
        b.run("until pidof ping; do sleep 0.05; done", _SECONDS, check=True)
        if writes:
            line = session.words.fill(_WRITES)
            start(a.start(f"{line} > /dev/null 2>&1"))
            a.run(f"until {listening(VERBS_PORT)}; do sleep 0.05; done", _SECONDS, check=True)
            start(b.start(session.words.fill(f"{line} {{server}} > /dev/null 2>&1")))
            # Both ends of the queue pair exist when perftest has exchanged their numbers.
            condition = "rdma resource show qp | grep -q 'type RC.*state RTS.*ib_write_bw'"
            b.run(f"until {condition}; do sleep 0.05; done", _SECONDS, check=True)
        yield


def _end(command: Command) -> None:
    """Its guest may have been killed meanwhile, and the command with it."""
    with contextlib.suppress(LabError):
        command.kill()
