"""RNBD on the HCA: the kernel's against Soft-RoCE and nvme-rdma, the Python server; fail-over."""

from __future__ import annotations

import statistics
from dataclasses import replace
from functools import partial

from bluebridge.host_tools.campaigns.bench import block, failover
from bluebridge.host_tools.campaigns.bench.figures import Figure, at_least, at_most, plain
from bluebridge.host_tools.campaigns.bench.links import guest_links
from bluebridge.host_tools.campaigns.bench.rdma import in_turn
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.progress import Progress
from bluebridge.host_tools.rtrs.routes import Route, routes
from bluebridge.host_tools.rtrs.session import config, mapped

ROUNDS = 3
SECONDS = 4
CUTS = 50
SOFT_GOAL = 20
PYTHON_WRITE_GOAL, PYTHON_READ_GOAL = 50, 500
HEARTBEAT_LIMIT = 30.0
"""The seconds until a dead path is noticed: beats every 5 s, 5 may be missed (rtrs-pri.h)."""
_DISKS = ("/dev/ram0", "/dev/ram1")
_CPUS = 2


def figures(progress: Progress) -> list[Figure]:
    """Measure all figures of RNBD's section. Raises `LabError`."""
    kernel = replace(config(("kernel", "kernel"), hcas=1), bus_log=False, cpus=_CPUS)
    with Pair(kernel, progress) as pair:
        _, soft = guest_links(pair)
        ours = routes(pair.config)[0]
        subnet = soft.server.rpartition(".")[0]
        theirs = Route(f"{subnet}.1", f"{subnet}.2", "")
        found = _bandwidth(pair, ours, theirs, progress)
        found += _random_reads(pair, ours, progress)
    found += _python_server(progress)
    with Pair(kernel, progress) as pair, mapped(pair) as session:
        found += _failover(failover.gaps(session, CUTS, progress))
    return found


def _bandwidth(pair: Pair, ours: Route, theirs: Route, progress: Progress) -> list[Figure]:
    found: list[Figure] = []
    with (
        block.rnbd(pair, "hca", _DISKS[0], ours) as fast,
        block.rnbd(pair, "soft", _DISKS[1], theirs) as slow,
    ):
        for way in ("read", "write"):
            progress(f"RNBD, sequential {way}: HCA and Soft-RoCE in turn")
            hca, soft = in_turn(
                partial(block.bandwidth, pair, fast, way, SECONDS),
                partial(block.bandwidth, pair, slow, way, SECONDS),
                ROUNDS,
            )
            title, key = f"RNBD, 128 KiB sequential {way}", f"rnbd_{way}"
            ratio = plain(f"{key}_ratio", f"{title}: ratio", hca / soft, "x")
            found += [
                plain(key, f"{title}, kernel and kernel over mlx4", hca, "MiB/s"),
                plain(f"{key}_soft", f"{title}, over Soft-RoCE", soft, "MiB/s"),
                at_least(ratio, SOFT_GOAL),
            ]
    return found


def _random_reads(pair: Pair, route: Route, progress: Progress) -> list[Figure]:
    progress("4 KiB random reads: RNBD and nvme-rdma in turn")
    with (
        block.rnbd(pair, "random", _DISKS[0], route) as one,
        block.nvme(pair, _DISKS[1], route) as other,
    ):
        ours, theirs = in_turn(
            partial(block.random_reads, pair, one, SECONDS),
            partial(block.random_reads, pair, other, SECONDS),
            ROUNDS,
        )
    title = "4 KiB random reads, 32 at a time, on one HCA"
    return [
        plain("rnbd_randread", f"{title}: RNBD, kernel and kernel", ours, "IOPS"),
        plain("nvme_randread", f"{title}: nvme-rdma", theirs, "IOPS"),
    ]


def _python_server(progress: Progress) -> list[Figure]:
    """The kernel's client and the guest's Python as server, over two paths."""
    mixed = replace(config(("kernel", "python"), hcas=1), bus_log=False, cpus=_CPUS)
    with Pair(mixed, progress) as pair, mapped(pair) as session:
        progress("RNBD, Python server: sequential writes, random reads")
        device = session.device
        writes = [block.bandwidth(pair, device, "write", SECONDS) for _ in range(ROUNDS)]
        reads = [block.random_reads(pair, device, SECONDS) for _ in range(ROUNDS)]
    title = "RNBD, kernel client, Python server"
    write = plain(
        "rnbd_python_write", f"{title}: 128 KiB writes", statistics.median(writes), "MiB/s"
    )
    read = plain(
        "rnbd_python_randread",
        f"{title}: 4 KiB random reads, 32 at a time",
        statistics.median(reads),
        "IOPS",
    )
    return [at_least(write, PYTHON_WRITE_GOAL), at_least(read, PYTHON_READ_GOAL)]


def _failover(gaps: list[float]) -> list[Figure]:
    title = f"fail-over after a silent death, {len(gaps)} of {CUTS} cuts"
    return [
        plain("rnbd_failover", f"{title}: median", statistics.median(gaps), "s"),
        at_most(plain("rnbd_failover_max", f"{title}: longest", max(gaps), "s"), HEARTBEAT_LIMIT),
    ]
