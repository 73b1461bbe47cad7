"""Faults by name under unmodified drivers and programs: what these say, and that they go on."""

from __future__ import annotations

import re

import pytest

from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.programs.perftest import VERBS_PORT, listening
from bluebridge.host_tools.pytest_plugin.buslog import BusLog

pytestmark = pytest.mark.devices("hca", vfio=False)

PINGPONG = "ibv_rc_pingpong -g 0 -n 100000000"
OUTPUT = "/tmp/pingpong"
WAIT = 60


@pytest.fixture
def loaded(pair: Pair) -> Pair:
    """Both guests with the kernel's drivers and an address."""
    for number, guest in enumerate((pair.a, pair.b), start=1):
        guest.run(f"bluebridge-mlx4 10.9.0.{number}/24", timeout=120)
    return pair


def start(pair: Pair) -> int:
    """Start a ping-pong without an end in both guests; return the queue pair of guest a."""
    pair.a.run(f"{PINGPONG} >{OUTPUT} 2>&1 &")
    pair.a.run(f"until {listening(VERBS_PORT)}; do sleep 0.1; done", timeout=WAIT)
    pair.b.run(f"{PINGPONG} 10.9.0.1 >{OUTPUT} 2>&1 &")
    ready = "rdma resource show qp | grep 'state RTS.*comm ibv_rc_pingpong'"
    line = pair.a.run(f"until {ready}; do sleep 0.1; done", timeout=WAIT).text
    found = re.search(r"lqpn (\d+)", line)
    assert found is not None
    return int(found[1])


def said(guest: Vm, words: str) -> bool:
    """Wait until the ping-pong of a guest said these words."""
    line = f"until grep -q '{words}' {OUTPUT}; do sleep 0.1; done"
    return guest.run(line, timeout=WAIT).status == 0


@pytest.mark.parametrize(
    ("name", "words"),
    [("reg-mr-fails", "Couldn't register MR"), ("create-cq-fails", "Couldn't create CQ")],
)
def test_a_verb_fails_and_the_next_one_works(loaded: Pair, name: str, words: str) -> None:
    with loaded.hardware.fault("a", name) as fault:
        answer = loaded.a.run(f"{PINGPONG} 2>&1", check=False, timeout=WAIT)
        assert answer.status != 0
        assert words in answer.text
        assert fault.taken == 1
    assert start(loaded)


def test_a_completion_says_another_status(loaded: Pair, buslog: BusLog) -> None:
    qpn = start(loaded)
    with loaded.hardware.fault("a", "wc-rem-access-err", qpn=qpn):
        assert said(loaded.a, "Failed status remote access error (10)")
    assert buslog.records(kind="fault", guest="a")
    assert start(loaded)


@pytest.mark.brief
def test_a_driver_sees_its_port_flap(loaded: Pair) -> None:
    loaded.a.run("dmesg -c")
    with loaded.hardware.fault("a", "port-flap", times=2, ms=500):
        seen = "$(dmesg | grep -ci 'link up')"
        loaded.a.run(f"until [ {seen} -ge 2 ]; do sleep 0.1; done", timeout=WAIT)
    assert loaded.a.run("dmesg | grep -ci 'link down'").text.strip() == "2"
    loaded.a.run("ping -c 3 -w 60 10.9.0.2")
