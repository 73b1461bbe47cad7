"""krping between two guests: the command as a user runs it, and every mode on one booted pair."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from bluebridge.host_tools.krping.krping_command import KrpingRequest, run
from bluebridge.host_tools.lab.pair import Pair
from tests.models.lab_tool import Tool

SERVER = "server,addr=192.168.69.127,port=9999"
CLIENT = "client,addr=192.168.69.127,port=9999"
NINE = ["name"] + [
    f"{operation}_{unit}"
    for operation in ("send", "recv", "write", "read")
    for unit in ("bytes", "msgs")
]

pytestmark = pytest.mark.shared_pair


@pytest.mark.brief
def test_the_command(tool: Callable[..., Tool]) -> None:
    bluebridge = tool("krping", SERVER, f"{CLIENT},count=100,validate", "--json")
    bluebridge.wait_until(lambda: "krping: server" in bluebridge.errors, "two guests")
    status, output = bluebridge.finish()
    assert status == 0, bluebridge.errors
    report = json.loads(output)
    text = bluebridge.errors
    assert report["ok"] is True
    assert report["iterations"] == report["validated"] == 100
    times = report["us_per_iteration"]
    assert 0 < times["min"] <= times["p50"] <= times["p99"]
    for side in ("server", "client"):
        assert list(report[side]) == NINE
        line = " ".join(str(value) for value in report[side].values())
        assert f"{side}:\n{line}\n" in text
    assert report["client"]["send_msgs"] == 200
    assert report["server"]["write_msgs"] == report["server"]["read_msgs"] == 100
    assert report["server"]["read_bytes"] == 100 * 64
    assert "100 of 100 iterations validated" in text
    bus = text.partition("-- the last iteration on the bus")[2].partition("-- statistics")[0]
    assert "SEND" in bus and "RDMA_READ" in bus and "RDMA_WRITE" in bus, bus
    bluebridge.assert_nothing_left()


def test_endless_until_ctrl_c(tool: Callable[..., Tool], tmp_path: Path) -> None:
    bluebridge = tool("krping", SERVER, CLIENT, "--json", "--log", str(tmp_path))
    recorded = tmp_path / "bus" / "events-000000.bin"
    bluebridge.wait_until(lambda: "krping: server" in bluebridge.errors, "two guests")
    before = recorded.stat().st_size
    bluebridge.wait_until(lambda: recorded.stat().st_size > before + 100_000, "iterations")
    bluebridge.signal(signal.SIGINT)
    status, output = bluebridge.finish()
    assert status == 0, bluebridge.errors
    report = json.loads(output)
    assert report["validated"] == report["iterations"] > 0
    bluebridge.assert_nothing_left()


@pytest.mark.parametrize(
    "options",
    [
        "count=10,validate,verbose",
        pytest.param("count=10,validate,mem_mode=reg", marks=pytest.mark.long),
        "count=10,validate,mem_mode=reg,server_inv",
        "count=10,validate,mem_mode=reg,read_inv,size=8192",
        pytest.param("count=10,validate,local_dma_lkey,size=1", marks=pytest.mark.long),
        "count=3,size=1048576",
    ],
)
def test_modes(pair: Pair, options: str) -> None:
    outcome = run(pair, KrpingRequest.parse(f"{SERVER},{options}", f"{CLIENT},{options}"))
    assert outcome.ok, (outcome.failure(), outcome.server.output, outcome.client.output)
    if "verbose" in options:
        assert "ping data (64B max): |rdma-ping-9: " in outcome.client.output
        assert "server ping data (64B max): |rdma-ping-9: " in outcome.server.output


@pytest.mark.parametrize(
    "options",
    [
        pytest.param("wlat,count=50,size=8", marks=pytest.mark.long),
        pytest.param("rlat,poll,count=50,size=8", marks=pytest.mark.long),
        "bw,count=50,size=65536",
    ],
)
def test_benchmarks_of_krping(pair: Pair, options: str) -> None:
    outcome = run(pair, KrpingRequest.parse(f"{SERVER},{options}", f"{CLIENT},{options}"))
    assert outcome.ok, (outcome.failure(), outcome.server.output, outcome.client.output)


def test_nobody_listens(pair: Pair) -> None:
    """The client alone: a clear line, a status, and the guests stay usable."""
    console = pair.b.console
    output = console.run(
        f"python3 -m bluebridge.guest.protocols.krping --ip 192.168.69.128 '{CLIENT},count=1'",
        check=False,
    )
    assert "nobody answers at 192.168.69.127" in output
    assert console.run("echo fine") == "fine"
