"""Faults by name under the unmodified mlx5_core: what it says, and that it goes on afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from bluebridge.device.server.options import ServerOptions
from bluebridge.host_tools.analyzer.analysis.assembly import transfers
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.pytest_plugin.lab import Lab
from tests.vm.conftest import BOOT_SECONDS
from tests.vm.network import CARRIER, address, complaints, ping

pytestmark = pytest.mark.timeout(3 * BOOT_SECONDS)
WATCHDOG_SECONDS = 90
"""The kernel's watchdog of a queue that sends nothing waits 15 s, of a guest's slow time."""


@pytest.fixture
def net(lab: Lab) -> Iterator[Pair]:
    """Two ConnectX-5 under mlx5_core, with addresses and a link."""
    with lab.pair(vfio=False, kernel=True, options=ServerOptions(card="connectx5")) as pair:
        for machine in pair.machines:
            complaints(machine)
        ping(pair.a, address(pair.b))
        yield pair


def arm(pair: Pair, words: str) -> str:
    """Arm a fault of guest a; its number, empty if it is over."""
    return "".join(pair.server.tell(f"arm a {words}"))


def clear(pair: Pair) -> None:
    """End all faults of guest a."""
    pair.server.tell("disarm a")


def busiest(pair: Pair) -> str:
    """The SQ of guest a that has sent most."""
    rows = [json.loads(line) for line in pair.server.tell("show a sq")]
    queues = [row for row in rows if "posted" in row]
    return hex(max(queues, key=lambda row: int(row["posted"]))["number"])


def wait_for(machine: Vm, pattern: str) -> None:
    """Wait for a line of the kernel."""
    machine.run(f"until dmesg | grep -q '{pattern}'; do sleep 0.2; done", timeout=WATCHDOG_SECONDS)


def test_the_network_goes_on_after_what_was_lost(net: Pair) -> None:
    """Completions, events and interrupts that come once less, a link that flaps."""
    a, b = net.machines
    for fault in ("cqe-lost qp-type=ETH", "eqe-lost event=COMPLETION", "interrupt-lost vector=1"):
        arm(net, fault)
        a.run(f"ping -c 10 -i 0.2 -W 5 {address(b)}", check=False, timeout=60)
        clear(net)
        ping(a, address(b))
    arm(net, "port-flap times=2 ms=300")
    wait_for(a, "Link down")
    a.run(f"sleep 1; until grep -q 1 {CARRIER}; do sleep 0.1; done", timeout=WATCHDOG_SECONDS)
    ping(a, address(b))


def test_a_command_that_fails_is_told_with_its_status(net: Pair) -> None:
    a, b = net.machines
    arm(net, "command-fails opcode=CREATE_RQT status=LIM_ERR")
    assert a.run("ethtool -L eth0 combined 1", check=False).status
    wait_for(a, "CREATE_RQT(0x916).*failed, status limits exceeded(0x8)")
    clear(net)
    a.run(
        f"ip link set eth0 down; ip link set eth0 up; until grep -q 1 {CARRIER}; do sleep 0.1; done"
    )
    a.run(f"ip addr replace {address(a)}/24 dev eth0")
    ping(a, address(b))


@pytest.mark.parametrize("fault", ["hung-wr", "doorbell-ignored"])
def test_a_queue_that_hangs_is_set_up_anew_by_the_driver(net: Pair, fault: str) -> None:
    a, b = net.machines
    number = busiest(net)
    arm(net, f"{fault} qpn={number}")
    a.run(f"ping -f -c 3000 -W 1 {address(b)}", check=False, timeout=60)
    wait_for(a, "TX timeout")
    clear(net)
    ping(a, address(b))


def test_frames_of_the_driver_are_work_requests(net: Pair) -> None:
    """All that it posted ends in the log with a status, and is of an SQ."""
    ping(net.a, address(net.b))
    found = [each for each in transfers(net.logs / "bus") if each.opcode == "SEND"]
    assert found
    assert {each.noun for each in found} == {"SQ"}
    assert {each.status for each in found} == {"OK"}
    echoes = [each for each in found if each.length == 98 and each.device == "a"]
    assert echoes
    assert {each.peer for each in echoes} == {"b"}
