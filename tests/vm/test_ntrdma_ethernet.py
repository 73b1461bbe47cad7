"""Network interfaces over NTRDMA between two guests."""

from __future__ import annotations

import json
from functools import partial
from itertools import product

import pytest

from bluebridge.device.buslog.reader import Filter, LogReader
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.layout.ioat import PCI_IDS
from bluebridge.device.layout.ntb.models import GEN4
from bluebridge.host_tools.lab import ntrdma
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.machine import pings
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.ntrdma.network import ADDRESSES, interfaces
from bluebridge.host_tools.programs.perftest import transfer
from bluebridge.host_tools.pytest_plugin.lab import Lab
from tests.vm.conftest import BOOT_SECONDS

A, B = ADDRESSES
KRPING = "python3 -m bluebridge.guest.protocols.krping --provider ntrdma --ethernet --json"


@pytest.mark.parametrize("back_end", ["ntb+dma", pytest.param("ntb+cpu", marks=pytest.mark.long)])
def test_large_pings_tcp_and_a_program_that_comes_back(lab: Lab, back_end: str) -> None:
    """Nothing is dropped, and the interface is gone when its program has ended."""
    with lab.pair(hca=False, bridge=ntrdma.bridge()) as pair:
        for mtu in (1500, 9000):
            with interfaces(pair, back_end, mtu) as both:
                size = pair.a.run("cat /sys/class/net/ntrdma0/mtu").text
                assert int(size) == mtu
                pings.check(pair.a, B, f"-c 3 -i {pings.SELDOM} -M do -s {mtu - 28}")
                transfer(pair, B, 1, lambda line: None)
            counted = [both.numbers(guest) for guest in (0, 1)]
            assert [each["unsent"] + each["lost"] for each in counted] == [0, 0]
            assert 3 < counted[1]["received"] <= counted[0]["sent"]
            assert 3 < counted[0]["received"] <= counted[1]["sent"]
            for machine in pair.machines:
                assert machine.run("ip link show ntrdma0", check=False).status


@pytest.mark.brief("addr=10.9.2.1")
@pytest.mark.parametrize("address", [f"addr={A}", "addr6=fd00:9:2::1"])
def test_connections_by_the_interfaces_addresses(lab: Lab, address: str) -> None:
    """krping with the interface of its own device, IPv4 and IPv6."""
    said: dict[str, str] = {}

    def run(guest: Vm, words: str) -> None:
        said[guest.name] = guest.run(f"{KRPING} {words}", timeout=BOOT_SECONDS).text

    options = f"{address},port=9999,count=20,size=20000,validate"
    with lab.pair(hca=False, bridge=ntrdma.bridge()) as pair:
        pair.together(
            partial(run, pair.a, f"server,{options}"), partial(run, pair.b, f"client,{options}")
        )
    results = [json.loads(text.splitlines()[-1]) for text in said.values()]
    assert [each["validated"] for each in results] == [20, 20]


def reset(guest: Vm, identity: tuple[int, int]) -> None:
    """Reset the function with that vendor and device ID, under the program that drives it."""
    found = f"grep -l {identity[1]:#06x} /sys/bus/pci/drivers/vfio-pci/*/device"
    guest.run(f"echo 1 > $(dirname $({found}))/reset")


def resets(pair: Pair) -> int:
    """Count the resets of functions that the log has by now."""
    wanted = Filter(kinds=frozenset((Kind.RESET,)))
    return sum(1 for _ in LogReader(pair.logs).events(wanted))


@pytest.mark.long  # on a busy machine the ports did not meet again in time, once of three runs
def test_a_reset_under_the_program(lab: Lab) -> None:
    """Of bridge and DMA engine in either guest: the ports meet again by themselves."""
    with lab.pair(hca=False, bridge=ntrdma.bridge()) as pair, interfaces(pair, "ntb+dma", 1500):
        for guest, identity in product(pair.machines, (GEN4.pci_id, PCI_IDS[0])):
            pings.check(pair.a, B, "-c 1")
            before = resets(pair)
            reset(guest, identity)
            pings.check(pair.a, B, "-c 1")
            assert resets(pair) > before, f"{guest.name}: nothing was reset"
