"""mlx4_core comes and goes: many loads, devlink, and an adapter that breaks while it is used."""

from __future__ import annotations

import pytest

from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.machine.vm import Vm
from tests.vm.conftest import BOOT_SECONDS
from tests.vm.network import address, bring_up, complaints, iperf3, ping, serve_iperf3

pytestmark = [
    pytest.mark.timeout(4 * BOOT_SECONDS),
    pytest.mark.devices("hca", vfio=False),
    pytest.mark.shared_pair,
]
LOADS = 1
"""The program `unload and load mlx4 20 times` of the conformance run does it more often."""
LONGEST_LOAD = 30
"""Seconds: a command that is never answered costs 60."""


def _load_often(machine: Vm) -> None:
    machine.run("dmesg -c > /dev/null; modprobe -r mlx4_en mlx4_ib mlx4_core; modprobe mlx4_core")
    machine.run("modprobe -a mlx4_en mlx4_ib")
    for _ in range(LOADS):
        machine.run("modprobe -r mlx4_en mlx4_ib mlx4_core", timeout=LONGEST_LOAD)
        machine.run("modprobe -a mlx4_core mlx4_en mlx4_ib", timeout=LONGEST_LOAD)
        machine.run(
            "until ls -d /sys/bus/pci/drivers/mlx4_core/*/net/eth0 > /dev/null; do sleep 0.05; done"
        )
    assert not complaints(machine)


def test_loads_of_all_drivers(pair: Pair) -> None:
    pair.both(_load_often)
    pair.both(bring_up)
    ping(pair.a, address(pair.b))


def test_devlink_reload(pair: Pair) -> None:
    pair.both(bring_up)
    pair.a.run("dmesg -c > /dev/null")
    pair.a.run("devlink dev reload $(devlink dev show | head -1)", timeout=60)
    assert not complaints(pair.a)
    bring_up(pair.a)
    ping(pair.a, address(pair.b))


def _fault(pair: Pair) -> None:
    """Break the first guest's adapter and wait until its driver has mended it."""
    pair.a.run("dmesg -c > /dev/null")
    pair.server.tell("fault a injected by a test")
    pair.a.run(
        "until dmesg | grep -q 'mlx4_restart_one was ended, ret=0'; do sleep 0.2; done", timeout=90
    )
    said = pair.a.run("dmesg -c").text
    assert "Internal error detected" in said
    assert "696e6a65" in said  # "inje", a word of the error buffer
    assert "device was reset successfully" in said
    for word in ("timed out", "Call Trace", "BUG"):
        assert word not in said


@pytest.mark.brief
def test_an_idle_adapter_fails_and_recovers(pair: Pair) -> None:
    pair.both(bring_up)
    _fault(pair)
    bring_up(pair.a)
    ping(pair.a, address(pair.b))


def test_an_adapter_fails_under_traffic(pair: Pair) -> None:
    pair.both(bring_up)
    pair.b.run("ping -f -s 1000 10.9.0.1 < /dev/null > /dev/null 2>&1 &")
    serve_iperf3(pair.b)
    pair.a.run("iperf3 -c 10.9.0.2 -t 30 < /dev/null > /dev/null 2>&1 &")
    ping(pair.a, address(pair.b))
    _fault(pair)
    pair.b.run("kill $(pidof ping)")
    pair.a.run("kill $(pidof iperf3)", check=False)
    bring_up(pair.a)
    ping(pair.a, address(pair.b))
    assert iperf3(pair.b, pair.a, seconds=1)["end"]["sum_received"]["bytes"]
