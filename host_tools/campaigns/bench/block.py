"""Block devices of guest b used in guest a: RNBD over the HCA and over Soft-RoCE, nvme-rdma."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.rtrs.kernel_side import KernelClient
from bluebridge.host_tools.rtrs.routes import Route

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
