"""The stock InfiniBand stack on `--link infiniband`: drivers, IPoIB, verbs, rdma_cm, the tools."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from bluebridge.device.server.options import ServerOptions
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.machine import pings
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.programs.running import Ended
from bluebridge.host_tools.pytest_plugin.lab import Lab
from tests.campaigns.conformance.program import PASSED, every_second_has_bytes
from tests.campaigns.conformance.session import link_local
from tests.vm.infiniband import NO_LOSS, PROGRAM_SECONDS, bring_up, complaints, talk
from tests.vm.network import serve_iperf3

SWITCH = "S-0002c90300bb0000"


@pytest.fixture(scope="module")
def subnet(lab: Lab) -> Iterator[Pair]:
    """Both guests on a subnet that the switch manages, with IPoIB up."""
    with lab.pair(vfio=False, options=ServerOptions(link="infiniband")) as pair:
        pair.both(bring_up)
        yield pair


@pytest.mark.brief
def test_the_ports_are_in_service(subnet: Pair) -> None:
    for lid, machine in enumerate(subnet.machines, 2):
        said = machine.run("ibstat").text
        for part in ("State: Active", "LinkUp", f"Base lid: {lid}", "SM lid: 1", "Rate: 40"):
            assert part in said, said
        assert "Link layer: InfiniBand" in said
        assert "InfiniBand" in machine.run("lspci -d 15b3:").text
        assert not complaints(machine)


def test_the_limits_are_those_of_a_real_card(subnet: Pair) -> None:
    """People look for them in logs: each is equal to a ConnectX-3's, or differs as explained."""
    card = tomllib.loads(Path(__file__).with_name("connectx3.toml").read_text())
    expected = card["answers"] | {
        name: found["ours"] for name, found in card["differences"].items() if found["why"]
    }
    said = subnet.a.run("ibv_devinfo -v").text
    ours = dict(re.findall(r"^\t(\w+):\t+(\S.*)$", said, re.M))
    assert {name: ours.get(name) for name in expected} == expected
    assert not [name for name in card["differences"] if ours[name] == card["answers"][name]]


@pytest.mark.brief
def test_ipoib_pings(subnet: Pair) -> None:
    pings.check(subnet.a, "10.8.0.2", "-c 5 -i 0.2")
    pings.check(subnet.a, "10.8.0.2", "-c 2 -i 0.2 -M do -s 4000")  # MTU 4092
    link = subnet.b.run("cat /sys/class/net/ib0/mtu").text
    assert link.strip() == "4092"


def test_ipoib_leaves_checksums_and_segments_to_the_adapter(subnet: Pair) -> None:
    """Not one segment of the other tests was found broken by software either."""
    serve_iperf3(subnet.b)
    subnet.a.run("iperf3 -t 1 -c 10.8.0.2", timeout=PROGRAM_SECONDS)
    for machine in subnet.machines:
        features = machine.run("ethtool -k ib0").text
        for name in ("rx-checksumming", "tx-checksumming", "tcp-segmentation-offload"):
            assert f"{name}: on" in features
        counts = machine.run("nstat -az TcpInCsumErrors UdpInCsumErrors").text
        assert re.findall(r"InCsumErrors\s+(\d+)", counts) == ["0", "0"]


def test_ipoib_carries_ipv6_and_tcp(subnet: Pair) -> None:
    peer = link_local(subnet.b, "ib0", PROGRAM_SECONDS)
    pings.check(subnet.a, f"{peer}%ib0", "-c 5 -i 0.05")
    for options in ("", "-R"):
        serve_iperf3(subnet.b)
        words = f"iperf3 -J -t 2 {options} -c 10.8.0.2"
        said = subnet.a.run(words, timeout=PROGRAM_SECONDS).text
        (verdict,) = every_second_has_bytes(Ended(0, said))
        assert verdict.status == PASSED, said


def test_the_map_of_the_subnet(subnet: Pair) -> None:
    for machine in subnet.machines:
        said = machine.run("ibnetdiscover").text
        assert f'Switch\t8 "{SWITCH}"' in said
        assert len(re.findall(r"^Ca\t1 ", said, re.M)) == 2, said
        assert said.count("4xQDR") == 4
    assert "SMINFO_MASTER" in subnet.a.run("sminfo").text
    assert subnet.a.run("ibhosts").text.count("Ca\t: ") == 2
    assert subnet.a.run("iblinkinfo").text.count("Active/  LinkUp") == 4
    said = subnet.a.run("ibtracert 2 3").text
    assert "From ca" in said and "switch port" in said and "To ca" in said


def test_queries_by_lid_and_by_directed_route(subnet: Pair) -> None:
    a = subnet.a
    assert "Switch" in a.run("smpquery nodeinfo 1").text
    assert "Channel Adapter" in a.run("smpquery -D nodeinfo 0,1,2").text
    assert re.search(r"LinkState:\.+Active", a.run("smpquery portinfo 3 1").text)
    assert "0xffff" in a.run("smpquery pkeys 3 1").text
    a.run("smpquery nodedesc 1; smpquery switchinfo 1; smpquery sl2vl 3 1; smpquery guidinfo 3")


def test_counters_count(subnet: Pair) -> None:
    subnet.a.run("perfquery -R; ping -f -c 200 10.8.0.2 > /dev/null")
    for words, port in (("perfquery -x", "a"), ("perfquery -x 1 1", "the switch")):
        packets = re.search(r"PortXmitPkts:\.+(\d+)", subnet.a.run(words).text)
        assert packets is not None and int(packets[1]) >= 200, port
    assert re.search(r"PortUnicastRcvPkts:\.+\d{3}", subnet.b.run("perfquery -x").text)


def test_the_administrator_answers(subnet: Pair) -> None:
    a = subnet.a
    assert a.run("saquery").text.count("NodeRecord dump") == 3
    assert a.run("saquery -p").text.count("PathRecord dump") == 9
    assert "ff12:401b:ffff::ffff:ffff" in a.run("saquery -g").text
    members = a.run("saquery -m --smkey 1").text
    assert "fe80::202:c903:bb:101" in members and "fe80::202:c903:bb:102" in members
    assert "EndPortLid" in a.run("saquery -s").text
    assert a.run("saquery LR").text.count("LinkRecord dump") == 4


PROGRAMS = {
    "ibv_ud_pingpong -n 200": ("10.8.0.2", "200 iters in"),
    "ibv_srq_pingpong -n 200": ("10.8.0.2", "200 iters in"),
    "udaddy": ("-s 10.8.0.2", "return status 0"),
    "ib_send_bw -c XRC -n 200": ("10.8.0.2", "MsgRate"),
    "ib_read_bw -R -n 100": ("10.8.0.2", "MsgRate"),
}
"""One of each kind, with the client's own words and what it prints; `make conformance` has all."""
ALSO_OVER_ROCE = ("ibv_srq_pingpong -n 200", "udaddy")
"""The quick programs have these."""


@pytest.mark.brief("ibv_ud_pingpong -n 200")
@pytest.mark.parametrize(
    "program",
    [
        pytest.param(each, marks=[pytest.mark.long] if each in ALSO_OVER_ROCE else [])
        for each in PROGRAMS
    ],
)
def test_stock_programs_talk(subnet: Pair, program: str) -> None:
    own, expected = PROGRAMS[program]
    assert expected in talk(subnet, program, f"{program} {own}")


def test_ibping(subnet: Pair) -> None:
    subnet.b.run("ibping -S > /dev/null 2>&1 &")
    subnet.a.run(f"until ibping -t 200 -c 1 3 | grep -q '{NO_LOSS}'; do :; done")
    said = subnet.a.run("ibping -c 3 3", timeout=PROGRAM_SECONDS).text
    subnet.b.run("kill $(pidof ibping)")
    assert NO_LOSS in said, said


def test_connected_mode(subnet: Pair) -> None:
    """IPoIB over RC with an SRQ: packets of 64 KiB in one piece."""

    def mode(kind: str, mtu: int) -> None:
        def switch(machine: Vm) -> None:
            machine.run(
                f"ip link set ib0 down; echo {kind} > /sys/class/net/ib0/mode; "
                f"ip link set ib0 mtu {mtu}; ip link set ib0 up; "
                "until [ $(cat /sys/class/net/ib0/carrier) = 1 ]; do sleep 0.1; done"
            )

        subnet.both(switch)

    mode("connected", 65520)
    pings.check(subnet.a, "10.8.0.2", f"-c 3 -i {pings.SELDOM} -M do -s 60000")
    mode("datagram", 4092)
    pings.check(subnet.a, "10.8.0.2", "-c 3 -i 0.2")


def test_drivers_come_and_go(subnet: Pair) -> None:
    """The port comes back with the LID it had, and the groups are joined anew."""
    subnet.a.run("modprobe -r ib_ipoib rdma_ucm ib_umad mlx4_ib mlx4_en mlx4_core", timeout=120)
    assert subnet.b.run("ibnetdiscover").text.count("Ca\t1 ") == 1
    bring_up(subnet.a)
    assert "Base lid: 2" in subnet.a.run("ibstat").text
    pings.check(subnet.a, "10.8.0.2", "-c 3 -i 0.2")
    for machine in subnet.machines:
        assert not complaints(machine)
