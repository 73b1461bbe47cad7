"""The kernel's own NTB and DMA drivers on the gen4 bridge and the I/OAT engine, unmodified.

One pair for the module: each client is loaded in both guests, used, and unloaded again.
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
from bluebridge.host_tools.programs.ntb_clients import COUNT, PERF, STATS, TOOL, TOOL_CLIENT
from bluebridge.host_tools.pytest_plugin.lab import Lab
from tests.campaigns.conformance.bridge.tool import SIZE, fill, look, take
from tests.vm.conftest import BOOT_SECONDS

pytestmark = pytest.mark.timeout(3 * BOOT_SECONDS)

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


def test_dmatest_copies_without_a_failure(ntb: Pair) -> None:
    _both(
        ntb,
        "modprobe dmatest timeout=60000 iterations=200 channel=dma0chan3 run=1; "
        "until dmesg | grep -q 'dmatest: .*summary'; do sleep 0.2; done; "
        "dmesg | grep 'summary 200 tests, 0 failures' && rmmod dmatest",
    )


def test_pingpong_counts_on_both_sides(ntb: Pair) -> None:
    _both(ntb, "modprobe ntb_pingpong delay_ms=20")
    for guest in ntb.machines:
        _run(guest, f"until [ $({COUNT}) -gt 5 ]; do sleep 0.1; done")
    _both(ntb, "rmmod ntb_pingpong")


def test_tool_sees_link_doorbells_scratchpads_and_windows(ntb: Pair) -> None:
    _both(ntb, TOOL_CLIENT.load)
    _both(ntb, f"{TOOL} echo Y > peer0/link_event")
    # A ping that left while the other side took ntb_pingpong out is still in its doorbells.
    _both(ntb, f'{TOOL} echo "c $(cat db)" > db')
    a, b = ntb.machines
    assert [_run(guest, f"{TOOL} cat port peer0/port").split() for guest in (a, b)] == [
        ["0", "1"],
        ["1", "0"],
    ]
    for here, there in ((a, b), (b, a)):
        _run(here, f"{TOOL} for n in $(seq 0 15); do echo $((n * 7 + 1)) > peer0/spad$n; done")
        found = _run(there, f"{TOOL} for n in $(seq 0 15); do cat spad$n; done").split()
        assert [int(word, 16) for word in found] == [n * 7 + 1 for n in range(16)]
        _run(here, f"{TOOL} echo 's 0x80000011' > peer_db")
        assert _run(there, f"{TOOL} echo 0x80000011 > db_event; cat db") == "0x80000011"
        assert _run(there, f"{TOOL} echo 'c 0x11' > db; cat db") == "0x80000000"
        for window in (0, 1):
            _copy_through(here, there, window)
    _run(b, f"{TOOL} echo N > link")
    _run(a, f"{TOOL} echo N > peer0/link_event")
    _both(ntb, "rmmod ntb_tool")


def _copy_through(here: Vm, there: Vm, window: int) -> None:
    """Bytes stored into a window of `here` are in the memory of `there`; closed, it is all ones."""
    _run(there, f"{TOOL} echo {SIZE} > peer0/mw_trans{window}")
    sent = _run(here, fill(window))
    assert _run(there, take(window)) == sent
    assert _run(here, look(window)) == "f" * 16


def test_perf_by_dma(ntb: Pair) -> None:
    _both(ntb, "modprobe ntb_perf use_dma=1 total_order=26")
    _both(ntb, f"{PERF} until grep -q 'Out buffer xlat' info; do sleep 0.1; done")
    for guest in ntb.machines:
        _run(guest, f"{PERF} timeout 60 sh -c 'echo 0 > run'")
        assert "copied 67108864 bytes" in _run(guest, f"{PERF} cat run")
    _both(ntb, "rmmod ntb_perf")


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


@pytest.mark.parametrize("model", ["intel-gen1", "switchtec"])
def test_other_bridges_carry_a_network(lab: Lab, model: str) -> None:
    """As `up --ntb MODEL --driver kernel` brings it up: driver, transport by DMA, addresses."""
    with lab.pair(hca=False, vfio=False, bridge=BridgeOptions(model), kernel=True) as pair:
        pings.check(pair.a, "10.9.1.2", "-c 3 -i 0.2")
        for guest in pair.machines:
            assert "Call Trace" not in _run(guest, "dmesg")
