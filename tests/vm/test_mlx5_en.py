"""The unmodified mlx5_core of the guest's kernel on a ConnectX-5: its network device at work."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from bluebridge.device.server.options import ServerOptions
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.programs.running import Ended
from bluebridge.host_tools.pytest_plugin.lab import Lab
from tests.campaigns.conformance.program import PASSED, every_second_has_bytes
from tests.vm.conftest import BOOT_SECONDS
from tests.vm.network import (
    CARRIER,
    address,
    complaints,
    eventually,
    iperf3,
    number,
    ping,
    serve_iperf3,
    set_mtu,
    statistics,
)

pytestmark = pytest.mark.timeout(3 * BOOT_SECONDS)
RELOADS = 3
RELOAD = f"""
for n in $(seq {RELOADS}); do
    modprobe -r mlx5_ib mlx5_core && modprobe mlx5_core || exit 1
    until [ -d /sys/class/net/eth0 ]; do sleep 0.1; done
    ip link set eth0 up
    until grep -q 1 {CARRIER}; do sleep 0.1; done
done
"""


def _pair(lab: Lab, card: str) -> Iterator[Pair]:
    with lab.pair(vfio=False, kernel=True, options=ServerOptions(card=card)) as pair:
        for machine in pair.machines:  # what the kernel said before is not about the card
            assert not [line for line in complaints(machine) if "mlx5" in line]
        yield pair


@pytest.fixture
def net(lab: Lab) -> Iterator[Pair]:
    """Two ConnectX-5 under mlx5_core, with addresses and a link; nothing bad in the logs."""
    yield from _pair(lab, "connectx5")


@pytest.fixture
def mixed(lab: Lab) -> Iterator[Pair]:
    """A ConnectX-5 beside a ConnectX-3."""
    yield from _pair(lab, "connectx5,connectx3")


def vlan(machine: Vm, vid: int) -> str:
    """Make a VLAN device; its address."""
    own = f"10.{vid}.0.{number(machine)}"
    machine.run(
        f"ip link add link eth0 name v{vid} type vlan id {vid}; "
        f"ip addr add {own}/24 dev v{vid}; ip link set v{vid} up"
    )
    return own


def tcp(client: Vm, server: Vm) -> None:
    """TCP in both directions, without a second in which nothing came."""
    for options in ((), ("-R",)):
        report = iperf3(client, server, *options, seconds=2)
        assert report["end"]["sum_received"]["bytes"] > 1 << 16
        (verdict,) = every_second_has_bytes(Ended(0, json.dumps(report)))
        assert verdict.status == PASSED, report


@pytest.mark.brief
def test_the_network_device_of_two_connectx5(net: Pair) -> None:
    """Traffic, offloads and what ethtool asks; then the driver goes and comes."""
    a, b = net.machines
    ping(a, address(b))
    ping(a, "fe80::202:c9ff:febb:2%eth0")
    vlan(a, 7)
    ping(a, vlan(b, 7))
    tcp(a, b)
    set_mtu(net, 9000)
    ping(a, address(b), "-s 8972 -M do")
    iperf3(b, a, seconds=1)
    counts = statistics(a)
    assert counts["tx_tso_packets"] > 0
    assert counts["rx_csum_complete"] > 0
    assert counts["rx_removed_vlan_packets"] > 0
    assert counts["rx_out_of_buffer"] == counts["tx_queue_dropped"] == 0  # by pauses
    for word in ("PASS", "Loopback Test\t 0", "Link Test\t 0"):
        assert word in a.run("ethtool -t eth0").text
    a.run("ethtool -C eth0 adaptive-rx off rx-usecs 33 rx-frames 7")
    assert re.search(r"rx-usecs:\s33\nrx-frames:\s7\n", a.run("ethtool -c eth0").text)
    ping(a, address(b))
    assert "QSFP+" in a.run("ethtool -m eth0").text
    assert "100000Mb/s" in a.run("ethtool eth0").text
    for machine in (a, b):
        assert not complaints(machine)
    a.run(RELOAD, timeout=20 * RELOADS)
    assert not complaints(a)
    a.run(f"ip addr add {address(a)}/24 dev eth0")
    ping(a, address(b))


def test_frames_go_where_rules_and_hashes_say(net: Pair) -> None:
    """ethtool -N names a queue for a flow, -X the queues of all others."""
    a, b = net.machines
    a.run("ethtool -K eth0 ntuple on; ethtool -N eth0 flow-type tcp4 dst-port 5201 action 1")
    a.run("ethtool -X eth0 equal 1")
    before = statistics(a)
    iperf3(b, a, seconds=1)
    after = statistics(a)
    assert after["rx1_packets"] > before["rx1_packets"] + 100
    a.run("ethtool -N eth0 delete 1023")
    before = statistics(a)
    iperf3(b, a, seconds=1)
    after = statistics(a)
    assert after["rx1_packets"] == before["rx1_packets"]
    assert after["rx0_packets"] > before["rx0_packets"] + 100


def test_pause_frames_save_what_a_short_ring_would_lose(net: Pair) -> None:
    """The receiver asks, the sender waits: no frame is lost in a ring of 64 receives."""
    a, b = net.machines
    for machine in (a, b):
        machine.run("ethtool -A eth0 rx on tx on")
        assert machine.run("ethtool -a eth0").text.count("\ton") == 2
    b.run(f"ethtool -G eth0 rx 64; until grep -q 1 {CARRIER}; do sleep 0.1; done")
    iperf3(a, b, seconds=2)
    asked, lost = statistics(b)["tx_global_pause"], statistics(b)["rx_out_of_buffer"]
    assert (asked > 0, lost) == (True, 0)
    assert statistics(a)["rx_global_pause"] > 0
    assert not complaints(a) + complaints(b)


def test_the_link_flaps_under_traffic_and_devlink_reloads(net: Pair) -> None:
    a, b = net.machines
    serve_iperf3(b)
    run = a.agent.start(["iperf3", "-c", address(b), "-t", "6"], timeout=90)
    for _ in range(3):
        a.run("ip link set eth0 down; sleep 0.3; ip link set eth0 up; sleep 1")
    assert run.wait().status == 0
    a.run("devlink dev reload pci/0000:01:00.0", timeout=120)
    a.run(f"ip link set eth0 up; ip addr replace {address(a)}/24 dev eth0")
    a.run(f"until grep -q 1 {CARRIER}; do sleep 0.1; done")
    ping(a, address(b))
    assert not complaints(a) + complaints(b)


def test_the_cable_takes_the_link_away(net: Pair) -> None:
    a, b = net.machines
    net.server.tell("link a down")
    eventually(lambda: a.run(f"cat {CARRIER}").text.strip() == "0")
    net.server.tell("link a up")
    eventually(lambda: a.run(f"cat {CARRIER}").text.strip() == "1")
    ping(a, address(b))


def test_a_connectx5_and_a_connectx3_on_one_wire(mixed: Pair) -> None:
    a, b = mixed.machines
    ping(a, address(b))
    vlan(b, 7)
    ping(b, vlan(a, 7))
    tcp(a, b)
    for machine in (a, b):
        assert not complaints(machine)
