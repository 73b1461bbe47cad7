"""RNBD on the HCA: the kernel's on both sides against Soft-RoCE, and the Python server."""

from __future__ import annotations

import contextlib
import json
import statistics
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from bluebridge.host_tools.errors import Progress
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.rtrs.session import config, mapped
from bluebridge.host_tools.rtrs.sides import KernelClient, Route, routes
from tests.campaigns.bench.page import Figure
from tests.campaigns.bench.rdma import guest_links, in_turn

ROUNDS = 3
SECONDS = 4
SOFT_GOAL = 20
_PATIENCE = 120.0
_CPUS = 2


def figures(progress: Progress) -> list[Figure]:
    """Measure all figures of RNBD's section. Raises `LabError`."""
    kernel = replace(config(("kernel", "kernel"), hcas=1), bus_log=False, cpus=_CPUS)
    with Pair(kernel, progress) as pair:
        _, soft = guest_links(pair)
        subnet = soft.server.rpartition(".")[0]
        theirs = Route(f"{subnet}.1", f"{subnet}.2", "")
        found = _bandwidths(pair, routes(pair.config)[0], theirs, progress)
    return found + _python_server(progress)


def _bandwidths(pair: Pair, ours: Route, theirs: Route, progress: Progress) -> list[Figure]:
    found: list[Figure] = []
    with (
        _rnbd(pair, "hca", "/dev/ram0", ours) as fast,
        _rnbd(pair, "soft", "/dev/ram1", theirs) as slow,
    ):
        for way in ("read", "write"):
            progress(f"RNBD, sequential {way}: HCA and Soft-RoCE in turn")
            hca, soft = in_turn(
                partial(_bandwidth, pair, fast, way), partial(_bandwidth, pair, slow, way), ROUNDS
            )
            title = f"RNBD, 128 KiB sequential {way}"
            found += [
                Figure(f"{title}, kernel and kernel over mlx4", hca, "MiB/s"),
                Figure(f"{title}, over Soft-RoCE", soft, "MiB/s"),
                Figure(f"{title}: ratio", hca / soft, "x", least=SOFT_GOAL),
            ]
        progress("RNBD, 4 KiB random reads")
        reads = statistics.median(_random_reads(pair, fast) for _ in range(ROUNDS))
    title = "4 KiB random reads, 32 at a time, on one HCA: RNBD, kernel and kernel"
    return [*found, Figure(title, reads, "IOPS")]


def _python_server(progress: Progress) -> list[Figure]:
    """The kernel's client and the guest's Python as server, over two paths."""
    mixed = replace(config(("kernel", "python"), hcas=1), bus_log=False, cpus=_CPUS)
    with Pair(mixed, progress) as pair, mapped(pair) as session:
        progress("RNBD, Python server: sequential writes, random reads")
        device = session.device
        writes = [_bandwidth(pair, device, "write") for _ in range(ROUNDS)]
        reads = [_random_reads(pair, device) for _ in range(ROUNDS)]
    title = "RNBD, kernel client, Python server"
    random = f"{title}: 4 KiB random reads, 32 at a time"
    return [
        Figure(f"{title}: 128 KiB writes", statistics.median(writes), "MiB/s", least=50),
        Figure(random, statistics.median(reads), "IOPS", least=500),
    ]


@contextlib.contextmanager
def _rnbd(pair: Pair, session: str, disk: str, route: Route) -> Iterator[str]:
    """Yield `disk` of guest b as a block device of guest a over one path. Raises `LabError`."""
    client = KernelClient(pair.a, session)
    device = client.map(disk, [route])
    try:
        yield device
    finally:
        client.unmap()


def _bandwidth(pair: Pair, device: str, way: str) -> float:
    """Return the MiB/s of sequential `read` or `write`, 128 KiB each, 8 at a time."""
    job = _fio(pair, device, f"--rw={way} --bs=128k --iodepth=8")
    return float(job[way]["bw_bytes"]) / (1 << 20)


def _random_reads(pair: Pair, device: str) -> float:
    """Return the random reads of 4 KiB per second, 32 at a time."""
    return float(_fio(pair, device, "--rw=randread --bs=4k --iodepth=32")["read"]["iops"])


def _fio(pair: Pair, device: str, words: str) -> dict[str, dict[str, float]]:
    line = (
        f"fio --name=bench --filename={device} {words} --ioengine=libaio --direct=1 --size=192M "
        f"--time_based --runtime={SECONDS} --ramp_time=1 --output-format=json"
    )
    said = pair.a.run(line, timeout=_PATIENCE + SECONDS).text
    jobs: list[dict[str, dict[str, float]]] = json.loads(said[said.index("{") :])["jobs"]
    return jobs[0]
