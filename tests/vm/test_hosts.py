"""Two labs, each with a server of its own, whose guests share a network over UDP."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from bluebridge.device.server.options import ServerOptions
from bluebridge.host_tools.lab.config import LabConfig
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.machine import pings
from bluebridge.host_tools.programs.perftest import CM_LISTENING
from bluebridge.host_tools.programs.running import wait_until
from tests.vm.conftest import BOOT_SECONDS, ROOT

RPINGS, BYTES = 20, 4000


def _free_ports() -> list[int]:
    with socket.socket(type=socket.SOCK_DGRAM) as one, socket.socket(type=socket.SOCK_DGRAM) as two:
        for each in (one, two):
            each.bind(("127.0.0.1", 0))
        return [one.getsockname()[1], two.getsockname()[1]]


@pytest.fixture(scope="module")
def labs() -> Iterator[list[Pair]]:
    """Two labs that name each other."""
    first, second = (f"127.0.0.1:{port}" for port in _free_ports())
    one, two = (
        LabConfig(vfio=False, kernel=True, options=ServerOptions(pro=True, wire=peer, underlay=own))
        for own, peer in ((first, second), (second, first))
    )
    with Pair(one) as a_lab, Pair(two) as another:
        yield [a_lab, another]


def _ip(lab: Pair, name: str) -> str:
    return lab.config.address(name).partition("/")[0]


@pytest.mark.brief
def test_guests_of_both_labs_reach_each_other(labs: list[Pair]) -> None:
    one, other = labs
    for here, there in product("ab", repeat=2):
        pings.check(one.machine(here), _ip(other, there), "-c 3 -i 0.1")
        pings.check(other.machine(there), _ip(one, here), "-c 3 -i 0.1 -s 1400")
    pings.check(one.a, _ip(one, "b"), "-c 3 -i 0.1")


@pytest.mark.brief
def test_rdma_crosses_hosts(labs: list[Pair]) -> None:
    server, client = labs[0].a, labs[1].b
    ip = _ip(labs[0], "a")
    serving = server.agent.start(f"rping -s -C {RPINGS} -S {BYTES} -a {ip} > /dev/null", 100)
    server.run(wait_until(CM_LISTENING), timeout=60)
    line = f"rping -c -C {RPINGS} -S {BYTES} -V -v -a {ip} | grep -c 'rdma-ping-'"
    assert client.run(line, timeout=100).text.strip() == str(RPINGS)
    serving.wait()


def test_what_the_other_host_sent_is_counted(labs: list[Pair]) -> None:
    for lab in labs:
        (line,) = lab.server.tell("wires")
        assert line.startswith("peer 127.0.0.1:")
        assert "nothing received" not in line


PEER_TEST = """
def test_packets_cross(peer_lab):
    here, there = peer_lab.pair, peer_lab.address("b")
    assert "3 received" in here.a.run(f"ping -c 3 -i 0.2 {there}").text
    own = here.config.address("b").partition("/")[0]
    assert "3 received" in peer_lab.run("a", f"ping -c 3 -i 0.2 {own}")


def test_a_command_that_fails(peer_lab):
    peer_lab.run("a", "echo told; exit 3")
"""


@pytest.mark.long
def test_a_test_asks_execnet_for_a_lab_on_another_host(tmp_path: Path) -> None:
    (tmp_path / "test_peer.py").write_text(PEER_TEST)
    hosts = ",".join(f"127.0.0.1:{port}" for port in _free_ports())
    words = ["--bluebridge-peer", "popen", "--bluebridge-hosts", hosts, "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=2 * BOOT_SECONDS,
    )
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert "guest a of the other host: `echo told; exit 3` ended with status 3: told" in done.stdout


def test_without_another_host_such_a_test_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "test_peer.py").write_text(PEER_TEST)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=BOOT_SECONDS,
    )
    assert "no other host: give --bluebridge-peer" in done.stdout, done.stdout
