"""The kernel's drivers on the HCA against virtio-net and Soft-RoCE in the same two guests."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from bluebridge.host_tools.errors import Progress
from bluebridge.host_tools.lab.config import ADDRESSES, LabConfig
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.programs import perftest
from bluebridge.host_tools.programs.perftest import AVERAGE, TYPICAL, tcp_rate
from tests.campaigns.bench.page import Figure

ROUNDS, TCP_ROUNDS = 5, 3
TCP_SECONDS = 4
TCP_GOALS = {1500: 6.0, 9000: 1.0}
"""The goals by MTU: so many times faster than virtio-net."""
_SECONDS = 120.0
_NETWORK = "10.10.0"
_SOFT_ROCE_MTU = 4200
"""The MTU that RoCE packets of 4096 bytes need."""
Measure = Callable[[], float]


@dataclass(frozen=True)
class Contest:
    """A perftest program over both ways; `goal` is how many times better the HCA should be."""

    words: str
    unit: str
    goal: float
    count: int
    soft_count: int
    absolute: float | None = None
    """The figure that the HCA should reach by itself."""


CONTESTS = (
    Contest("ib_write_lat -s 64", "us", 8, 2000, 300),
    Contest("ib_send_lat -s 64", "us", 20, 2000, 300),
    Contest("ib_write_bw -s 1048576", "MiB/s", 60, 1000, 20, 1024),
)


@dataclass(frozen=True)
class GuestLink:
    """A network between the guests: names of its devices in both, guest a's address."""

    netdev: str
    rdma: str
    server: str


def figures(progress: Progress) -> list[Figure]:
    """Measure all figures of the section on the kernel's RDMA drivers. Raises `LabError`."""
    found: list[Figure] = []
    with Pair(LabConfig(kernel=True, bus_log=False), progress) as pair:
        hca, soft = guest_links(pair)
        for contest in CONTESTS:
            progress(f"{contest.words}: HCA and Soft-RoCE in turn")
            found += _race(pair, hca, soft, contest)
        for mtu in TCP_GOALS:
            progress(f"iperf3, MTU {mtu}: mlx4_en and virtio-net in turn")
            found += _tcp(pair, hca, soft, mtu)
    return found


def in_turn(first: Measure, second: Measure, rounds: int) -> tuple[float, float]:
    """Medians of two measurements that take turns, so that the machine's variation affects both."""
    pairs = [(first(), second()) for _ in range(rounds)]
    one, two = zip(*pairs, strict=True)
    return statistics.median(one), statistics.median(two)


def _race(pair: Pair, hca: GuestLink, soft: GuestLink, contest: Contest) -> list[Figure]:
    ours, theirs = in_turn(
        partial(_perftest, pair, hca, f"{contest.words} -n {contest.count}"),
        partial(_perftest, pair, soft, f"{contest.words} -n {contest.soft_count}"),
        ROUNDS,
    )
    ratio = theirs / ours if contest.unit == "us" else ours / theirs
    title = f"`{contest.words}`"
    return [
        Figure(f"{title} over mlx4", ours, contest.unit, least=contest.absolute),
        Figure(f"{title} over Soft-RoCE", theirs, contest.unit),
        Figure(f"{title}: ratio", ratio, "x", least=contest.goal),
    ]


def _perftest(pair: Pair, link: GuestLink, command: str) -> float:
    """Return the figure that `command`, an `ib_*_lat` or `ib_*_bw`, prints: microseconds or MiB/s.

    Raises `LabError`.
    """
    row = perftest.figures(pair, f"{command} -d {link.rdma}", link.server, _SECONDS)
    return row[TYPICAL if "_lat" in command else AVERAGE]


def _tcp(pair: Pair, hca: GuestLink, soft: GuestLink, mtu: int) -> list[Figure]:
    for link in (hca, soft):
        _set_mtu(pair, link, mtu)
    found: list[Figure] = []
    for backwards in (False, True):
        rate = partial(tcp_rate, pair, backwards=backwards, seconds=TCP_SECONDS)
        ours, theirs = in_turn(partial(rate, hca.server), partial(rate, soft.server), TCP_ROUNDS)
        title = f"iperf3, MTU {mtu}, {'a to b' if backwards else 'b to a'}"
        found += [
            Figure(f"{title}, mlx4_en", ours, "MiB/s"),
            Figure(f"{title}, virtio-net over dgram", theirs, "MiB/s"),
            Figure(f"{title}: ratio", ours / theirs, "x", least=TCP_GOALS[mtu]),
        ]
    return found


def _set_mtu(pair: Pair, link: GuestLink, mtu: int) -> None:
    """Set the MTU in both guests; ends when the link is there again."""
    carrier = f"/sys/class/net/{link.netdev}/carrier"
    for machine in pair.machines:
        machine.run(f"ip link set {link.netdev} mtu {mtu}; until grep -q 1 {carrier}; do :; done")
    pair.b.run(f"until ping -c 1 -W 1 {link.server}; do :; done")


def guest_links(pair: Pair) -> tuple[GuestLink, GuestLink]:
    """The HCAs' link, and that of NICs with Soft-RoCE that are plugged into both guests here.

    `pair` has the kernel's drivers (`LabConfig.kernel`). The NICs exchange frames as datagrams
    over Unix sockets, which is QEMU's quickest way between two guests without a bridge.
    """
    netdevs = [""] * len(pair.machines)

    def prepare(number: int, machine: Vm) -> None:
        netdevs[number] = netdev = _plug_nic(pair, number)
        machine.run(
            f"ip addr add {_NETWORK}.{number + 1}/24 dev {netdev} &&"
            f" ip link set {netdev} mtu {_SOFT_ROCE_MTU} up &&"
            f" modprobe rdma_rxe && rdma link add rxe0 type rxe netdev {netdev}"
        )

    pair.together(*(partial(prepare, *each) for each in enumerate(pair.machines)))
    pair.b.run(f"until ping -c 1 -W 1 {_NETWORK}.1; do :; done")
    own = pair.a.run("ls /sys/class/infiniband/mlx4_0/device/net").text.split()[0]
    return (
        GuestLink(own, "mlx4_0", ADDRESSES[0].partition("/")[0]),
        GuestLink(netdevs[0], "rxe0", f"{_NETWORK}.1"),
    )


def _plug_nic(pair: Pair, number: int) -> str:
    """A virtio-net NIC in the guest of that number; the name of its network device."""
    machine = pair.machines[number]
    mine, theirs = (
        {"type": "unix", "path": str(pair.folder / f"nic-{name}.sock")}
        for name in (machine.name, pair.machines[1 - number].name)
    )
    machine.qmp.command("netdev_add", type="dgram", id="nic", local=mine, remote=theirs)
    machine.qmp.command(
        "device_add",
        driver="virtio-net-pci",
        bus="port1",  # the HCA has port 0
        netdev="nic",
        mac=f"52:54:00:00:10:{number + 1:02x}",
        romfile="",  # an option ROM is for booting from the network
    )
    place = "/sys/bus/pci/devices/0000:02:00.0/virtio*/net"
    machine.run(f"modprobe virtio_net; until ls {place}; do sleep 0.1; done", timeout=30)
    return machine.run(f"ls {place}").text.split()[0]
