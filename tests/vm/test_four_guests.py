"""Four guests on one network: each reaches each, over messages and over packets."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import combinations, permutations

import pytest

from bluebridge.device.server.options import ServerOptions
from bluebridge.host_tools.keeper.record import guest_names
from bluebridge.host_tools.lab.config import LabConfig
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.machine import pings
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.programs.perftest import CM_LISTENING
from bluebridge.host_tools.programs.running import wait_until

GUESTS = guest_names(1, 4)
IPS = [LabConfig(names=GUESTS).address(name).partition("/")[0] for name in GUESTS]
RPINGS, BYTES = 10, 1000


@pytest.fixture(
    scope="module", params=["packets", pytest.param("messages", marks=pytest.mark.long)]
)
def four(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Four guests with the kernel's drivers."""
    options = ServerOptions(pro=True, wire=request.param)
    config = LabConfig(names=GUESTS, vfio=False, kernel=True, options=options)
    with Pair(config) as up:
        yield up


@pytest.mark.brief
def test_each_guest_reaches_each(four: Pair) -> None:
    for one, other in permutations(range(len(GUESTS)), 2):
        pings.check(four.machines[one], IPS[other], "-c 3 -i 0.1")


def test_connections_of_all_pairs_at_once(four: Pair) -> None:
    """Each guest serves those after it, which all connect to it at the same time."""
    for one in range(len(GUESTS) - 1):
        server, clients = four.machines[one], four.machines[one + 1 :]
        listening = server.agent.start(f"rping -s -P -S {BYTES} -a {IPS[one]} > /dev/null", 120)
        server.run(wait_until(CM_LISTENING), timeout=60)
        line = f"rping -c -C {RPINGS} -V -v -S {BYTES} -a {IPS[one]} | grep -c 'rdma-ping-'"
        four.together(*(partial(_prints, client, line, str(RPINGS)) for client in clients))
        server.run("killall rping")
        listening.wait()


def _prints(machine: Vm, line: str, text: str) -> None:
    assert machine.run(line, timeout=100).text.strip() == text


def test_a_guest_that_ends_leaves_the_others_connected(four: Pair) -> None:
    four.restart(GUESTS[-1])
    for one, other in combinations(range(len(GUESTS)), 2):
        pings.check(four.machines[one], IPS[other], "-c 3 -i 0.1")
