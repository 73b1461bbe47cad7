"""Processor time of the device server per doorbell, without guests: the wire harness drives it."""

from __future__ import annotations

import os
import statistics
import tempfile
from pathlib import Path

from bluebridge.device.pyvfio_user import ENVIRONMENT
from bluebridge.guest.hca.context import open_hca
from bluebridge.guest.verbs import WrOpcode
from bluebridge.host_tools.lab import folders
from bluebridge.host_tools.lab.device_server import DeviceServer, ServerConfig
from tests.wire.bus import WireBus
from tests.wire.players import Player

_ROUNDS = 9
_DOORBELLS = 1000


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


def _measure(server: DeviceServer, first: Path, second: Path) -> float:
    with open_hca(WireBus(first)) as a, open_hca(WireBus(second)) as b:
        writer, target = Player(a), Player(b)
        writer.connect(target)
        target.connect(writer)
        _writes(writer, target)  # warms caches
        costs = []
        for _ in range(_ROUNDS):
            before = server.cpu_seconds()
            _writes(writer, target)
            costs.append((server.cpu_seconds() - before) * 1e6 / _DOORBELLS)
        return statistics.median(costs)


def _writes(writer: Player, target: Player) -> None:
    piece = [writer.sge(0, 8)]
    for _ in range(_DOORBELLS):
        writer.send(WrOpcode.RDMA_WRITE, piece, target)
        while not writer.cq.poll(1):
            pass
