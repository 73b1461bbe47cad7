"""Two connected queue pairs of ConnectX-5, and a pager at each guest."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from struct import pack

from bluebridge.device.fabric.interface import Fabric
from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.fabric.settings import NetworkSettings
from bluebridge.device.layout.mlx5.commands import Status
from bluebridge.device.layout.mlx5.queue_pairs import Service
from bluebridge.device.mlx5.adapter import Adapter, Stage
from bluebridge.device.mlx5.device import Hca
from bluebridge.device.mlx5.settings.config import Config
from bluebridge.device.rdma.connected.packet_wire import PacketWire
from tests.models.fake_host import FakeHost
from tests.models.mlx5_pager import PageFault, Pager
from tests.models.mlx5_pair import RoceNode

PAGE = 4096
STEP = 0.0005
QKEY = 0x11111111
LONG = 3 * PAGE + 77
"""Bytes of messages of several packets, which touch five pages."""
WITHIN = 2000
"""Where they begin in their first page."""


class PacketNode(RoceNode):
    """A guest on a network of packets."""

    def make_adapter(self, host: FakeHost, fabric: Fabric) -> Adapter:
        config = Config(host.name, self.mac, NetworkSettings(packets=True))
        self.hca = Hca(host, [fabric], config)
        self.hca.adapter.stage = Stage.INITIALISED
        return self.hca.adapter


class Paged:
    """Two connected queue pairs `a` and `b`, and a pager at each guest, `here` and `there`."""

    def __init__(self, *, packets: bool, service: int = Service.RC) -> None:
        fabric = LocalFabric()
        self.nodes: list[RoceNode] = []
        if packets:
            wires: list[PacketWire] = []
            for _ in range(2):
                PacketWire(fabric, partial(self._soon, len(wires)), wires)
            self.nodes = [PacketNode(n + 1, wires[n]) for n in range(2)]
        else:
            self.nodes = [RoceNode(n, fabric) for n in (1, 2)]
        self.a, self.b = (node.make_pair(service) for node in self.nodes)
        if service == Service.UD:
            for pair in (self.a, self.b):
                pair.start(QKEY)
        else:
            self.a.connect(self.b)
            self.b.connect(self.a)
        self.here, self.there = (Pager(node) for node in self.nodes)

    def _soon(self, at: int, act: Callable[[], None]) -> None:
        self.nodes[at].host.call_soon(act)

    def run(self, seconds: float = 0.02) -> None:
        for _ in range(round(seconds / STEP)):
            for node in self.nodes:
                node.host.run(STEP)

    def serve(self, seconds: float = 0.5) -> list[PageFault]:
        """Answer page faults as they come; those that came."""
        faults = []
        for _ in range(round(seconds / STEP)):
            for node, pager in zip(self.nodes, (self.here, self.there), strict=True):
                node.host.run(STEP)
                for fault in pager.faults():
                    faults.append(fault)
                    pager.lend(0, pager.count)
                    assert pager.resume(fault) is Status.OK
        return faults

    def segment(self, pager: Pager, length: int, within: int = WITHIN) -> bytes:
        """A data segment of absent pages."""
        return pack(">IIQ", length, pager.key, pager.start + within)


def filled(pager: Pager, content: bytes, within: int = WITHIN) -> None:
    """Write content into pages and take them away; `lend` brings it back."""
    pager.lend(0, pager.count)
    for at, byte in enumerate(content):
        page, offset = divmod(within + at, PAGE)
        pager.node.host.poke(pager.backing(page) + offset, bytes((byte,)))
    pager.take(0, pager.count)


def content_of(length: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(length)
