"""The kernel's drivers on the HCA against virtio-net and Soft-RoCE in the same two guests."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from bluebridge.device.server.options import DEFAULTS, ServerOptions
from bluebridge.host_tools.campaigns.bench import programs
from bluebridge.host_tools.campaigns.bench.figures import Figure, at_least, plain
from bluebridge.host_tools.campaigns.bench.links import GuestLink, guest_links
from bluebridge.host_tools.lab.config import LabConfig
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.progress import Progress

ROUNDS = 5
TCP_ROUNDS = 3
TCP_SECONDS = 4
TCP_GOALS = {1500: 6.0, 9000: 1.0}
"""The goals by MTU: so many times faster than virtio-net."""
Measure = Callable[[], float]


@dataclass(frozen=True)
class Contest:
    """A perftest program over both ways; `goal` is how many times better the HCA should be."""

    key: str
    words: str
    goal: float
    count: int
    soft_count: int
    absolute: float | None = None
    """The figure in MiB/s that the HCA should reach by itself."""

    @property
    def latency(self) -> bool:
        """Whether a smaller figure is better."""
        return "_lat" in self.words

    @property
    def unit(self) -> str:
        """The unit of the figure that the program prints."""
        return "us" if self.latency else "MiB/s"


CONTESTS = (
    Contest("write_lat", "ib_write_lat -s 64", 8, 2000, 300),
    Contest("send_lat", "ib_send_lat -s 64", 20, 2000, 300),
    Contest("write_bw", "ib_write_bw -s 1048576", 60, 1000, 20, 1024),
    Contest("read_bw", "ib_read_bw -s 65536", 20, 4000, 100, 2048),
)
_LATENCIES = CONTESTS[:2]


def figures(progress: Progress) -> list[Figure]:
    """Measure all figures of the section on the kernel's RDMA drivers. Raises `LabError`."""
    found: list[Figure] = []
    with Pair(config(), progress) as pair:
        hca, soft = guest_links(pair)
        for contest in CONTESTS:
            progress(f"{contest.words}: HCA and Soft-RoCE in turn")
            found += _race(pair, hca, soft, contest)
        for mtu in TCP_GOALS:
            progress(f"iperf3, MTU {mtu}: mlx4_en and virtio-net in turn")
            found += _tcp(pair, hca, soft, mtu)
        found += _variants(pair, hca, progress)
    return found


def config(
    names: tuple[str, str] = ("a", "b"), *, log: bool = False, options: ServerOptions = DEFAULTS
) -> LabConfig:
    """Guests with the kernel's drivers."""
    return LabConfig(kernel=True, bus_log=log, names=names, options=options)


def in_turn(first: Measure, second: Measure, rounds: int) -> tuple[float, float]:
    """Medians of two measurements that take turns, so that the machine's variation affects both."""
    pairs = [(first(), second()) for _ in range(rounds)]
    one, two = zip(*pairs, strict=True)
    return statistics.median(one), statistics.median(two)


def _race(pair: Pair, hca: GuestLink, soft: GuestLink, contest: Contest) -> list[Figure]:
    ours, theirs = in_turn(
        lambda: programs.perftest(pair, hca, f"{contest.words} -n {contest.count}"),
        lambda: programs.perftest(pair, soft, f"{contest.words} -n {contest.soft_count}"),
        ROUNDS,
    )
    ratio = theirs / ours if contest.latency else ours / theirs
    title = f"`{contest.words}`"
    own = plain(f"rdma_{contest.key}", f"{title} over mlx4", ours, contest.unit)
    if contest.absolute is not None:
        own = at_least(own, contest.absolute)
    return [
        own,
        plain(f"rdma_{contest.key}_soft", f"{title} over Soft-RoCE", theirs, contest.unit),
        at_least(plain(f"rdma_{contest.key}_ratio", f"{title}: ratio", ratio, "x"), contest.goal),
    ]


def _tcp(pair: Pair, hca: GuestLink, soft: GuestLink, mtu: int) -> list[Figure]:
    for link in (hca, soft):
        programs.set_mtu(pair, link, mtu)
    found: list[Figure] = []
    for backwards in (False, True):
        run = partial(programs.iperf3, pair, backwards=backwards, seconds=TCP_SECONDS)
        ours, theirs = in_turn(partial(run, hca), partial(run, soft), TCP_ROUNDS)
        key = f"tcp_{mtu}_{'ab' if backwards else 'ba'}"
        title = f"iperf3, MTU {mtu}, {'a to b' if backwards else 'b to a'}"
        found += [
            plain(key, f"{title}, mlx4_en ({programs.offloads(pair, hca)})", ours, "MiB/s"),
            plain(
                f"{key}_soft",
                f"{title}, virtio-net over dgram ({programs.offloads(pair, soft)})",
                theirs,
                "MiB/s",
            ),
            at_least(plain(f"{key}_ratio", f"{title}: ratio", ours / theirs, "x"), TCP_GOALS[mtu]),
        ]
    return found


def _variants(pair: Pair, hca: GuestLink, progress: Progress) -> list[Figure]:
    """The same latencies with BlueFlame, and with the bus log, each beside `pair`."""
    found: list[Figure] = []
    for key, title, lab in (
        (
            "blueflame",
            "`--blueflame on`",
            config(("a2", "b2"), options=ServerOptions(blueflame="on")),
        ),
        ("log", "the bus log on", config(("a2", "b2"), log=True)),
    ):
        progress(f"{title} and without, in turn")
        with Pair(lab, progress) as other:
            for contest in _LATENCIES:
                command = f"{contest.words} -n {contest.count}"
                with_it, without = in_turn(
                    partial(programs.perftest, other, hca, command),
                    partial(programs.perftest, pair, hca, command),
                    ROUNDS,
                )
                name = f"`{contest.words}`"
                found += [
                    plain(f"rdma_{contest.key}_{key}", f"{name}, {title}", with_it, "us"),
                    plain(f"rdma_{contest.key}_{key}_not", f"{name}, without", without, "us"),
                ]
    return found
