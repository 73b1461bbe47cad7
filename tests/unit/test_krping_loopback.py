"""krping and the connection manager on the loopback provider: neither knows the HCA."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from bluebridge.guest.krping.host import Host
from bluebridge.guest.krping.log import Log
from tests.verbs.krping_pair import CLIENT_IP, SERVER_IP, Output, Side, both, start
from tests.verbs.loopback import LoopbackDevice, Network
from tests.verbs.loopback.connections import Neighbourhood


def opened(network: Network, neighbours: Neighbourhood, ip: str) -> Side:
    """A device with its connection manager and host."""
    with ExitStack() as stack:
        device = stack.enter_context(LoopbackDevice(network))
        manager = neighbours.manager(device, ip)
        stack.callback(manager.close)
        output = Output()
        return Side(Host(device, manager, Log(output), stack.pop_all()), output)


@pytest.fixture
def sides() -> Iterator[tuple[Side, Side]]:
    """krping's server side and its client side."""
    network, neighbours = Network(), Neighbourhood()
    server, client = (opened(network, neighbours, ip) for ip in (SERVER_IP, CLIENT_IP))
    yield server, client
    client.host.close()
    server.host.close()


@pytest.mark.parametrize(
    "options",
    [
        "size=64",
        "size=100000",
        "local_dma_lkey",
        "mem_mode=reg,size=20000",
        "mem_mode=reg,server_inv",
        "mem_mode=reg,server_inv,read_inv,local_dma_lkey,size=5000",
    ],
)
def test_pings(sides: tuple[Side, Side], options: str) -> None:
    """20 validated pings, counted alike on both sides."""
    served, asked = (run.result() for run in both(sides, f"count=20,validate,{options}"))
    assert (served.ok, asked.ok) == (True, True), (served.error, asked.error)
    assert served.iterations == asked.iterations == 20
    assert served.validated == asked.validated == 20
    assert (asked.stats["send_msgs"], asked.stats["recv_msgs"]) == (40, 40)
    assert served.stats["name"] == "1-loopback0"


@pytest.mark.parametrize("options", ["rlat,size=4096", "bw,size=65536,tx-depth=16"])
def test_benchmarks(sides: tuple[Side, Side], options: str) -> None:
    """They end with the module's result line."""
    served, asked = (run.result() for run in both(sides, f"count=50,{options}"))
    assert (served.ok, asked.ok) == (True, True), (served.error, asked.error)
    assert asked.iterations == 50
    assert "krping: delta sec " in sides[1].text


def test_nobody_listens(sides: tuple[Side, Side]) -> None:
    """The connection manager's refusal reaches the user."""
    result = start(sides[1], f"client,addr={SERVER_IP},port=9999,count=1").result()
    assert result.error.startswith("nobody listens on port 9999")
