"""krping and the connection manager over NTRDMA: neither knows that it is not the HCA."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from bluebridge.guest.connections import open_connections
from bluebridge.guest.krping.host import Host
from bluebridge.guest.krping.log import Log
from bluebridge.guest.ntrdma.provider.device import NtrdmaDevice
from tests.unit.test_ntrdma_verbs import joined
from tests.verbs.krping_pair import CLIENT_IP, SERVER_IP, Output, Side, both, start


def opened(device: NtrdmaDevice, ip: str) -> Side:
    """A device with its connection manager and host."""
    with ExitStack() as stack:
        stack.enter_context(device)
        manager = open_connections(device, ip, stack)
        output = Output()
        return Side(Host(device, manager, Log(output), stack.pop_all()), output)


@pytest.fixture
def sides() -> Iterator[tuple[Side, Side]]:
    """krping's server side and its client side."""
    a, b = joined()
    server, client = opened(a, SERVER_IP), opened(b, CLIENT_IP)
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
    assert served.stats["name"] == "1-ntrdma0"


@pytest.mark.parametrize("options", ["rlat,size=4096", "wlat,size=8", "bw,size=65536,tx-depth=16"])
def test_benchmarks(sides: tuple[Side, Side], options: str) -> None:
    """They end with the module's result line."""
    served, asked = (run.result() for run in both(sides, f"count=50,{options}"))
    assert (served.ok, asked.ok) == (True, True), (served.error, asked.error)
    assert "krping: delta sec " in sides[1].text


def test_nobody_listens_and_nobody_is_there(sides: tuple[Side, Side]) -> None:
    """The connection manager's refusals reach the user."""
    result = start(sides[1], f"client,addr={SERVER_IP},port=9999,count=1").result()
    assert result.error.startswith("nobody listens on port 9999")
    result = start(sides[1], "client,addr=192.168.69.99,port=9999,count=1").result()
    assert not result.ok


def test_several_at_once(sides: tuple[Side, Side]) -> None:
    runs = [both(sides, "count=50,validate,size=3000", port) for port in (9001, 9002, 9003)]
    assert all(run.result().ok for pair in runs for run in pair)
