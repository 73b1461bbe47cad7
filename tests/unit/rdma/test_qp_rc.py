"""Reliable connections between two HCAs: every operation moves its bytes and completes.

Memory comes in regions, and a message, a ring or a word may lie across their borders.
"""

from __future__ import annotations

from struct import pack, unpack

import pytest

from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.mlx4 import uar
from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.contexts import QPC, QpState
from bluebridge.device.layout.mlx4.cqe import CompletionStatus, RecvOpcode
from bluebridge.device.mlx4.rings.send_queue import SendRing
from bluebridge.device.rings.receive_ring import ReceiveRing
from tests.models.hca_driver import UAR_PAGE
from tests.models.rdma_node import Node, Pair, SendOpcode, data, inline, remote


@pytest.fixture
def pair() -> Pair:
    """Two connected guests."""
    return Pair().connect()


def test_write_is_logged_on_both_buses(pair: Pair) -> None:
    source, key = pair.a.memory(4096)
    target, rkey = pair.b.memory(4096)
    pair.a.host.poke(source, b"payload!")
    pair.post_send(SendOpcode.RDMA_WRITE, remote(target, rkey) + data((key, source, 8)))
    (read,) = [e for e in pair.a.host.events if e.what is What.PAYLOAD]
    (written,) = [e for e in pair.b.host.events if e.what is What.PAYLOAD]
    assert (read.kind, read.address, read.data) == (Kind.DMA_READ, source, b"payload!")
    assert (written.kind, written.address, written.data) == (Kind.DMA_WRITE, target, b"payload!")


@pytest.mark.parametrize(
    ("opcode", "operands", "after"),
    [
        (SendOpcode.ATOMIC_FA, pack(">QQ", 5, 0), 15),
        (SendOpcode.ATOMIC_CS, pack(">QQ", 99, 10), 99),
        (SendOpcode.ATOMIC_CS, pack(">QQ", 99, 11), 10),
        (SendOpcode.MASKED_ATOMIC_CS, pack(">QQQQ", 0xF5, 0x0A, 0xF0, 0x0F), 0xFA),
        (SendOpcode.MASKED_ATOMIC_FA, pack(">QQ", 0x07, 0x08), 0x01),
    ],
)
def test_atomics_return_what_they_found(
    pair: Pair, opcode: int, operands: bytes, after: int
) -> None:
    local, key = pair.a.memory(4096)
    counter, rkey = pair.b.memory(4096)
    pair.b.host.poke(counter + 8, pack("<Q", 10))
    segments = remote(counter + 8, rkey) + operands + data((key, local, 8))
    pair.post_send(opcode, segments)
    (done,) = pair.a.completions(pair.qa)
    assert (done.opcode, done.status, done.length) == (opcode, 0, 8)
    assert unpack("<Q", pair.a.host.peek(local, 8)) == (10,)
    assert unpack("<Q", pair.b.host.peek(counter + 8, 8)) == (after,)


def test_unsignalled_requests_complete_silently_and_the_ring_wraps(pair: Pair) -> None:
    source, key = pair.a.memory(4096)
    target, rkey = pair.b.memory(4096)
    segments = remote(target, rkey) + data((key, source, 4))
    for count in range(40):
        pair.a.host.poke(source, pack("<I", count))
        pair.post_send(SendOpcode.RDMA_WRITE, segments, signalled=count % 8 == 7)
        assert pair.b.host.peek(target, 4) == pack("<I", count)
    assert [wc.index for wc in pair.a.completions(pair.qa)] == [7, 15, 23, 31, 39]


def test_one_doorbell_for_many_entries_keeps_their_order(pair: Pair) -> None:
    source, key = pair.a.memory(4096)
    target, rkey = pair.b.memory(4096)
    pair.a.host.poke(source, bytes(range(16)))
    for slot in range(10):
        segments = remote(target, rkey) + data((key, source + slot, 1))
        pair.post_send(SendOpcode.RDMA_WRITE, segments, ring=False)
    assert pair.a.completions(pair.qa) == []
    pair.a.doorbell(pair.qa.qpn)
    assert [wc.index for wc in pair.a.completions(pair.qa)] == list(range(10))
    assert pair.b.host.peek(target, 1) == b"\x09"


def test_only_the_page_of_the_context_rings(pair: Pair) -> None:
    target, key = pair.b.memory(4096)
    segments = remote(target, key) + inline(b"rung")
    pair.post_send(SendOpcode.RDMA_WRITE, segments, ring=False)
    value = uar.send_doorbell(pair.qa.qpn).to_bytes(4, "big")
    for page in (0, 1, UAR_PAGE + 1, uar.NUM_UARS - 1):
        pair.a.hca.bar_write(2, page * uar.PAGE_SIZE + uar.SEND_DOORBELL, value)
    assert pair.a.completions(pair.qa) == []
    assert not any(pair.b.host.peek(target, 4))
    pair.a.doorbell(pair.qa.qpn)
    assert len(pair.a.completions(pair.qa)) == 1
    assert pair.b.host.peek(target, 4) == b"rung"


def test_both_directions_and_psn_accounting(pair: Pair) -> None:
    source, key = pair.a.memory(8192)
    target, rkey = pair.b.memory(8192)
    pair.post_send(SendOpcode.RDMA_WRITE, remote(target, rkey) + data((key, source, 5000)))
    pair.b.post_send(pair.qb, SendOpcode.RDMA_WRITE, remote(source, key) + data((rkey, target, 0)))
    a = pair.a.query(Opcode.QUERY_QP, pair.qa.qpn)[8:]
    assert QPC.get(a, "next_send_psn") == 105  # five packets of 1024 bytes
    assert QPC.get(a, "next_recv_psn") == 101  # an empty message is one packet
    assert QPC.get(a, "state") == QpState.RTS
    assert QPC.get(a, "sq_wqe_counter") == 1


def test_requests_of_strangers_are_dropped(pair: Pair) -> None:
    stranger = pair.a.create_qp(0x333)
    pair.a.to_rtr(stranger, pair.b, pair.qb.qpn)
    pair.a.to_rts(stranger, retry_count=1)
    target, rkey = pair.b.memory(4096)
    source, key = pair.a.memory(4096)
    pair.a.host.poke(source, b"evil")
    pair.a.post_send(stranger, SendOpcode.RDMA_WRITE, remote(target, rkey) + data((key, source, 4)))
    pair.run(0.3)
    assert pair.b.host.peek(target, 4) == bytes(4)
    assert pair.a.completions(stranger)[0].status == CompletionStatus.TRANSPORT_RETRY_EXC_ERR


BORDER = 0x900000  # where the memory of a `FakeHost` ends
PAYLOAD = bytes(range(256)) * 2


def border_memory(node: Node, cut: int = BORDER) -> int:
    """Make memory go on behind its end, with a border at `cut` too, and return the key."""
    if cut != BORDER:
        node.host.map(BORDER, cut - BORDER)
    node.host.map(cut, BORDER + 4096 - cut)
    return node.create_mr(BORDER - 4096, 8192, [BORDER - 4096, BORDER])


@pytest.mark.parametrize("before", [1, 40, 300])
def test_messages_across_a_border(pair: Pair, before: int) -> None:
    """Each operation moves all bytes, completes, and is logged as the one run it is."""
    key, rkey = border_memory(pair.a), border_memory(pair.b)
    here, there = BORDER - before, BORDER - before // 2
    pair.a.host.poke(here, PAYLOAD)
    segments = remote(there, rkey) + data((key, here, 512))
    pair.post_send(SendOpcode.RDMA_WRITE, segments)
    assert pair.b.host.peek(there, 512) == PAYLOAD

    pair.b.host.poke(there, bytes(512))
    pair.post_recv([(rkey, there, 512)])
    pair.post_send(SendOpcode.SEND, data((key, here, 512)))
    assert pair.b.host.peek(there, 512) == PAYLOAD
    assert [wc.opcode for wc in pair.b.completions(pair.qb)] == [RecvOpcode.SEND]

    pair.a.host.poke(here, bytes(512))
    pair.post_send(SendOpcode.RDMA_READ, segments)
    assert pair.a.host.peek(here, 512) == PAYLOAD
    assert pair.sent() == [0, 0, 0]

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
    pair.post_send(SendOpcode.ATOMIC_FA, segments)
    assert pair.sent() == [0]
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
    pair.post_send(SendOpcode.RDMA_WRITE, remote(0, 0))
    assert pair.sent() == [0]


def test_a_doorbell_record_across_a_border(pair: Pair) -> None:
    border_memory(pair.b, BORDER + 0x102)
    qp = pair.b.adapter.qps.get(pair.qb.qpn)
    assert qp is not None
    assert isinstance(qp.rq, ReceiveRing)
    qp.rq.record = pair.qb.record = BORDER + 0x100
    target, rkey = pair.b.memory(4096)
    pair.post_recv([(rkey, target, 16)])
    pair.post_send(SendOpcode.SEND, inline(b"here"))
    assert pair.b.host.peek(target, 4) == b"here"
