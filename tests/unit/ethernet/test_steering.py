"""B0 steering as mlx4_core programs it: addresses in the multicast table, default records."""

from __future__ import annotations

from struct import pack

import pytest

from bluebridge.device.layout.mlx4.capabilities import INIT_HCA
from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.cqe import FRAME_CQE
from bluebridge.device.layout.mlx4.ports import MCG
from bluebridge.device.mlx4.ports.multicast_groups import SteerType, group_of
from tests.models.ethernet_pair import BROADCAST, ethernet_qp
from tests.models.rdma_node import Node, Pair, SendOpcode, TestQp, inline

ETHERNET = 1
OTHER = b"\x02\x77\0\0\0\1"
GROUP = b"\x01\0\x5e\0\0\1"


class B0Node(Node):
    """A guest whose driver chose B0 steering."""

    def init_mailbox(self) -> bytearray:
        """INIT_HCA with the bit for unicast steering."""
        mailbox = super().init_mailbox()
        INIT_HCA.set(mailbox, "uc_steering", 1 << 3)
        return mailbox


def attach(node: Node, mac: bytes, steer: SteerType, *qpns: int) -> None:
    """`mlx4_qp_attach_common`: the record of an address in its bucket."""
    gid = group_of(mac, 1, steer)
    bucket = node.command(Opcode.MGID_HASH, gid, op_modifier=1)
    record = MCG.pack(protocol=ETHERNET, members=len(qpns), gid=gid)
    node.command(Opcode.WRITE_MCG, bytes(record) + pack(f">{len(qpns)}I", *qpns), bucket)


def default(node: Node, steer: SteerType, *qpns: int) -> None:
    """`mlx4_WRITE_PROMISC`."""
    record = MCG.pack(protocol=ETHERNET, members=len(qpns))
    raw = bytes(record) + pack(f">{len(qpns)}I", *qpns)
    node.command(Opcode.WRITE_MCG, raw, 1 << 16 | steer << 1, 1)


@pytest.fixture
def nodes() -> tuple[Pair, TestQp, TestQp]:
    """A sender, and a receiver with two rings."""
    pair = Pair()
    receiver = B0Node("c", 3, pair.fabric)
    pair.b = receiver
    pair.qa = ethernet_qp(pair.a, 0x48)
    return pair, ethernet_qp(receiver, 0x49), ethernet_qp(receiver, 0x4A)


def arrivals(pair: Pair, rings: tuple[TestQp, TestQp], mac: bytes) -> list[int]:
    """How many copies of a frame each ring gets."""
    for ring in rings:
        target, key = pair.b.memory(4096)
        pair.b.post_recv(ring, [(key, target, 2048)])
    pair.a.post_send(pair.qa, SendOpcode.SEND, inline(mac + pair.a.mac + b"\x08\0"))
    return [len(pair.b.completions(ring)) for ring in rings]


def test_addresses_name_their_rings(nodes: tuple[Pair, TestQp, TestQp]) -> None:
    pair, *both = nodes
    rings = both[0], both[1]
    assert arrivals(pair, rings, pair.b.mac) == [0, 0]
    attach(pair.b, pair.b.mac, SteerType.UNICAST, 0x49)
    attach(pair.b, OTHER, SteerType.UNICAST, 0x4A)
    attach(pair.b, BROADCAST, SteerType.MULTICAST, 0x49)
    attach(pair.b, GROUP, SteerType.MULTICAST, 0x49, 0x4A)
    wanted = {pair.b.mac: [1, 0], OTHER: [0, 1], BROADCAST: [1, 0], GROUP: [1, 1]}
    assert {mac: arrivals(pair, rings, mac) for mac in wanted} == wanted
    attach(pair.b, OTHER, SteerType.UNICAST)
    assert arrivals(pair, rings, OTHER) == [0, 0]


def test_promiscuous_rings_get_the_rest(nodes: tuple[Pair, TestQp, TestQp]) -> None:
    pair, *both = nodes
    rings = both[0], both[1]
    attach(pair.b, pair.b.mac, SteerType.UNICAST, 0x49)
    default(pair.b, SteerType.UNICAST, 0x4A)
    assert arrivals(pair, rings, OTHER) == [0, 1]
    assert arrivals(pair, rings, pair.b.mac) == [1, 0]
    assert arrivals(pair, rings, GROUP) == [0, 0]
    default(pair.b, SteerType.MULTICAST, 0x49)
    assert arrivals(pair, rings, GROUP) == [1, 0]
    default(pair.b, SteerType.UNICAST)
    assert arrivals(pair, rings, OTHER) == [0, 0]


def test_a_ring_that_is_named_often_gets_one_copy(nodes: tuple[Pair, TestQp, TestQp]) -> None:
    pair, *both = nodes
    rings = both[0], both[1]
    attach(pair.b, GROUP, SteerType.MULTICAST, *[0x49] * 100, 0x4A)
    default(pair.b, SteerType.UNICAST, *[0x4A] * 100)
    for _ in range(3):  # receives that a second copy would find
        target, key = pair.b.memory(4096)
        pair.b.post_recv(rings[0], [(key, target, 2048)])
    assert arrivals(pair, rings, GROUP) == [1, 1]
    assert arrivals(pair, rings, OTHER) == [0, 1]


def test_rings_of_a_group_strip_or_keep_the_tag(nodes: tuple[Pair, TestQp, TestQp]) -> None:
    """The frame without its tag is made once, whoever wants it."""
    pair, first, second = nodes
    keeps = ethernet_qp(pair.b, 0x4B, no_vlan_strip=1)
    attach(pair.b, GROUP, SteerType.MULTICAST, 0x49, 0x4B, 0x4A)
    places = {}
    for ring in (first, keeps, second):
        places[ring.qpn], key = pair.b.memory(4096)
        pair.b.post_recv(ring, [(key, places[ring.qpn], 2048)])
    head, tag, rest = GROUP + pair.a.mac, b"\x81\0\0\5", b"\x08\0" + bytes(range(80))
    pair.a.post_send(pair.qa, SendOpcode.SEND, inline(head + tag + rest))
    wanted = {0x49: head + rest, 0x4A: head + rest, 0x4B: head + tag + rest}
    for ring in (first, keeps, second):
        (got,) = pair.b.completions(ring)
        assert FRAME_CQE.get(got.raw, "vlan_tag") == 5
        assert pair.b.host.peek(places[ring.qpn], got.length) == wanted[ring.qpn]
