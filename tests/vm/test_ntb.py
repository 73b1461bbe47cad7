"""The kernel's own NTB and DMA drivers on the gen4 bridge and the I/OAT engine, unmodified.

ntb_tool, ntb_pingpong, ntb_perf and dmatest are among the programs of test_programs.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.server.options import BridgeOptions
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.machine import pings
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.programs.ntb_clients import STATS
from bluebridge.host_tools.pytest_plugin.lab import Lab

SECONDS = 300.0


@pytest.fixture(scope="module")
def ntb(lab: Lab) -> Iterator[Pair]:
    """Guests whose bridge and engine have their drivers; each probe tests the hardware."""
    with lab.pair(hca=False, vfio=False, bridge=BridgeOptions("intel-gen4")) as pair:
        _both(pair, "modprobe ioatdma && modprobe ntb_hw_intel")
        yield pair


def _run(guest: Vm, line: str) -> str:
    return str(guest.run(line, timeout=SECONDS).text).strip()


def _both(pair: Pair, line: str) -> None:
    def run(guest: Vm) -> None:
        _run(guest, line)

    pair.both(run)


@pytest.mark.brief
def test_the_drivers_find_their_hardware(ntb: Pair) -> None:
    for guest in ntb.machines:
        assert "NTB device registered" in _run(guest, "dmesg")
        assert "self-test" not in _run(guest, "dmesg")
        versions = _run(guest, "cat /sys/class/dma/*/quickdata/version").split()
        assert versions == ["3.4"] * 4


@pytest.mark.brief
def test_a_network_over_dma(ntb: Pair) -> None:
    """Data through the window by the engine, told by the drivers and by the bus log."""
    a, b = ntb.machines
    _connect(ntb)
    pings.check(a, "10.9.1.2", "-c 3 -i 0.2")
    pings.check(a, "10.9.1.2", f"-c 3 -i {pings.SELDOM} -s 20000")
    _run(b, "iperf3 -s -D -1")
    _run(a, "until iperf3 -c 10.9.1.2 -n 8M; do sleep 0.2; done")
    stats = _run(a, f"cat {STATS}")
    tx_async = next(line for line in stats.splitlines() if line.startswith("tx_async"))
    assert int(tx_async.split()[-1]) > 0
    events = list(LogReader(ntb.logs).tail())
    copies = [event for event in events if event.what == What.COPY]
    arrivals = [event for event in events if event.what == What.WINDOW]
    assert {event.device for event in copies} == {"a.dma", "b.dma"}
    assert any(event.device == "b.ntb4" and event.kind == Kind.DMA_WRITE for event in arrivals)
    assert not [line for line in _run(a, "dmesg").splitlines() if "Call Trace" in line]


def test_a_network_goes_on_after_faults_of_its_bridge(ntb: Pair) -> None:
    a = ntb.a
    _connect(ntb)
    a.run("dmesg -c > /dev/null")
    with ntb.hardware.fault("a", "dma-error") as fault:
        a.run("ping -c 2 -s 20000 -W 2 10.9.1.2", check=False, timeout=SECONDS)
        assert fault.taken == 1
    _run(a, "until dmesg | grep -q 'ioatdma.*Restart channel'; do sleep 0.1; done")
    pings.check(a, "10.9.1.2", f"-c 3 -i {pings.SELDOM} -s 20000")
    with ntb.hardware.fault("a", "ntb-scratchpad-stuck", index=0):
        pings.check(a, "10.9.1.2", "-c 3 -i 0.2")
    with ntb.hardware.fault("a", "ntb-doorbell-lost") as fault:
        a.run("until ping -c 1 -W 2 10.9.1.2; do :; done", timeout=60.0)
        assert fault.taken == 1
    assert not [line for line in _run(a, "dmesg").splitlines() if "Call Trace" in line]


def _connect(pair: Pair) -> None:
    """Bring up the network in both guests unless it is there."""
    if pair.a.run("ls -d /sys/class/net/eth0", check=False).status:
        pair.both(_network)


def _network(guest: Vm) -> None:
    number = 1 + "ab".index(guest.name)
    _run(guest, "modprobe ntb_transport use_dma=1 && modprobe ntb_netdev")
    _run(
        guest,
        f"ip addr add 10.9.1.{number}/24 dev eth0 && ip link set eth0 up; "
        "until grep -q 1 /sys/class/net/eth0/carrier; do sleep 0.1; done",
    )


def test_the_death_of_a_peer_is_a_link_down(ntb: Pair) -> None:
    """Last in this module: guest b is switched off and comes back without drivers."""
    a = ntb.a
    _connect(ntb)
    ntb.restart("b")
    _run(a, "until grep -q 0 /sys/class/net/eth0/carrier; do sleep 0.1; done")
    assert "qp 0: Link Cleanup" in _run(a, "dmesg")
    b = ntb.machine("b")
    _run(b, "modprobe ioatdma && modprobe ntb_hw_intel")
    _network(b)
    _run(a, "until grep -q 1 /sys/class/net/eth0/carrier; do sleep 0.1; done")
    pings.check(a, "10.9.1.2", "-c 3 -i 0.2")


@pytest.mark.parametrize("model", ["intel-gen1", pytest.param("switchtec", marks=pytest.mark.long)])
def test_other_bridges_carry_a_network(lab: Lab, model: str) -> None:
    """As `up --ntb MODEL --driver kernel` brings it up: driver, transport by DMA, addresses."""
    with lab.pair(hca=False, vfio=False, bridge=BridgeOptions(model), kernel=True) as pair:
        pings.check(pair.a, "10.9.1.2", "-c 3 -i 0.2")
        for guest in pair.machines:
            assert "Call Trace" not in _run(guest, "dmesg")
