"""RNBD on the HCA: the kernel's against Soft-RoCE and nvme-rdma, the Python server; fail-over."""

from __future__ import annotations

import contextlib
import json
import math
import signal
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from bluebridge.host_tools.campaigns.bench.figures import Figure, at_least, at_most, plain
from bluebridge.host_tools.campaigns.bench.links import guest_links
from bluebridge.host_tools.campaigns.bench.rdma import in_turn
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.progress import Progress
from bluebridge.host_tools.rtrs.cuts import Cut, Cutter
from bluebridge.host_tools.rtrs.interruption import Interruption
from bluebridge.host_tools.rtrs.kernel_side import CLIENT_ROOT, KernelClient
from bluebridge.host_tools.rtrs.paths import Route, routes
from bluebridge.host_tools.rtrs.session import SESSION, Mapped, config, mapped

_PAUSE_SECONDS = 2.0
_LONGEST_CUT = 60.0
_SECONDS_PER_CUT = 120
_LOAD = "fio --name=load --filename={device} --rw=randread --bs=4k --iodepth=16 --ioengine=libaio \
--direct=1 --size=64M --time_based --runtime={seconds} > /dev/null"
_SAMPLER = """
import json, os, sys, time
device, stop = sys.argv[1:]
gaps, last, since = [], None, time.monotonic()
with open(f"/sys/block/{device}/stat") as file:
    while not os.path.exists(stop):
        file.seek(0)
        words = file.read().split()
        done, now = (words[0], words[4]), time.monotonic()
        if done != last:
            if last is not None and now - since > 1:
                gaps.append(now - since)
            last, since = done, now
        time.sleep(0.01)
print(json.dumps(gaps))
"""
_STOP = "/run/failover-stop"


def gaps(mapped: Mapped, cuts: int, progress: Progress) -> list[float]:
    """Seconds from the last completion before each of `cuts` silent cuts to the first after it.

    Under random reads, 16 at a time, in turn on all paths; to the hundredth of a second. A path
    comes back before the next cut. Raises `LabError`.
    """
    client = mapped.pair.a
    # By its default policy the client gives hardly any request to a path that came back.
    client.run(f"echo round-robin > {CLIENT_ROOT}/{SESSION}/mpath_policy")
    name = mapped.device.rpartition("/")[2]
    client.run(f"rm -f {_STOP}")
    sampler = client.agent.start(["python3", "-c", _SAMPLER, name, _STOP], None)
    seconds = cuts * _SECONDS_PER_CUT
    load = client.agent.start(_LOAD.format(device=mapped.device, seconds=seconds), None)
    try:
        for number in range(cuts):
            progress(f"silent death {number + 1} of {cuts}")
            _cut(mapped)
    finally:
        load.signal(signal.SIGTERM)
        load.wait()
        client.run(f"touch {_STOP}")
    return list(json.loads(_output(sampler.wait().stdout, client)))


def _output(printed: bytes, machine: Vm) -> str:
    assert printed, f"guest {machine.name}: the sampler printed nothing"
    return printed.decode()


def _cut(mapped: Mapped) -> None:
    time.sleep(_PAUSE_SECONDS)
    route = mapped.routes[-1]
    cut = Interruption(mapped, Cutter(mapped.pair.server.tell, Cut.SILENT), route, lambda _: None)
    cut.run_until_given_up(_LONGEST_CUT, deadline=math.inf)


_SECONDS = 120.0
_NVMET = "/sys/kernel/config/nvmet"
_TARGET = """
modprobe nvmet-rdma || exit 1
grep -q configfs /proc/mounts || mount -t configfs none /sys/kernel/config
cd {root} && mkdir -p subsystems/blue/namespaces/1 ports/1 || exit 1
echo 1 > subsystems/blue/attr_allow_any_host
echo {disk} > subsystems/blue/namespaces/1/device_path
echo 1 > subsystems/blue/namespaces/1/enable
echo rdma > ports/1/addr_trtype && echo ipv4 > ports/1/addr_adrfam
echo {address} > ports/1/addr_traddr && echo 4420 > ports/1/addr_trsvcid
ln -s {root}/subsystems/blue ports/1/subsystems/blue
"""
_TIDY = """
cd {root} && rm -f ports/1/subsystems/blue && \
rmdir subsystems/blue/namespaces/1 subsystems/blue ports/1
"""
_CONNECT = """
modprobe nvme-rdma && nvme connect -t rdma -n blue -a {address} -s 4420 > /dev/null || exit 1
until [ -b /dev/nvme0n1 ]; do sleep 0.1; done
"""


@contextlib.contextmanager
def rnbd(pair: Pair, session: str, disk: str, route: Route) -> Iterator[str]:
    """Yield `disk` of guest b as a block device of guest a over one path. Raises `LabError`."""
    client = KernelClient(pair.a, session)
    device = client.map(disk, [route])
    try:
        yield device
    finally:
        client.unmap()


@contextlib.contextmanager
def nvme(pair: Pair, disk: str, route: Route) -> Iterator[str]:
    """Yield `disk` of guest b as a block device of guest a by nvme-rdma. Raises `LabError`."""
    words = {"root": _NVMET, "disk": disk, "address": route.target}
    pair.b.run(_TARGET.format(**words), timeout=_SECONDS)
    pair.a.run(_CONNECT.format(**words), timeout=_SECONDS)
    try:
        yield "/dev/nvme0n1"
    finally:
        pair.a.run("nvme disconnect -n blue", timeout=_SECONDS)
        pair.b.run(_TIDY.format(**words), timeout=_SECONDS)


def bandwidth(pair: Pair, device: str, way: str, seconds: int) -> float:
    """Return the MiB/s of sequential `read` or `write`, 128 KiB each, 8 at a time."""
    job = _fio(pair, device, f"--rw={way} --bs=128k --iodepth=8", seconds)
    return float(job[way]["bw_bytes"]) / (1 << 20)


def random_reads(pair: Pair, device: str, seconds: int) -> float:
    """Return the random reads of 4 KiB per second, 32 at a time."""
    job = _fio(pair, device, "--rw=randread --bs=4k --iodepth=32", seconds)
    return float(job["read"]["iops"])


def _fio(pair: Pair, device: str, words: str, seconds: int) -> dict[str, dict[str, float]]:
    line = (
        f"fio --name=bench --filename={device} {words} --ioengine=libaio --direct=1 --size=192M "
        f"--time_based --runtime={seconds} --ramp_time=1 --output-format=json"
    )
    said = pair.a.run(line, timeout=_SECONDS + seconds).text
    jobs: list[dict[str, dict[str, float]]] = json.loads(said[said.index("{") :])["jobs"]
    return jobs[0]


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
        found += _failover(gaps(session, CUTS, progress))
    return found


def _bandwidth(pair: Pair, ours: Route, theirs: Route, progress: Progress) -> list[Figure]:
    found: list[Figure] = []
    with (
        rnbd(pair, "hca", _DISKS[0], ours) as fast,
        rnbd(pair, "soft", _DISKS[1], theirs) as slow,
    ):
        for way in ("read", "write"):
            progress(f"RNBD, sequential {way}: HCA and Soft-RoCE in turn")
            hca, soft = in_turn(
                partial(bandwidth, pair, fast, way, SECONDS),
                partial(bandwidth, pair, slow, way, SECONDS),
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
        rnbd(pair, "random", _DISKS[0], route) as one,
        nvme(pair, _DISKS[1], route) as other,
    ):
        ours, theirs = in_turn(
            partial(random_reads, pair, one, SECONDS),
            partial(random_reads, pair, other, SECONDS),
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
        writes = [bandwidth(pair, device, "write", SECONDS) for _ in range(ROUNDS)]
        reads = [random_reads(pair, device, SECONDS) for _ in range(ROUNDS)]
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
