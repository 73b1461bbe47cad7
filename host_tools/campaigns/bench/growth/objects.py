"""What many queue pairs, completion queues and regions cost those who use one of them.

Two HCAs of one server, driven over their sockets without guests; one size after the other at the
same server, so that what there is only grows.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from bluebridge.device.pyvfio_user import ENVIRONMENT
from bluebridge.guest.drivers.hca.context import open_hca
from bluebridge.guest.drivers.hca.resources.profile import Profile
from bluebridge.guest.verbs import Device
from bluebridge.guest.verbs.objects import CompletionQueue, MemoryRegion
from bluebridge.host_tools.campaigns.bench.figures import Figure
from bluebridge.host_tools.campaigns.bench.growth.series import series
from bluebridge.host_tools.campaigns.bench.growth.writers import REMOTE, Writers
from bluebridge.host_tools.lab import folders
from bluebridge.host_tools.lab.device_server import DeviceServer, ServerConfig
from bluebridge.host_tools.progress import Progress
from bluebridge.host_tools.vfio_user.bus import WireBus

QUEUE_PAIRS = (1, 100, 10_000)
COMPLETION_QUEUES = (1, 32, 1_000)
REGIONS = (1, 1 << 10, (1 << 19) - (1 << 10))
"""The last is what the device has, less those that it keeps for itself and what is needed here."""
_ROUNDS = 7
_TIMES = 500
_POLLS = 20_000
_STEP = 7919
"""From one object to the next, so that neighbours are not used in a row; a prime."""
_LARGE = Profile(log_qps=15, log_cqs=11, log_mpts=19, log_mtts=18)
_RAM = 640 << 20
"""Bytes of memory of either end, of which the system gives only what is written."""


def figures(library: Path, progress: Progress) -> list[Figure]:
    """Everything of this module."""
    os.environ[ENVIRONMENT] = str(library)
    found: list[Figure] = []
    for measure in (_queue_pairs, _completion_queues, _regions):
        with _ends(library) as (server, a, b):
            found += measure(server, a, b, progress)
    return found


@contextmanager
def _ends(library: Path) -> Iterator[tuple[DeviceServer, Device, Device]]:
    with folders.run_folder() as folder, tempfile.TemporaryDirectory() as logs:
        sockets = {name: folder / name for name in "ab"}
        server = DeviceServer(ServerConfig(sockets, None, library), Path(logs))
        server.start()
        try:
            buses = [WireBus(sockets[name], _RAM) for name in "ab"]
            with (
                open_hca(buses[0], profile=_LARGE) as a,
                open_hca(buses[1], profile=_LARGE) as b,
            ):
                yield server, a, b
        finally:
            server.stop()


def _queue_pairs(server: DeviceServer, a: Device, b: Device, progress: Progress) -> list[Figure]:
    writers = Writers(a, b)
    one: dict[int, float] = {}
    latency: dict[int, float] = {}
    each: dict[int, float] = {}
    made: dict[int, float] = {}
    for size in QUEUE_PAIRS:
        progress(f"{size:,} queue pairs")
        while len(writers) < size:
            writers.add()
        one[size] = _cost(server, lambda _: writers.write(0))
        latency[size] = median(writers.write(0) for _ in range(_ROUNDS * _TIMES)) * 1e6
        each[size] = _cost(server, lambda number: writers.write(number * _STEP % len(writers)))
        made[size] = _cost(server, lambda _: writers.come_and_go(), 50)
    title = "one 8-byte RDMA WRITE among as many connected queue pairs"
    return [
        *series("qp_one", f"{title}, always by the same one: device CPU", "us", one),
        *series("qp_latency", "the same: time until its completion is polled, p50", "us", latency),
        *series("qp_each", "the same, each by another one: device CPU", "us", each),
        *series("qp_made", "a queue pair made, initialised and destroyed: device CPU", "us", made),
    ]


def _completion_queues(
    server: DeviceServer, a: Device, b: Device, progress: Progress
) -> list[Figure]:
    writers = Writers(a, b)
    writers.add()
    queues: list[CompletionQueue] = []
    write: dict[int, float] = {}
    poll: dict[int, float] = {}
    for size in COMPLETION_QUEUES:
        progress(f"{size:,} completion queues")
        queues += [a.create_cq(64) for _ in range(size - len(queues))]
        write[size] = _cost(server, lambda _: writers.write(0))
        poll[size] = min(_poll_us(queues[-1].poll) for _ in range(_ROUNDS))
    title = "among as many completion queues"
    return [
        *series("cq_poll", f"one poll {title}: CPU of the guest's driver", "us", poll),
        *series("cq_write", f"one RDMA WRITE that completes {title}: device CPU", "us", write),
    ]


def _poll_us(poll: Callable[[int], object]) -> float:
    begin = time.process_time()
    for _ in range(_POLLS):
        poll(1)
    return (time.process_time() - begin) / _POLLS * 1e6


def _regions(server: DeviceServer, a: Device, b: Device, progress: Progress) -> list[Figure]:
    writers = Writers(a, b)
    writers.add()
    pd = writers.target
    regions: list[MemoryRegion] = []
    write: dict[int, float] = {}
    made: dict[int, float] = {}
    longest: dict[int, float] = {}

    def write_to_next(number: int) -> None:
        writers.write(0, regions[number * _STEP % len(regions)].rkey)

    for size in REGIONS:
        progress(f"{size:,} memory regions")
        while len(regions) < size:
            before = server.cpu_seconds()
            regions.append(pd.get_dma_mr(REMOTE))
            longest[size] = max(longest.get(size, 0), (server.cpu_seconds() - before) * 1e3)
        write[size] = _cost(server, write_to_next)
        made[size] = _cost(server, lambda _: pd.get_dma_mr(REMOTE).close(), 200)
    return [
        *series(
            "mr_write", "one 8-byte RDMA WRITE, its R_Key one of as many: device CPU", "us", write
        ),
        *series("mr_made", "a region registered and given back: device CPU", "us", made),
        *series("mr_longest", "the longest of the registrations so far", "ms", longest),
    ]


def _cost(server: DeviceServer, action: Callable[[int], object], times: int = _TIMES) -> float:
    """Microseconds of the server's processor time per action, the least of some rounds.

    The least, since others can only add to it.
    """
    costs = []
    for _ in range(_ROUNDS):
        before = server.cpu_seconds()
        for number in range(times):
            action(number)
        costs.append((server.cpu_seconds() - before) / times * 1e6)
    return min(costs)
