"""opensm in a guest manages the subnet when the switch has no manager of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from bluebridge.device.server.options import ServerOptions
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.machine import pings
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.pytest_plugin.lab import Lab
from tests.vm.infiniband import ADDRESSES, PROGRAM_SECONDS, bring_up, complaints, talk

UNSENT = re.compile(r"ERR 5430: .* Class 0x3, Method 0x81, Attr 0x1, ")
"""A second answer to one question for the ClassPortInfo. On a busy host the kernel asks again
before the first answer is sent, and ib_umad_write refuses one of the same transaction and target
as one that is under way (`is_duplicate`: EINVAL). The first arrives."""
TOLD_AGAIN = "ERR 4C04: "
"""The same failure, as opensm's `osm_sa_send` tells it again."""


def _drivers(machine: Vm) -> None:
    machine.run("modprobe mlx4_ib; modprobe ib_umad", timeout=120)


@pytest.fixture(scope="module")
def unmanaged(lab: Lab) -> Iterator[Pair]:
    """Both guests on a subnet that waits for a manager."""
    with lab.pair(vfio=False, options=ServerOptions(link="infiniband", sm="none")) as pair:
        pair.both(_drivers)
        yield pair


def _manage(pair: Pair) -> None:
    """Start opensm in guest a and bring up IPoIB, unless that has been done.

    It has a second's patience for each answer (-t) where it usually has a fifth: the kernel of the
    other guest answers, on a host that may be busy. It writes its log line by line (-d2): what it
    says of a second sweep would stay in its buffer.
    """
    if pair.a.run("pidof opensm", check=False).status:
        pair.a.run("opensm -B -d2 -t 1000 -f /tmp/osm.log", timeout=PROGRAM_SECONDS)
        pair.both(bring_up)


@pytest.mark.brief
def test_opensm_in_a_guest(unmanaged: Pair) -> None:
    """Without a manager the ports wait; opensm in one guest brings both into service."""
    for machine in unmanaged.machines:
        assert "State: Initializing" in machine.run("ibstat").text
    _manage(unmanaged)
    pings.check(unmanaged.a, "10.8.0.2", "-c 3 -i 0.2")
    assert "SMINFO_MASTER" in unmanaged.b.run("sminfo").text
    words = "ibv_ud_pingpong -n 100"
    assert "100 iters in" in talk(unmanaged, words, f"{words} 10.8.0.2")
    unmanaged.a.run("until grep -q 'SUBNET UP' /tmp/osm.log; do sleep 0.1; done")
    log = unmanaged.a.run("cat /tmp/osm.log").text
    errors = [line for line in log.splitlines() if "ERR" in line]
    unsent = [line for line in errors if UNSENT.search(line)]
    again = [line for line in errors if TOLD_AGAIN in line]
    assert len(errors) == len(unsent) + len(again) and len(again) <= len(unsent), log


def test_partitions_of_opensm(unmanaged: Pair) -> None:
    """A second partition, and IPoIB in it."""
    _manage(unmanaged)
    unmanaged.a.run(
        "mkdir -p /etc/opensm; (echo 'Default=0x7fff,ipoib:ALL=full;'; "
        "echo 'five=0x8005,ipoib:ALL=full;') > /etc/opensm/partitions.conf; "
        "kill -HUP $(pidof opensm)"
    )
    for machine in unmanaged.machines:
        address = ADDRESSES[machine.name].replace(".8.0.", ".8.5.")
        machine.run(
            "until grep -q 0x8005 /sys/class/infiniband/mlx4_0/ports/1/pkeys/1; "
            "do sleep 0.1; done; "
            "ip link add link ib0 name ib0.8005 type ipoib pkey 0x8005; "
            f"ip addr add {address}/24 dev ib0.8005; ip link set ib0.8005 up; "
            "until [ $(cat /sys/class/net/ib0.8005/carrier) = 1 ]; do sleep 0.1; done"
        )
    pings.check(unmanaged.a, "10.8.5.2", "-c 3 -i 0.2")
    for machine in unmanaged.machines:
        assert not complaints(machine)
