"""Processor time of the device server per doorbell, driven over its sockets without guests."""

from __future__ import annotations

import os
import statistics
import tempfile
from pathlib import Path

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
from bluebridge.host_tools.lab import folders
from bluebridge.host_tools.lab.device_server import DeviceServer, ServerConfig
from bluebridge.host_tools.vfio_user.bus import WireBus

_ROUNDS = 9
_DOORBELLS = 1000
_DEPTH = 16
"""Entries of either work queue; the completion queue has room for both."""
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
        server = DeviceServer(ServerConfig(sockets, log, library), Path(logs))
        server.start()
        try:
            return _measure(server, sockets["a"], sockets["b"])
        finally:
            server.stop()


class _End:
    """A reliable queue pair of one adapter, with a page of memory that its peer may write."""

    def __init__(self, device: Device) -> None:
        pd = device.alloc_pd()
        self.cq = device.create_cq(2 * _DEPTH)
        self.qp = pd.create_qp(QpInit(QpType.RC, self.cq, self.cq, _DEPTH, _DEPTH))
        self.memory = device.allocate(_PAGE)
        access = AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_WRITE
        self.mr = pd.reg_mr(self.memory.address, _PAGE, access=access)
        self.device = device

    def connect(self, peer: _End) -> None:
        """RESET to RTS towards `peer`."""
        self.qp.modify_init(AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_WRITE)
        there = self.device.address_vector(peer.device.address)
        self.qp.modify_rtr(there, peer.qp.qpn, _PSN, min_rnr_timer=1)
        self.qp.modify_rts(_PSN)

    def write(self, peer: _End) -> None:
        """Post an 8-byte RDMA WRITE to `peer` and poll until its completion is there."""
        piece = Sge(self.memory.address, 8, self.mr.lkey)
        request = SendWr(0, WrOpcode.RDMA_WRITE, [piece], SendFlags.SIGNALED)
        request.remote_addr, request.rkey = peer.memory.address, peer.mr.rkey
        self.qp.post_send(request)
        while not self.cq.poll(1):
            pass


def _measure(server: DeviceServer, first: Path, second: Path) -> float:
    with open_hca(WireBus(first)) as a, open_hca(WireBus(second)) as b:
        writer, target = _End(a), _End(b)
        writer.connect(target)
        target.connect(writer)
        _writes(writer, target)  # warms caches
        costs = []
        for _ in range(_ROUNDS):
            before = server.cpu_seconds()
            _writes(writer, target)
            costs.append((server.cpu_seconds() - before) * 1e6 / _DOORBELLS)
        return statistics.median(costs)


def _writes(writer: _End, target: _End) -> None:
    for _ in range(_DOORBELLS):
        writer.write(target)
