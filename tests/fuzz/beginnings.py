"""How guests come to the states that `tests.fuzz.prologues` names."""

from __future__ import annotations

from collections.abc import Callable

from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.layout.mlx4.contexts import ServiceType
from tests.fuzz.fabrics import ethernet_pair
from tests.models import ntb_pair
from tests.models.hca_driver import Driver
from tests.models.ib_node import Subnet
from tests.models.rdma_node import Node, Pair
from tests.unit.ntb import test_ntb_gen1, test_ntb_switchtec


def _roce_nodes() -> object:
    fabric = LocalFabric()
    return [Node(name, number, fabric) for number, name in enumerate("ab", 1)]


def _roce_connected() -> object:
    pair = Pair(ServiceType.RC).connect()
    for node in (pair.a, pair.b):
        node.memory(8192)
    pair.b.post_recv(pair.qb, [(pair.b.memory(8192)[1], 0, 0)])
    return pair


def _started() -> object:
    return Driver().start()


def _infiniband_unmanaged() -> object:
    return Subnet(managed=False)


def _gen4_up() -> object:
    pair = ntb_pair.Pair()
    pair.bring_up()
    return pair


def _switchtec_up() -> object:
    pair = test_ntb_switchtec.Pair()
    pair.know_the_link()
    return pair


BEGINNINGS: dict[str, Callable[[], object]] = {
    "roce_nodes": _roce_nodes,
    "roce_connected": _roce_connected,
    "started": _started,
    "infiniband": Subnet,
    "infiniband_unmanaged": _infiniband_unmanaged,
    "ethernet_frames": ethernet_pair,
    "gen4_up": _gen4_up,
    "gen1_up": test_ntb_gen1.Pair,
    "switchtec_up": _switchtec_up,
}
