"""Reliable connections between two HCAs: every operation moves its bytes and completes."""

from __future__ import annotations

from struct import pack, unpack

import pytest

from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.mlx4 import uar
from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.contexts import QPC, QpState
from bluebridge.device.layout.mlx4.cqe import CompletionStatus, RecvOpcode
from bluebridge.device.layout.mlx4.wqe import FastRegFlag
from tests.models.hca_driver import UAR_PAGE
from tests.models.rdma_node import Pair, SendOpcode, data, inline, remote


@pytest.fixture
def pair() -> Pair:
    """Two connected guests."""
    return Pair().connect()


def test_send_reaches_the_posted_receive(pair: Pair) -> None:
    source, key = pair.a.memory(4096)
    target, rkey = pair.b.memory(8192)
    pair.a.host.poke(source, b"hello from a")
    pair.b.post_recv(pair.qb, [(rkey, target, 5), (rkey, target + 4096, 100)])
    pair.a.post_send(pair.qa, SendOpcode.SEND, data((key, source, 12)), solicited=True)
    assert pair.b.host.peek(target, 5) == b"hello"
    assert pair.b.host.peek(target + 4096, 7) == b" from a"
    (sent,) = pair.a.completions(pair.qa)
    assert (sent.qpn, sent.send, sent.opcode, sent.status, sent.index) == (
        0x800240, True, SendOpcode.SEND, 0, 0,
    )  # fmt: skip
    (got,) = pair.b.completions(pair.qb)
    assert (got.qpn, got.send, got.opcode, got.length) == (0x250, False, RecvOpcode.SEND, 12)


def test_send_with_immediate_and_inline_data(pair: Pair) -> None:
    target, rkey = pair.b.memory(4096)
    pair.b.post_recv(pair.qb, [(rkey, target, 64)])
    pair.a.post_send(pair.qa, SendOpcode.SEND_IMM, inline(b"x" * 40), immediate=0xDEADBEEF)
    (got,) = pair.b.completions(pair.qb)
    assert (got.opcode, got.length, got.immediate) == (RecvOpcode.SEND_WITH_IMM, 40, 0xDEADBEEF)
    assert pair.b.host.peek(target, 41) == b"x" * 40 + b"\0"


def test_write_gathers_and_ends_with_its_last_bytes(pair: Pair) -> None:
    source, key = pair.a.memory(8192)
    target, rkey = pair.b.memory(8192)
    payload = bytes(range(256)) * 16
    pair.a.host.poke(source, payload)
    segments = remote(target + 100, rkey) + data((key, source, 1000), (key, source + 1000, 3096))
    pair.a.post_send(pair.qa, SendOpcode.RDMA_WRITE, segments)
    assert pair.b.host.peek(target + 100, 4096) == payload
    assert [wc.status for wc in pair.a.completions(pair.qa)] == [0]
    assert pair.b.completions(pair.qb) == []


def test_write_is_logged_on_both_buses(pair: Pair) -> None:
    source, key = pair.a.memory(4096)
    target, rkey = pair.b.memory(4096)
    pair.a.host.poke(source, b"payload!")
    pair.a.post_send(pair.qa, SendOpcode.RDMA_WRITE, remote(target, rkey) + data((key, source, 8)))
    (read,) = [e for e in pair.a.host.events if e.what is What.PAYLOAD]
    (written,) = [e for e in pair.b.host.events if e.what is What.PAYLOAD]
    assert (read.kind, read.address, read.data) == (Kind.DMA_READ, source, b"payload!")
    assert (written.kind, written.address, written.data) == (Kind.DMA_WRITE, target, b"payload!")


def test_write_with_immediate_takes_a_receive(pair: Pair) -> None:
    source, key = pair.a.memory(4096)
    target, rkey = pair.b.memory(4096)
    pair.a.host.poke(source, b"12345678")
    pair.b.post_recv(pair.qb, [])
    segments = remote(target, rkey) + data((key, source, 8))
    pair.a.post_send(pair.qa, SendOpcode.RDMA_WRITE_IMM, segments, immediate=7)
    (got,) = pair.b.completions(pair.qb)
    assert (got.opcode, got.length, got.immediate) == (RecvOpcode.RDMA_WRITE_WITH_IMM, 8, 7)
    assert pair.b.host.peek(target, 8) == b"12345678"


def test_read_brings_bytes_back(pair: Pair) -> None:
    local, key = pair.a.memory(4096)
    source, rkey = pair.b.memory(4096)
    pair.b.host.poke(source, b"abcdefghij")
    segments = remote(source + 1, rkey) + data((key, local, 4), (key, local + 100, 4))
    pair.a.post_send(pair.qa, SendOpcode.RDMA_READ, segments)
    assert pair.a.host.peek(local, 4) == b"bcde"
    assert pair.a.host.peek(local + 100, 4) == b"fghi"
    (done,) = pair.a.completions(pair.qa)
    assert (done.opcode, done.length) == (SendOpcode.RDMA_READ, 8)


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
    pair.a.post_send(pair.qa, opcode, segments)
    (done,) = pair.a.completions(pair.qa)
    assert (done.opcode, done.status, done.length) == (opcode, 0, 8)
    assert unpack("<Q", pair.a.host.peek(local, 8)) == (10,)
    assert unpack("<Q", pair.b.host.peek(counter + 8, 8)) == (after,)


def register(pair: Pair, key: int, start: int, pages: list[int], length: int) -> None:
    """Post REG_MR on B."""
    listing = pair.b.host.allocate(4096)
    pair.b.host.poke(listing, pack(f">{len(pages)}Q", *(page | 1 for page in pages)))
    flags = FastRegFlag.LOCAL_READ | FastRegFlag.LOCAL_WRITE | FastRegFlag.REMOTE_WRITE
    segment = pack(">IIQQQIIQ", int(flags), key, listing, start, length, 0, 12, 0)
    pair.b.post_send(pair.qb, SendOpcode.FAST_REG_MR, segment)


def test_fast_registration_use_and_remote_invalidation(pair: Pair) -> None:
    source, lkey = pair.a.memory(4096)
    inbox, rkey = pair.b.memory(4096)
    pages = [pair.b.host.allocate(4096) for _ in range(3)]
    key = pair.b.create_fast_mr(8) + 3
    register(pair, key, 0x7000_0000, [pages[2], pages[0]], 8192)
    (done,) = pair.b.completions(pair.qb)
    assert (done.opcode, done.status) == (SendOpcode.FAST_REG_MR, 0)

    pair.a.host.poke(source, b"z" * 100)
    segments = remote(0x7000_0000 + 4090, key) + data((lkey, source, 100))
    pair.a.post_send(pair.qa, SendOpcode.RDMA_WRITE, segments)
    assert pair.b.host.peek(pages[2] + 4090, 6) == b"z" * 6
    assert pair.b.host.peek(pages[0], 95) == b"z" * 94 + b"\0"

    pair.b.post_recv(pair.qb, [(rkey, inbox, 64)])
    pair.a.post_send(pair.qa, SendOpcode.SEND_INVAL, data((lkey, source, 4)), immediate=key)
    (got,) = pair.b.completions(pair.qb)
    assert (got.opcode, got.immediate) == (RecvOpcode.SEND_WITH_INVALIDATE, key)
    assert [wc.status for wc in pair.a.completions(pair.qa)] == [0, 0]

    pair.a.post_send(pair.qa, SendOpcode.RDMA_WRITE, segments)
    assert pair.a.completions(pair.qa)[0].status == CompletionStatus.REMOTE_ACCESS_ERR


def test_local_invalidation(pair: Pair) -> None:
    key = pair.b.create_fast_mr(8)
    register(pair, key, 0, [pair.b.host.allocate(4096)], 100)
    pair.b.post_send(pair.qb, SendOpcode.LOCAL_INVAL, pack(">QIIQQ", 0, key, 0, 0, 0))
    assert [wc.status for wc in pair.b.completions(pair.qb)] == [0, 0]
    pair.b.post_send(pair.qb, SendOpcode.LOCAL_INVAL, pack(">QIIQQ", 0, key, 0, 0, 0))
    assert pair.b.completions(pair.qb)[0].status == 0
    pair.b.post_send(pair.qb, SendOpcode.LOCAL_INVAL, pack(">QIIQQ", 0, key ^ 1, 0, 0, 0))
    assert pair.b.completions(pair.qb)[0].status == CompletionStatus.MW_BIND_ERR


def test_unsignalled_requests_complete_silently_and_the_ring_wraps(pair: Pair) -> None:
    source, key = pair.a.memory(4096)
    target, rkey = pair.b.memory(4096)
    segments = remote(target, rkey) + data((key, source, 4))
    for count in range(40):
        pair.a.host.poke(source, pack("<I", count))
        pair.a.post_send(pair.qa, SendOpcode.RDMA_WRITE, segments, signalled=count % 8 == 7)
        assert pair.b.host.peek(target, 4) == pack("<I", count)
    assert [wc.index for wc in pair.a.completions(pair.qa)] == [7, 15, 23, 31, 39]


def test_one_doorbell_for_many_entries_keeps_their_order(pair: Pair) -> None:
    source, key = pair.a.memory(4096)
    target, rkey = pair.b.memory(4096)
    pair.a.host.poke(source, bytes(range(16)))
    for slot in range(10):
        segments = remote(target, rkey) + data((key, source + slot, 1))
        pair.a.post_send(pair.qa, SendOpcode.RDMA_WRITE, segments, ring=False)
    assert pair.a.completions(pair.qa) == []
    pair.a.doorbell(pair.qa.qpn)
    assert [wc.index for wc in pair.a.completions(pair.qa)] == list(range(10))
    assert pair.b.host.peek(target, 1) == b"\x09"


def test_only_the_page_of_the_context_rings(pair: Pair) -> None:
    target, key = pair.b.memory(4096)
    segments = remote(target, key) + inline(b"rung")
    pair.a.post_send(pair.qa, SendOpcode.RDMA_WRITE, segments, ring=False)
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
    pair.a.post_send(
        pair.qa, SendOpcode.RDMA_WRITE, remote(target, rkey) + data((key, source, 5000))
    )
    pair.b.post_send(pair.qb, SendOpcode.RDMA_WRITE, remote(source, key) + data((rkey, target, 0)))
    a = pair.a.query(Opcode.QUERY_QP, pair.qa.qpn)[8:]
    assert QPC.get(a, "next_send_psn") == 105  # five packets of 1024 bytes
    assert QPC.get(a, "next_recv_psn") == 101  # an empty message is one packet
    assert QPC.get(a, "state") == QpState.RTS
    assert QPC.get(a, "sq_wqe_counter") == 1


def test_two_queue_pairs_of_one_hca() -> None:
    pair = Pair()
    a = pair.a
    left, right = a.create_qp(0x300), a.create_qp(0x301)
    for mine, other in ((left, right), (right, left)):
        a.to_rtr(mine, a, other.qpn)
        a.to_rts(mine)
    source, key = a.memory(4096)
    a.host.poke(source, b"loop")
    a.post_recv(right, [(key, source + 100, 64)])
    a.post_send(left, SendOpcode.SEND, data((key, source, 4)))
    assert a.host.peek(source + 100, 4) == b"loop"
    assert a.completions(left)[0].status == 0
    assert a.completions(right)[0].length == 4


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
