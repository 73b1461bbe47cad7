"""Guests on InfiniBand: how their drivers come up, and how two programs of theirs talk."""

from __future__ import annotations

import re

from bluebridge.host_tools.errors import CommandFailed
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.programs.perftest import (
    CM_LISTENING,
    UNEVEN_CLOCK,
    VERBS_PORT,
    listening,
)
from bluebridge.host_tools.programs.running import Running

ADDRESSES = {"a": "10.8.0.1", "b": "10.8.0.2"}
NO_LOSS = " 0% packet loss"
PROGRAM_SECONDS = 60
_ATTEMPTS = 10


def bring_up(machine: Vm) -> None:
    """All drivers, the port in service, IPoIB with its address."""
    machine.run(f"bluebridge-mlx4 {ADDRESSES[machine.name]}/24", timeout=120)


def complaints(machine: Vm) -> list[str]:
    """Kernel lines about something that went wrong.

    IPoIB may say that a packet was queued again while a group was joined; that is no fault.
    """
    pattern = re.compile(r"call trace|warning:|mlx4.*(fail|error|timed out)|ib0.*timed? ?out", re.I)
    return [line for line in machine.run("dmesg").text.splitlines() if pattern.search(line)]


def talk(pair: Pair, server: str, client: str) -> str:
    """Return what a client in a prints; it and its server in b must end well.

    A perftest that could not sample its guest's clock is run again.
    """
    by_cm = server.startswith("ud") or "-R" in server
    for left in reversed(range(_ATTEMPTS)):
        try:
            with Running(pair.b, server, PROGRAM_SECONDS) as serving:
                serving.until(CM_LISTENING if by_cm else listening(VERBS_PORT))
                said = pair.a.run(client, timeout=PROGRAM_SECONDS).text
                serving.succeeded()
                return said
        except CommandFailed as error:
            if not (left and re.search(UNEVEN_CLOCK, error.output)):
                raise
    raise AssertionError("unreachable")
