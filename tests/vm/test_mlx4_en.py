"""The unmodified mlx4_en of the guest's kernel: traffic, offloads, filters, settings."""

from __future__ import annotations

import json
import re

import pytest

from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.programs.running import Ended
from bluebridge.host_tools.pytest_plugin.buslog import BusLog
from tests.campaigns.conformance.program import PASSED, every_second_has_bytes
from tests.vm.conftest import BOOT_SECONDS
from tests.vm.network import (
    CARRIER,
    ECHOES,
    address,
    bring_up,
    complaints,
    eventually,
    iperf3,
    number,
    ping,
    received,
    serve_iperf3,
    set_mtu,
    snmp,
    statistics,
)

pytestmark = [pytest.mark.devices("hca", vfio=False), pytest.mark.shared_pair]
FRAMES = 20


@pytest.fixture
def net(pair: Pair) -> Pair:
    """Both guests with the kernel's drivers, addresses and a link; nothing in their logs."""
    pair.both(_ready)
    return pair


def _ready(machine: Vm) -> None:
    ready = f"grep -q 1 {CARRIER} && ip -br addr show eth0 | grep -q {address(machine)}/24"
    if machine.run(f"dmesg -c > /dev/null; {ready}", check=False).status:
        bring_up(machine)
        machine.run("dmesg -c > /dev/null")


@pytest.mark.brief
def test_programs_find_the_hcas(net: Pair) -> None:
    for machine in net.machines:
        assert "PORT_ACTIVE" in machine.run("ibv_devinfo").text
        assert "state ACTIVE" in machine.run("rdma link").text
        devices = machine.run("ls /dev/infiniband").text.split()
        assert {"rdma_cm", "umad0", "uverbs0"} <= set(devices)
    ping(net.a, address(net.b))


@pytest.mark.brief
def test_tcp_in_both_directions_without_a_silent_second(net: Pair) -> None:
    for options in ((), ("-R",), ("-P", "4")):
        report = iperf3(net.b, net.a, *options, seconds=2)
        assert report["end"]["sum_received"]["bytes"] > 1 << 16
        (verdict,) = every_second_has_bytes(Ended(0, json.dumps(report)))
        assert verdict.status == PASSED, report
    assert not complaints(net.a) + complaints(net.b)
    for machine in net.machines:
        assert snmp(machine, "Tcp", "InErrs") == 0
        counts = statistics(machine)
        assert counts["tso_packets"] > 0
        assert counts["rx_csum_good"] > 0
        assert (counts["rx_dropped"], counts["tx_dropped"]) == (0, 0)


FCS_RESIDUE = "2144df1c"
"""CRC-32 of any frame with its frame check sequence, in hex digits."""
FIRST_FRAME = """
import socket, zlib
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
wire.bind(("eth0", 0x0800))
print("ready", flush=True)
while True:
    frame, sender = wire.recvfrom(2048)
    if sender[2] != socket.PACKET_OUTGOING:
        print(len(frame), f"{zlib.crc32(frame):x}", flush=True)
        break
"""


def test_the_fcs_reaches_software_that_asks_for_it(net: Pair) -> None:
    """Traffic goes on with `rx-fcs`, and what is captured of it ends with the right FCS."""
    net.a.run("ethtool -K eth0 rx-fcs on")
    try:
        capture = net.a.agent.start(["python3", "-c", FIRST_FRAME], timeout=60)
        net.b.run(f"for n in 1 2 3 4 5; do ping -c 1 -W 2 -s 100 {address(net.a)}; sleep 1; done")
        said = capture.wait().text.split()
    finally:
        net.a.run("ethtool -K eth0 rx-fcs off")
    assert said == ["ready", str(14 + 20 + 8 + 100 + 4), FCS_RESIDUE]
    ping(net.b, address(net.a))


def test_software_finds_the_checksums_right_too(net: Pair) -> None:
    """With the receive offload off the kernel verifies what the device computed."""
    net.a.run("ethtool -K eth0 rx off gro off")
    before = statistics(net.a)["rx_csum_none"]
    iperf3(net.b, net.a, seconds=1)
    ping(net.b, address(net.a))
    counts = statistics(net.a)
    assert counts["rx_csum_none"] > before + 10
    assert snmp(net.a, "Tcp", "InErrs") == snmp(net.a, "Udp", "InCsumErrors") == 0
    net.a.run("ethtool -K eth0 rx on gro on")


def test_a_capture_shows_the_segments_of_large_sends(net: Pair) -> None:
    """Each frame fits the MTU; tcpdump, which verifies them, finds no bad checksum."""
    net.a.run("ethtool -K eth0 gro off")
    net.a.run(
        "tcpdump -Z root -i eth0 -s 0 -w /tmp/seen -c 300 tcp port 5201 "
        "< /dev/null > /dev/null 2> /tmp/said & echo $! > /tmp/pid; "
        "until grep -q listening /tmp/said; do sleep 0.05; done"
    )
    iperf3(net.b, net.a, seconds=1)
    net.a.run("while [ -d /proc/$(cat /tmp/pid) ]; do sleep 0.05; done")
    shown = net.a.run("tcpdump -Z root -nvvr /tmp/seen 2> /dev/null", timeout=60).text
    assert "length 1500)" in shown
    assert "cksum" in shown
    # what it sent itself is captured before the device filled the checksum in
    own = f"{address(net.a)}.5201 >"
    received = [line for line in shown.splitlines() if "cksum" in line and own not in line]
    assert len(received) > 50
    assert not [line for line in received if "incorrect" in line]
    assert "bad cksum" not in shown
    net.a.run("ethtool -K eth0 gro on")


def test_both_rings_take_part(net: Pair) -> None:
    before = statistics(net.a)
    iperf3(net.b, net.a, "-P", "8", seconds=1)
    iperf3(net.b, net.a, "-P", "8", seconds=1)
    after = statistics(net.a)
    for ring in ("rx0_packets", "rx1_packets"):
        assert after[ring] > before[ring] + 10
    vectors = [
        line for line in net.a.run("cat /proc/interrupts").text.splitlines() if "mlx4-" in line
    ]
    busy = [line for line in vectors if sum(int(word) for word in line.split()[1:3])]
    assert len(busy) >= 3  # the asynchronous one and two of completions


def test_jumbo_frames(net: Pair) -> None:
    set_mtu(net, 9000)
    ping(net.b, address(net.a), "-i", "0.5", "-s", "8972", "-M", "do")
    assert iperf3(net.b, net.a, seconds=1)["end"]["sum_received"]["bytes"]
    set_mtu(net, 1500)
    ping(net.b, address(net.a))


def test_ipv6_neighbours_find_each_other(net: Pair) -> None:
    for machine in net.machines:
        machine.run(f"ip addr replace fd09::{number(machine)}/64 dev eth0 nodad")
    ping(net.b, "fd09::1")
    assert "REACHABLE" in net.b.run("ip -6 neigh show fd09::1").text
    serve_iperf3(net.a)
    net.b.run("iperf3 -c fd09::1 -t 1", timeout=60)
    assert snmp(net.a, "Tcp", "InErrs") == 0


def test_vlans_macvlans_and_promiscuous_mode(net: Pair) -> None:
    for machine in net.machines:
        machine.run(
            f"ip link add link eth0 name eth0.5 type vlan id 5 && "
            f"ip addr add 10.5.0.{number(machine)}/24 dev eth0.5 && ip link set eth0.5 up"
        )
    ping(net.b, "10.5.0.1")
    # the driver asks its device for these four times a second: mlx4_en_do_get_stats
    eventually(lambda: statistics(net.a)["rx_prio_0_packets"] > 0)
    net.a.run(
        "ip link add link eth0 name mv0 type macvlan mode bridge && "
        "ip addr add 10.7.0.1/24 dev mv0 && ip link set mv0 up"
    )
    net.b.run("ip addr replace 10.7.0.2/24 dev eth0")
    ping(net.b, "10.7.0.1")
    net.a.run("ip link del mv0; ip link del eth0.5")
    net.b.run("ip addr del 10.7.0.2/24 dev eth0; ip link del eth0.5")
    assert not complaints(net.a)


def _reach(net: Pair, send: str) -> bool:
    """Whether the frames that `send` sends from the second guest reach the first one's software.

    Echoes that follow them do; there are more than asked for when the first answers are late.
    """
    before = _strangers(net.a)
    net.b.run(send, check=False)
    ping(net.b, address(net.a))
    return _strangers(net.a) >= before + FRAMES


def _strangers(machine: Vm) -> int:
    """How many frames its software got that were no echo requests for it."""
    return received(machine) - snmp(machine, "Icmp", "InEchos")


def test_promiscuous_mode_sees_what_is_for_others(net: Pair) -> None:
    """A frame for an address that is nobody's."""
    net.b.run("ip neigh replace 10.9.0.99 lladdr 02:00:00:00:00:99 dev eth0")
    send = f"ping -c {FRAMES} -i 0.01 -W 0.1 10.9.0.99"
    assert not _reach(net, send)
    net.a.run("ip link set eth0 promisc on")
    eventually(lambda: _reach(net, send))
    net.a.run("ip link set eth0 promisc off")
    eventually(lambda: not _reach(net, send))


def test_multicast_needs_a_member(net: Pair) -> None:
    net.b.run("ip route replace 239.0.0.0/8 dev eth0")
    send = (
        'python3 -c "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); '
        f"[s.sendto(b'x', ('239.1.2.3', 7)) for _ in range({FRAMES})]\""
    )
    assert not _reach(net, send)
    net.a.run("ip maddr add 01:00:5e:01:02:03 dev eth0")
    eventually(lambda: _reach(net, send))
    net.a.run("ip maddr del 01:00:5e:01:02:03 dev eth0")
    eventually(lambda: not _reach(net, send))


def test_settings(net: Pair) -> None:
    """Those that stop and start the port in between keep it working."""
    told = net.a.run("ethtool -i eth0").text
    assert "driver: mlx4_en" in told
    assert "firmware-version: 2.42.5000" in told
    cable = net.a.run("ethtool -m eth0").text
    assert "QSFP+" in cable
    assert "bluebridge" in cable
    for change in (
        "ethtool -G eth0 rx 2048 tx 512",
        "ethtool -L eth0 rx 1 tx 1",
        "ethtool -L eth0 rx 2 tx 2",
        "ethtool -X eth0 hfunc xor",
        "ethtool -X eth0 hfunc toeplitz",
        "ethtool -C eth0 adaptive-rx off rx-usecs 200 rx-frames 8",
        "ethtool -A eth0 rx off tx off",
        "ethtool -A eth0 rx on tx on",
        "ethtool -K eth0 rxvlan off",
        "ethtool -K eth0 rxvlan on",
        "ip link set eth0 address 02:00:00:00:00:77",
        "ip link set eth0 address $(ethtool -P eth0 | cut -d' ' -f3)",
    ):
        net.a.run(change)
        ping(net.a, address(net.b))
    assert not complaints(net.a)


def test_the_adapter_tests_itself(net: Pair) -> None:
    said = _tested(net.a)
    assert "The test result is PASS" in said
    for part in ("Interrupt", "Link", "Speed", "Register", "Loopback"):
        assert f"{part} Test" in said
    ping(net.a, address(net.b))


def _tested(machine: Vm) -> str:
    """Return the result of the adapter's test, which waits half a second for a looped frame."""
    for _ in range(5):
        said = machine.run("ethtool -t eth0 offline", timeout=60, check=False).text
        failed = re.findall(r"^(\w+) Test\s+[1-9]", said, re.MULTILINE)
        if failed != ["Loopback"]:
            break
    return said


def test_counters_of_both_ends_agree(net: Pair) -> None:
    for machine in net.machines:  # reset by ifup
        machine.run("ip link set eth0 down")
    net.both(bring_up)
    ping(net.a, address(net.b), "-s", "1000")
    eventually(lambda: _counters_agree(statistics(net.a), statistics(net.b)))


def _counters_agree(a: dict[str, int], b: dict[str, int]) -> bool:
    """The driver asks the device for them four times a second."""
    return all(
        here["tx_packets_phy"] >= there["rx_packets_phy"] > ECHOES
        and here["tx_bytes_phy"] >= there["rx_bytes_phy"] >= ECHOES * 1000
        and here["rx_packets"] == here["rx_packets_phy"]
        for here, there in ((a, b), (b, a))
    )


def _carrier(machine: Vm, value: int) -> None:
    machine.run(f"until grep -q {value} {CARRIER}; do sleep 0.05; done")


def test_the_cable_is_pulled_and_plugged(net: Pair) -> None:
    net.server.tell("link a down")
    _carrier(net.a, 0)
    assert "DOWN" in net.a.run("rdma link").text
    assert "Link Down" in net.a.run("dmesg -c").text
    net.server.tell("link a up")
    _carrier(net.a, 1)
    ping(net.a, address(net.b))
    assert "ACTIVE" in net.a.run("rdma link").text


def test_messages_vanish_while_the_link_stays_up(net: Pair, buslog: BusLog) -> None:
    ping(net.a, address(net.b))
    with net.hardware.drop("b", kind="frames", direction="in") as rule:
        lost = net.a.run(f"ping -c 2 -i 0.2 -W 0.5 {address(net.b)}", check=False)
        assert lost.status == 1
        assert rule.taken >= 2
        assert net.a.run(f"cat {CARRIER}").text.strip() == "1"
        event = buslog.wait_for(kind="fault", guest="b")
        said = event.values["rule"], event.values["action"], event.values["message"]
        assert said == (rule.number, "drop", "frames")
    ping(net.a, address(net.b))


def test_rping_survives_lost_and_doubled_messages(net: Pair) -> None:
    """RC sends again; without faults these take less than a second."""
    with (
        net.hardware.drop("a", kind="request,response", probability=0.05, seed=1) as lost,
        net.hardware.duplicate("b", kind="request,response", probability=0.05, seed=2) as doubled,
    ):
        net.a.run(f"rping -s -a {address(net.a)} -C 50 -V > /tmp/rping.log 2>&1 &")
        net.a.run("until rdma resource show cm_id | grep -q LISTEN; do sleep 0.1; done")
        net.b.run(f"rping -c -a {address(net.a)} -C 50 -V", timeout=BOOT_SECONDS)
        assert lost.taken and doubled.taken
