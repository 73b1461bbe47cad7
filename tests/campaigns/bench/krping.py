"""krping's own tests between two guests by the Python driver, and what they cost the device."""

from __future__ import annotations

import os
import re
import statistics
import tempfile
from pathlib import Path

from bluebridge.device.pyvfio_user import ENVIRONMENT
from bluebridge.device.server.settings import HcaSpec, ServerSettings
from bluebridge.guest.drivers.hca.context import open_hca
from bluebridge.guest.link import SENT, Link
from bluebridge.guest.verbs import AccessFlags, Device, WrOpcode
from bluebridge.host_tools.errors import LabError, Progress
from bluebridge.host_tools.krping.krping_command import KrpingRequest, Outcome, run
from bluebridge.host_tools.lab import folders
from bluebridge.host_tools.lab.config import LabConfig
from bluebridge.host_tools.lab.device_server import DeviceServer
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.vfio_user.bus import SocketBus
from tests.campaigns.bench.page import Figure

_ROUNDS = 9
_DOORBELLS = 1000
_PAGE = 4096
_PSN = 0xFFFFFE
"""First packet sequence number, of 24 bits: it wraps at once."""


def cost_us(library: Path, logged: bool) -> float:
    """Microseconds per doorbell with one 8-byte RDMA WRITE behind it, the median of nine rounds.

    Two HCAs of one server; each WRITE is awaited by polling before the next is posted.
    """
    os.environ[ENVIRONMENT] = str(library)
    with folders.run_folder() as folder, tempfile.TemporaryDirectory() as logs:
        sockets = {name: folder / name for name in "ab"}
        log = Path(logs) / "bus" if logged else None
        hcas = (
            HcaSpec(name, path, LabConfig().hca_mac(index))
            for index, (name, path) in enumerate(sockets.items())
        )
        server = DeviceServer(ServerSettings(tuple(hcas), log=log), library, Path(logs))
        server.start()
        try:
            return _measure(server, sockets["a"], sockets["b"])
        finally:
            server.stop()


def _measure(server: DeviceServer, first: Path, second: Path) -> float:
    with open_hca(SocketBus(first)) as a, open_hca(SocketBus(second)) as b:
        writer, target = Link(a, _PAGE), Link(b, _PAGE)
        _connect(writer, a, target, b)
        _connect(target, b, writer, a)
        _writes(writer)  # warms caches
        costs = []
        for _ in range(_ROUNDS):
            before = server.cpu_seconds()
            _writes(writer)
            costs.append((server.cpu_seconds() - before) * 1e6 / _DOORBELLS)
        return statistics.median(costs)


def _connect(link: Link, device: Device, peer: Link, other: Device) -> None:
    link.peer = peer.memory.address, peer.mr.rkey
    link.qp.modify_init(AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_WRITE)
    there = device.address_vector(other.address)
    link.qp.modify_rtr(there, peer.qp.qpn, _PSN, min_rnr_timer=1)
    link.qp.modify_rts(_PSN)


def _writes(link: Link) -> None:
    for _ in range(_DOORBELLS):
        link.qp.post_send(link.request(WrOpcode.RDMA_WRITE, 0, 8))
        link.wait(SENT)


_ADDRESS = "addr=192.168.69.127,port=9999"
_DELTA = re.compile(r"delta sec (\d+) delta usec (\d+) iter (\d+) size (\d+)")
_SHORT, _LONG = 200, 2200
"""Iterations of the two ping-pongs whose difference takes out what connecting costs the server."""


def figures(progress: Progress) -> list[Figure]:
    """Measure krping between guests, and the device's time for a doorbell. Raises `LabError`."""
    with Pair(LabConfig(), progress) as pair:
        progress("krping, 64 bytes")
        median = median_ms(pair)
        progress("RDMA WRITE bandwidth")
        rate = _write_bandwidth(pair)
        progress("RDMA WRITE ping-pong")
        half, cost = _ping_pong(pair)
        library = pair.library
    progress("device CPU per doorbell")
    with_log, without = (cost_us(library, logged) for logged in (True, False))
    together = "the same in the ping-pong of two guests, falling asleep and waking up included"
    return [
        Figure("krping, 64 bytes, median per iteration, no verbose", median, "ms", most=1.5),
        Figure("RDMA WRITE bandwidth, 1 MiB messages", rate, "GiB/s", least=1),
        Figure("8-byte RDMA WRITE, half of a ping-pong, p50", half, "us", most=60),
        Figure("device CPU per doorbell with one WQE, bus log on", with_log, "us", most=18),
        Figure("the same with the bus log off", without, "us"),
        Figure(together, cost, "us", most=60),
    ]


def median_ms(pair: Pair) -> float:
    """Return the median milliseconds of an iteration of krping with 64 bytes. Raises `LabError`."""
    return _p50(_krping(pair, "size=64,count=500")) / 1000


def _krping(pair: Pair, options: str) -> Outcome:
    """One krping run with the same options on both sides; raises `LabError` if it failed."""
    sides = (f"{side},{_ADDRESS},{options}" for side in ("server", "client"))
    outcome = run(pair, KrpingRequest.parse(*sides), timeout=3600)
    if not outcome.ok:
        raise LabError(f"krping with {options} failed: {outcome.failure()}")
    return outcome


def _p50(outcome: Outcome) -> float:
    """Median microseconds per iteration."""
    return float(outcome.client.result["us_per_iteration"]["p50"])


def _write_bandwidth(pair: Pair) -> float:
    """GiB/s of 1 MiB RDMA WRITEs with a few under way, by the client's clock."""
    outcome = _krping(pair, "bw,size=1048576,count=1000,tx-depth=16")
    match = _DELTA.search(outcome.client.output)
    if match is None:
        raise LabError("krping bw printed no result", transcript=outcome.client.output)
    seconds, micro, count, size = map(int, match.groups())
    return count * size / (seconds + micro / 1e6) / (1 << 30)


def _ping_pong(pair: Pair) -> tuple[float, float]:
    """Median of half a round trip of 8-byte RDMA WRITEs; server CPU per doorbell; both in us."""
    before = pair.server.cpu_seconds()
    _krping(pair, f"wlat,size=8,count={_SHORT}")
    middle = pair.server.cpu_seconds()
    outcome = _krping(pair, f"wlat,size=8,count={_LONG}")
    spent = (pair.server.cpu_seconds() - middle) - (middle - before)
    return _p50(outcome) / 2, spent * 1e6 / (2 * (_LONG - _SHORT))
