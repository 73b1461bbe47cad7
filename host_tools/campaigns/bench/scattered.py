"""RDMA WRITEs of 1 MiB whose pages lie together or apart, against a bare copy of the same pages.

Two HCAs of one server, driven over their sockets without guests; the copy is made here, by native
code, in the very memory that the server has mapped.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from statistics import median
from typing import Final

from bluebridge.device import pieces
from bluebridge.device.pyvfio_user import ENVIRONMENT
from bluebridge.guest.drivers.hca.context import open_hca
from bluebridge.guest.verbs import (
    AccessFlags,
    Device,
    QpInit,
    QpType,
    SendFlags,
    SendWr,
    Sge,
    WrOpcode,
)
from bluebridge.guest.verbs.objects import MemoryRegion
from bluebridge.host_tools.campaigns.bench.figures import Figure, at_least, plain
from bluebridge.host_tools.lab import folders
from bluebridge.host_tools.lab.device_server import DeviceServer, ServerConfig
from bluebridge.host_tools.progress import Progress
from bluebridge.host_tools.vfio_user.bus import RAM_BASE, WireBus

_SIZE: Final = 1 << 20
_PAGE: Final = 4096
_CHAIN: Final = 16
"""Messages behind one doorbell, so that the driver here is not what is measured."""
_ROUNDS: Final = 40
_PSN: Final = 5
_ACCESS: Final = AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_WRITE
_GOALS: Final = {False: 60, True: 40}
"""Percent of the speed of the bare copy, by whether there is a bus log."""


def figures(library: Path, progress: Progress) -> list[Figure]:
    """Time of a message, and its speed in percent of that of the copy, without and with the log."""
    os.environ[ENVIRONMENT] = str(library)
    found: list[Figure] = []
    for logged in (False, True):
        progress(f"RDMA WRITEs of scattered pages, bus log {'on' if logged else 'off'}")
        log = "on" if logged else "off"
        together, apart, copy = (seconds * 1e6 for seconds in _seconds(library, logged))
        title = f"RDMA WRITE of 1 MiB, bus log {log}"
        key = f"write_pieces_{log}"
        share = 100 * copy / apart
        found += [
            plain(f"{key}_together", f"{title}, all pages together", together, "us"),
            plain(f"{key}_apart", f"{title}, every page apart", apart, "us"),
            plain(f"{key}_copy", "a bare copy of these 256 pages", copy, "us"),
            at_least(
                plain(f"{key}_share", "the same apart: its speed, of that of the copy", share, "%"),
                _GOALS[logged],
            ),
        ]
    return found


class _End:
    """A queue pair of one adapter, and 1 MiB of memory under two keys."""

    def __init__(self, device: Device, chance: Random) -> None:
        self.device = device
        pd = device.alloc_pd()
        self.cq = device.create_cq(2 * _CHAIN)
        self.qp = pd.create_qp(QpInit(QpType.RC, self.cq, self.cq, _CHAIN, _CHAIN))
        memory = device.allocate(2 * _SIZE).address
        self.pages = [memory + 2 * offset for offset in range(0, _SIZE, _PAGE)]
        chance.shuffle(self.pages)
        self.together = pd.reg_mr(memory, _SIZE, 0, access=_ACCESS)
        self.apart = pd.reg_mr(self.pages, _SIZE, 0, access=_ACCESS)

    def connect(self, peer: _End) -> None:
        """RESET to RTS towards `peer`."""
        self.qp.modify_init(_ACCESS)
        there = self.device.address_vector(peer.device.address)
        self.qp.modify_rtr(there, peer.qp.qpn, _PSN, min_rnr_timer=1)
        self.qp.modify_rts(_PSN)

    def write(self, source: MemoryRegion, target: MemoryRegion) -> None:
        """A chain of RDMA WRITEs, until the last is completed."""
        chain = [
            SendWr(0, WrOpcode.RDMA_WRITE, [Sge(0, _SIZE, source.lkey)], flags)
            for flags in (*(SendFlags(0),) * (_CHAIN - 1), SendFlags.SIGNALED)
        ]
        for request in chain:
            request.remote_addr, request.rkey = 0, target.rkey
        self.qp.post_send(chain)
        while not self.cq.poll(1):
            pass


def _seconds(library: Path, logged: bool) -> Sequence[float]:
    """Of a message together, a message apart and the copy, in turn; medians."""
    with folders.run_folder() as folder, tempfile.TemporaryDirectory() as logs:
        sockets = {name: folder / name for name in "ab"}
        log = Path(logs) / "bus" if logged else None
        server = DeviceServer(ServerConfig(sockets, log, library), Path(logs))
        server.start()
        try:
            buses = [WireBus(sockets[name]) for name in "ab"]
            with open_hca(buses[0]) as first, open_hca(buses[1]) as second:
                chance = Random(1)
                a, b = _End(first, chance), _End(second, chance)
                a.connect(b)
                b.connect(a)
                source, target = (
                    pieces.views([RAM_BASE], [bus.ram], [(page, _PAGE) for page in end.pages])
                    for bus, end in zip(buses, (a, b), strict=True)
                )
                ways: list[Callable[[], object]] = [
                    lambda: a.write(a.together, b.together),
                    lambda: a.write(a.apart, b.apart),
                    lambda: [pieces.copy(target, source) for _ in range(_CHAIN)],
                ]
                rounds = [[_timed(way) for way in ways] for _ in range(_ROUNDS)]
                return [median(times) for times in zip(*rounds[1:], strict=True)]
        finally:
            server.stop()


def _timed(way: Callable[[], object]) -> float:
    """Seconds for each of the chain."""
    begin = time.perf_counter()
    way()
    return (time.perf_counter() - begin) / _CHAIN
