"""Memory comes in regions, and a message, a ring or a word may lie across their borders."""

from __future__ import annotations

from struct import pack, unpack

import pytest

from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.mlx4.cqe import RecvOpcode
from bluebridge.device.mlx4.rings.receive_queues import ReceiveRing
from bluebridge.device.mlx4.rings.send_queue import SendRing
from tests.models.rdma_node import Node, Pair, SendOpcode, data, inline, remote
from tests.unit.rdma.test_qp_protection import statuses

BORDER = 0x900000  # where the memory of a `FakeHost` ends
PAYLOAD = bytes(range(256)) * 2


def border_memory(node: Node, cut: int = BORDER) -> int:
    """Make memory go on behind its end, with a border at `cut` too, and return the key."""
    if cut != BORDER:
        node.host.map(BORDER, cut - BORDER)
    node.host.map(cut, BORDER + 4096 - cut)
    return node.create_mr(BORDER - 4096, 8192, [BORDER - 4096, BORDER])


@pytest.fixture
def pair() -> Pair:
    """Two connected guests."""
    return Pair().connect()


@pytest.mark.parametrize("before", [1, 40, 300])
def test_messages_across_a_border(pair: Pair, before: int) -> None:
    """Each operation moves all bytes, completes, and is logged as the one run it is."""
    key, rkey = border_memory(pair.a), border_memory(pair.b)
    here, there = BORDER - before, BORDER - before // 2
    pair.a.host.poke(here, PAYLOAD)
    segments = remote(there, rkey) + data((key, here, 512))
    pair.a.post_send(pair.qa, SendOpcode.RDMA_WRITE, segments)
    assert pair.b.host.peek(there, 512) == PAYLOAD

    pair.b.host.poke(there, bytes(512))
    pair.b.post_recv(pair.qb, [(rkey, there, 512)])
    pair.a.post_send(pair.qa, SendOpcode.SEND, data((key, here, 512)))
    assert pair.b.host.peek(there, 512) == PAYLOAD
    assert [wc.opcode for wc in pair.b.completions(pair.qb)] == [RecvOpcode.SEND]

    pair.a.host.poke(here, bytes(512))
    pair.a.post_send(pair.qa, SendOpcode.RDMA_READ, segments)
    assert pair.a.host.peek(here, 512) == PAYLOAD
    assert statuses(pair.a, pair.qa) == [0, 0, 0]

    payloads = [event for event in pair.b.host.events if event.what is What.PAYLOAD]
    assert [(e.kind, e.address, e.length, e.data) for e in payloads] == [
        (kind, there, 512, PAYLOAD[:64]) for kind in (Kind.DMA_WRITE, Kind.DMA_WRITE, Kind.DMA_READ)
    ]


def test_an_atomic_across_a_border(pair: Pair) -> None:
    """Regions of a hostile client need not end at a page, not even at a word."""
    rkey = border_memory(pair.b, BORDER + 0x104)
    local, key = pair.a.memory(4096)
    counter = BORDER + 0x100
    pair.b.host.poke(counter, pack("<Q", (1 << 32) - 1))
    segments = remote(counter, rkey) + pack(">QQ", 2, 0) + data((key, local, 8))
    pair.a.post_send(pair.qa, SendOpcode.ATOMIC_FA, segments)
    assert statuses(pair.a, pair.qa) == [0]
    assert unpack("<Q", pair.a.host.peek(local, 8)) == ((1 << 32) - 1,)
    assert unpack("<Q", pair.b.host.peek(counter, 8)) == ((1 << 32) + 1,)


def test_an_entry_whose_header_lies_across_a_border(pair: Pair) -> None:
    pair.a.host.map(BORDER, 4)
    pair.a.host.map(BORDER + 4, 4092)
    qp = pair.a.adapter.qps.get(pair.qa.qpn)
    assert qp is not None
    assert isinstance(qp.sq, SendRing)
    qp.sq.buffer.pages[:] = [BORDER - 4096 * slot for slot in range(len(qp.sq.buffer.pages))]
    pair.qa.address = BORDER
    pair.a.host.poke(BORDER + 128, pack(">I", 1 << 31))  # the slot behind it is software's
    pair.a.post_send(pair.qa, SendOpcode.RDMA_WRITE, remote(0, 0))
    assert statuses(pair.a, pair.qa) == [0]


def test_a_doorbell_record_across_a_border(pair: Pair) -> None:
    border_memory(pair.b, BORDER + 0x102)
    qp = pair.b.adapter.qps.get(pair.qb.qpn)
    assert qp is not None
    assert isinstance(qp.rq, ReceiveRing)
    qp.rq.record = pair.qb.record = BORDER + 0x100
    target, rkey = pair.b.memory(4096)
    pair.b.post_recv(pair.qb, [(rkey, target, 16)])
    pair.a.post_send(pair.qa, SendOpcode.SEND, inline(b"here"))
    assert pair.b.host.peek(target, 4) == b"here"
