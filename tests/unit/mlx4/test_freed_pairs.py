"""Queue pairs that are gone leave memory by themselves, in portions, and not by the collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from bluebridge.device.ethernet.sender import EthernetSender
from bluebridge.device.layout.mlx4 import bar0
from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.contexts import ServiceType
from bluebridge.device.mlx4.pairs import HcaPair
from bluebridge.device.mlx4.rings.send_queue import SendRing
from bluebridge.device.queue_pairs import PORTION
from bluebridge.device.rdma.connected.part_sender import PartSender
from bluebridge.device.rdma.connected.receiver import PartReceiver
from bluebridge.device.rdma.connected.requester import Requester
from bluebridge.device.rdma.datagrams.sender import DatagramSender
from tests.models.rdma_node import Pair, SendOpcode, inline

PARTS = (HcaPair, SendRing, PartSender, Requester, PartReceiver, DatagramSender, EthernetSender)


@pytest.fixture(autouse=True)
def without_collector() -> Iterator[None]:
    """Circles stay for the time of a test."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def alive(*kinds: type) -> int:
    """Objects of these classes."""
    return sum(type(found) in kinds for found in gc.get_objects())


@pytest.mark.parametrize(
    "service", [ServiceType.RC, ServiceType.UC, ServiceType.UD, ServiceType.XRC, ServiceType.MLX]
)
def test_a_destroyed_queue_pair_leaves_nothing(service: ServiceType) -> None:
    pair = Pair()
    node = pair.a
    before = alive(*PARTS)
    for number in range(8):
        node.create_qp(0x300 + number, service)
        node.command(Opcode.TORST_QP, 0, 0x300 + number)
    assert len(node.adapter.qps) == 1
    node.host.turn()
    assert alive(*PARTS) == before


def test_a_queue_pair_that_waits_for_an_answer_leaves_nothing() -> None:
    pair = Pair().connect(rts={"retry_count": 7, "pri_ack_timeout": 18})
    pair.b.command(Opcode.CLOSE_PORT, modifier=1)
    pair.post_send(SendOpcode.SEND, inline(b"x"))
    before = alive(*PARTS)
    pair.a.command(Opcode.TORST_QP, 0, pair.qa.qpn)
    pair.run(10)
    assert alive(*PARTS) == before - 5


def test_a_reset_frees_many_in_portions() -> None:
    pair = Pair()
    node = pair.a
    template = node.adapter.pair(pair.qa.qpn)
    assert template is not None
    before = alive(HcaPair) - 1
    for number in range(3 * PORTION - 1):
        node.adapter.create_pair(0x300 + number, bytearray(template.context))
    del template
    node.write32(bar0.RESET_OFFSET, bar0.RESET_VALUE)
    assert not len(node.adapter.qps)
    for left in (3, 2, 1, 0):
        assert alive(HcaPair) - before == left * PORTION
        node.host.turn()


def test_the_pages_of_rings_are_free_for_others_at_once() -> None:
    """Not when the queues are: the driver's next command may need them."""
    pair = Pair()
    node, rings = pair.a, pair.a.adapter.ring_pages
    before = rings.count
    qp = node.create_qp(0x300, ServiceType.RC)
    node.create_srq(0x42)
    node.create_eq(9, 0, 6)
    assert rings.count > before
    node.command(Opcode.TORST_QP, 0, 0x300)
    node.command(Opcode.HW2SW_SRQ, 0, 0x42, 1)
    node.command(Opcode.HW2SW_EQ, 0, 9, 1)
    node.command(Opcode.HW2SW_CQ, 0, qp.cq.number, 1)
    assert rings.count == before
    node.write32(bar0.RESET_OFFSET, bar0.RESET_VALUE)
    assert rings.count == 0
    node.host.run()
    assert rings.count == 0
