"""Faults by name under the unmodified mlx5_core: what it says, and that it goes on afterwards."""

from __future__ import annotations

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
LINK_SECONDS = 90


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


def wait_for(machine: Vm, pattern: str) -> None:
    """Wait for a line of the kernel."""
    machine.run(f"until dmesg | grep -q '{pattern}'; do sleep 0.2; done", timeout=LINK_SECONDS)


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
    a.run(f"sleep 1; until grep -q 1 {CARRIER}; do sleep 0.1; done", timeout=LINK_SECONDS)
    ping(a, address(b))


def test_frames_of_the_driver_are_work_requests(net: Pair) -> None:
    """All that it posted into its SQs ends in the log with a status, echoes at the peer."""
    ping(net.a, address(net.b))
    found = [each for each in transfers(net.logs / "bus") if each.noun == "SQ"]
    assert found
    assert {each.status for each in found} == {"OK"}
    echoes = [each for each in found if each.length == 98 and each.device == "a"]
    assert echoes
    assert {each.peer for each in echoes} == {"b"}
