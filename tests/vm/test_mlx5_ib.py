"""The unmodified mlx5_ib and libmlx5 on a ConnectX-5: stock programs of RDMA between guests."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from bluebridge.device.buslog.reader import Filter, LogReader
from bluebridge.device.buslog.wire import read_message
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.net.roce import Op
from bluebridge.device.server.options import ServerOptions
from bluebridge.host_tools.analyzer.analysis import PostedBy, Role, Transfer, transfers
from bluebridge.host_tools.krping.krping_command import KrpingRequest
from bluebridge.host_tools.krping.krping_command import run as krping
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.programs.perftest import CM_LISTENING, VERBS_PORT, listening
from bluebridge.host_tools.pytest_plugin.lab import Lab
from tests.vm.conftest import BOOT_SECONDS
from tests.vm.network import address, complaints, eventually, ping, statistics

pytestmark = pytest.mark.timeout(3 * BOOT_SECONDS)
LIMIT = 90
COUNT = 20
DEVICES = {"connectx5": "mlx5_0", "connectx3": "mlx4_0"}
REQUESTS = {
    Op.WRITE: "rx_write_requests",
    Op.READ: "rx_read_requests",
    Op.FETCH_ADD: "rx_atomic_requests",
}
"""Requests by the names of their counters at who gets them."""
RNR = 1
"""Of a syndrome its upper bits."""
FCS = 4
V1, V2 = 2, 3
"""Places of the GIDs of an IPv4 address."""


@pytest.fixture
def pair(lab: Lab) -> Iterator[Pair]:
    """Two ConnectX-5 with BlueFlame under mlx5_ib; the kernel's messages are read."""
    options = ServerOptions(card="connectx5", blueflame="on")
    with lab.pair(vfio=False, kernel=True, options=options) as pair:
        for machine in pair.machines:
            assert not [line for line in complaints(machine) if "mlx5" in line]
        yield pair


@pytest.fixture
def mixed(lab: Lab) -> Iterator[Pair]:
    """A ConnectX-5 in guest a and a ConnectX-3 Pro in guest b."""
    options = ServerOptions(card="connectx5,connectx3", pro=True)
    with lab.pair(vfio=False, kernel=True, options=options) as pair:
        yield pair


def both(server: Vm, client: Vm, words: str, *, ready: str = listening(VERBS_PORT)) -> str:
    """Run a program that exchanges numbers by TCP in both guests; the client's output."""
    serving = server.agent.start(f"{words} -d {device(server)}", LIMIT)
    server.run(f"until {ready}; do sleep 0.1; done", timeout=LIMIT)
    said = client.run(f"{words} -d {device(client)} {address(server)}", timeout=LIMIT).text
    assert serving.wait().status == 0
    return said


def device(machine: Vm) -> str:
    """The name of the RDMA device."""
    return machine.run("ls /sys/class/infiniband").text.strip()


def stored(pair: Pair, size: int) -> list[Transfer]:
    """The messages of both sides with so many bytes of data in their entries."""
    deadline = time.monotonic() + 10
    while True:  # the server writes its log out every 50 ms
        found = [each for each in transfers(pair.logs) if each.inline == each.length == size]
        if len(found) >= 2 * COUNT or time.monotonic() > deadline:
            return found


def rping(server: Vm, client: Vm) -> None:
    """Ten pings by the connection manager, their bytes compared."""
    serving = server.agent.start(f"rping -s -a {address(server)} -C 10 -V", LIMIT)
    server.run(f"until {CM_LISTENING}; do sleep 0.1; done", timeout=LIMIT)
    client.run(f"rping -c -a {address(server)} -C 10 -V", timeout=LIMIT)
    serving.wait()


@pytest.mark.brief
def test_rdma_of_two_connectx5(pair: Pair) -> None:
    """Connections of the connection manager, and a program that posts from user space."""
    a, b = pair.machines
    told = a.run("ibv_devinfo -v -d mlx5_0").text
    for word in ("PORT_ACTIVE", "ATOMIC_HCA", "::ffff:10.9.0.1, RoCE v2", "XRC"):
        assert word in told
    rping(a, b)
    both(a, b, f"ib_write_bw -x {V2} -s 65536 -n 20")
    for words, size in (("ib_write_lat", 28), ("ib_send_lat", 44)):
        both(a, b, f"{words} -x {V2} -s {size} -n {COUNT}")
        posts = stored(pair, size)
        assert [each.notes for each in posts] == [[]] * 2 * COUNT
        assert {(each.posted_by, each.count(Role.WQE)) for each in posts} == {
            (PostedBy.BLUEFLAME, 0)
        }
    for machine in (a, b):
        assert not complaints(machine)


def test_a_thousand_pages_are_brought_in_on_demand(pair: Pair) -> None:
    """Nobody has touched them, or they were taken away; several queue pairs are busy."""
    a, b = pair.machines
    program = Path(__file__).with_name("paged_memory.py")
    told = a.run("ibv_devinfo -v -d mlx5_0").text
    for word in ("ODP_SUPPORT", "ODP_SUPPORT_IMPLICIT", "SUPPORT_ATOMIC", "SUPPORT_SRQ"):
        assert word in told
    for machine in (a, b):
        machine.agent.put(program, "/tmp/")
    serving = b.agent.start(f"python3 /tmp/{program.name} 2>&1", LIMIT)
    said = a.run(f"python3 /tmp/{program.name} {address(b)}", timeout=LIMIT).text
    assert serving.wait().status == 0
    assert said.startswith("1000 pages in ")
    both(a, b, f"ib_write_bw -x {V2} --odp -n 20")  # the log is written out meanwhile
    for machine in (a, b):
        assert not complaints(machine)
    faults = Counter[tuple[str, str, str]]()
    for event in LogReader(pair.logs):
        if event.fact is Fact.PAGE_FAULT and event.told is not None:
            what, status, us = (event.told.values[name] for name in ("what", "status", "us"))
            assert us > 0
            faults[event.device, what.partition(" ")[0], status] += 1
    assert {status for _, _, status in faults} == {"OK"}
    for device_name, kind in (("b", "write"), ("b", "read"), ("a", "READ")):
        assert faults[device_name, kind, "OK"] >= 500
    assert faults["a", "SEND", "OK"]


def on_the_wire(pair: Pair) -> Counter[tuple[str, str]]:
    """Frames with their bytes, requests and NAKs that the log has, by sender and kind."""
    found = Counter[tuple[str, str]]()
    for event in LogReader(pair.logs).events(Filter(kinds=frozenset((Kind.WIRE,)))):
        if event.what is What.FRAME:
            found[event.device, "packets"] += 1
            found[event.device, "bytes"] += event.length + FCS
        elif event.what is What.REQUEST:
            found[event.device, REQUESTS.get(read_message(event).op, "other")] += 1
        elif event.what is What.RESPONSE and read_message(event).syndrome >> 5 == RNR:
            found[event.device, "RNR"] += 1
    return found


def q_counters(machine: Vm) -> dict[str, int]:
    """The counters that `rdma statistic` shows of the port."""
    (told,) = json.loads(machine.run("rdma -j statistic show link mlx5_0/1").text)
    return {name: value for name, value in told.items() if isinstance(value, int)}


def missing(pair: Pair) -> dict[str, int]:
    """Count what is in the log and not in the guests' counters, by guest and counter."""
    sent, found = on_the_wire(pair), dict[str, int]()
    for own, other, machine in (("a", "b", pair.a), ("b", "a", pair.b)):
        queues, port = q_counters(machine), statistics(machine)
        told = {name: (sent[other, name], queues[name]) for name in REQUESTS.values()}
        told["rnr_nak_retry_err"] = sent[other, "RNR"], queues["rnr_nak_retry_err"]
        told["out_of_buffer"] = sent[own, "RNR"], queues["out_of_buffer"]
        for way, by in (("tx", own), ("rx", other)):
            for unit in ("packets", "bytes"):
                name = f"{way}_{unit}_phy"
                told[name] = sent[by, unit], port[name]
        found |= {f"{own} {name}": has - counted for name, (has, counted) in told.items()}
    return {name: count for name, count in found.items() if count}


def early_frames(pair: Pair) -> dict[str, int]:
    """Count what is missing when nothing is on its way: frames to a port that was not up yet."""
    seen = [missing(pair)]

    def the_same() -> bool:
        seen.append(missing(pair))
        received = all(name[2:] in ("rx_packets_phy", "rx_bytes_phy") for name in seen[-1])
        return received and seen[-1] == seen[-2]

    eventually(the_same)
    return seen[-1]


def test_counters_are_equal_to_the_log(pair: Pair) -> None:
    """`rdma statistic` and `ethtool -S` tell what the log has, after work of known numbers."""
    a, b = pair.machines
    ping(a, address(b))
    early = early_frames(pair)
    count = {"rx_write_requests": 60, "rx_read_requests": 40, "rx_atomic_requests": 20}
    for words, number in zip(("write_bw", "read_bw", "atomic_bw"), count.values(), strict=True):
        size = "" if words == "atomic_bw" else "-s 4096"
        both(b, a, f"ib_{words} -x {V2} {size} -n {number}")
    both(b, a, f"ib_send_bw -x {V2} -s 4096 -n 300 -r 1")
    assert {name: q_counters(b)[name] for name in count} == count
    assert on_the_wire(pair)["b", "RNR"]
    assert early_frames(pair) == early


@pytest.mark.brief
def test_python_and_then_the_kernel_on_a_connectx5_and_a_connectx3(lab: Lab) -> None:
    """krping by the guests' Python, which gives the cards back; then rping over their kernels."""
    options = ServerOptions(card="connectx5,connectx3", pro=True)
    with lab.pair(options=options) as pair:
        words = ("addr=192.168.69.127,port=9999,size=4097", "mem_mode=reg")
        server, client = (",".join((side, *words)) for side in ("server", "client"))
        outcome = krping(pair, KrpingRequest.parse(server, f"{client},count=20,validate"))
        assert outcome.ok, outcome.failure()
        for machine in pair.machines:
            loader = pair.config.card(machine.name).loader
            machine.run([loader, f"{address(machine)}/24"], timeout=LIMIT)
        a, b = pair.machines
        rping(a, b)
        rping(b, a)


def test_a_connectx5_with_a_connectx3(mixed: Pair) -> None:
    a, b = mixed.machines
    assert [device(machine) for machine in (a, b)] == [DEVICES["connectx5"], DEVICES["connectx3"]]
    for server, client in ((a, b), (b, a)):
        rping(server, client)
        for words in ("ibv_rc_pingpong -n 50 -g", "ibv_ud_pingpong -n 50 -g"):
            both(server, client, f"{words} {V2}")
            both(server, client, f"{words} {V1}")
        both(server, client, f"ib_write_bw -n 20 -x {V2}")
        both(server, client, f"ib_atomic_lat -n 20 -x {V2}")
