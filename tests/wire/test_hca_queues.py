"""Queues between two HCAs, and inside one: order, fences, flushes, what does not fit, reset."""

from __future__ import annotations

import pytest

from bluebridge.device.layout.mlx4.eqe import EventType
from bluebridge.guest.drivers.hca.context import Context
from bluebridge.guest.verbs import (
    QpState,
    RecvWr,
    SendFlags,
    SendWr,
    VerbsError,
    WcOpcode,
    WcStatus,
    WrOpcode,
)
from tests.wire.players import PATTERN, Player, connected, settle

Pair = tuple[Player, Player]
OK, FLUSH = WcStatus.SUCCESS, WcStatus.WR_FLUSH_ERR


@pytest.fixture(params=["two HCAs", "loopback"])
def pair(request: pytest.FixtureRequest, contexts: tuple[Context, Context]) -> Pair:
    """Two connected RC players, on two HCAs or on one."""
    a, b = contexts
    return connected(a, b if request.param == "two HCAs" else a)


def test_unsignalled(pair: Pair) -> None:
    """One completion for every fourth request retires those before it; the ring goes round."""
    a, b = pair
    for turn in range(40):
        flags = SendFlags.SIGNALED if turn % 4 == 3 else SendFlags(0)
        a.view[0] = turn
        a.send(WrOpcode.RDMA_WRITE, [a.sge(0, 1)], b, turn, flags)
        if flags:
            a.expect(OK)
    a.silent(0)
    assert list(b.view[3:40:4]) == list(range(3, 40, 4))


def test_signal_all(contexts: tuple[Context, Context]) -> None:
    a, b = connected(*contexts, signal_all=True)
    a.send(WrOpcode.RDMA_WRITE, [a.sge(0, 1)], b, flags=SendFlags(0))
    a.expect(OK)


def test_full_queues(pair: Pair) -> None:
    a, b = pair
    requests = [SendWr(n, WrOpcode.RDMA_WRITE, [a.sge(0, 1)],
                       remote_addr=b.address, rkey=b.mr.rkey) for n in range(17)]  # fmt: skip
    with pytest.raises(VerbsError, match="send queue of 16 entries is full"):
        a.qp.post_send(requests)
    assert [wc.wr_id for wc in a.expect(*[OK] * 16)] == list(range(16))
    with pytest.raises(VerbsError, match="receive queue of 16 entries is full"):
        b.qp.post_recv([RecvWr(n) for n in range(17)])
    with pytest.raises(VerbsError, match="pieces do not fit"):
        a.send(WrOpcode.SEND, [a.sge(0, 1)] * 9)


def test_order_of_a_long_chain(pair: Pair) -> None:
    a, b = pair
    for turn in range(10):
        for n in range(8):
            b.receive(n, 64 * n, 64)
        a.qp.post_send([SendWr(n, WrOpcode.SEND, [a.sge(0, n)], imm=turn) for n in range(8)])
        assert [wc.wr_id for wc in a.expect(*[OK] * 8)] == list(range(8))
        done = b.expect(*[OK] * 8)
        assert [(wc.wr_id, wc.byte_len) for wc in done] == [(n, n) for n in range(8)]


def test_fence(pair: Pair) -> None:
    """A fenced SEND carries what the READ before it brought."""
    a, b = pair
    b.view[:8] = b"original"
    b.receive(0, 4096, 64)
    a.qp.post_send(
        [
            SendWr(1, WrOpcode.RDMA_READ, [a.sge(0, 8)], remote_addr=b.address, rkey=b.mr.rkey),
            SendWr(2, WrOpcode.SEND, [a.sge(0, 8)], SendFlags.SIGNALED | SendFlags.FENCE),
        ]
    )
    a.expect(OK, OK)
    b.expect(OK)
    assert bytes(b.view[4096:4104]) == b"original"


def test_more_reads_than_may_be_outstanding(pair: Pair) -> None:
    a, b = pair
    b.view[:] = PATTERN
    for _ in range(4):
        a.qp.post_send(
            [SendWr(n, WrOpcode.RDMA_READ, [a.sge(n * 100, 100)],
                    remote_addr=b.address + n * 100, rkey=b.mr.rkey)
             for n in range(16)]
        )  # fmt: skip
        a.expect(*[OK] * 16)
    assert bytes(a.view[:1600]) == PATTERN[:1600]


def test_flush(pair: Pair) -> None:
    """ERR flushes what is posted and what is posted afterwards, unsignalled requests too."""
    a, b = pair
    for n in range(3):
        b.receive(n)
    b.qp.modify_err()
    done = b.expect(FLUSH, FLUSH, FLUSH)
    assert [wc.wr_id for wc in done] == [0, 1, 2]
    b.receive(8)
    (wc,) = b.expect(FLUSH)
    assert (wc.wr_id, wc.opcode) == (8, WcOpcode.RECV)
    b.send(WrOpcode.RDMA_WRITE, [b.sge(0, 1)], a, flags=SendFlags(0))
    (wc,) = b.expect(FLUSH)
    assert (wc.wr_id, wc.opcode) == (77, WcOpcode.SEND)
    assert b.qp.query_state() is QpState.ERR


def test_reset_forgets(pair: Pair) -> None:
    """Unread completions of a queue pair that is reset are gone, those of others stay."""
    a, b = pair
    other = Player(a.ctx)
    other.cq.destroy()
    b.receive(1)
    a.send(WrOpcode.SEND, [a.sge(0, 4)])
    settle(a)
    a.reconnect(b)
    b.reconnect(a)
    assert a.cq.poll() == []
    assert b.cq.poll() == []
    b.receive(2)
    a.send(WrOpcode.SEND, [a.sge(0, 4)])
    a.expect(OK)
    (wc,) = b.expect(OK)
    assert wc.wr_id == 2


def test_shared_receive_queue(contexts: tuple[Context, Context]) -> None:
    a, b = Player(contexts[0]), Player(contexts[1], srq=True)
    a.connect(b)
    b.connect(a)
    assert b.srq is not None
    for turn in range(6):
        for n in range(8):
            b.receive(n, 64 * n, 64)
        a.qp.post_send([SendWr(n, WrOpcode.SEND, [a.sge(0, 4 + n)]) for n in range(8)])
        a.expect(*[OK] * 8)
        done = b.expect(*[OK] * 8)
        assert [(wc.wr_id, wc.byte_len) for wc in done] == [(n, 4 + n) for n in range(8)], turn
    with pytest.raises(VerbsError, match="full"):
        b.srq.post_recv([RecvWr(n) for n in range(32)])


def test_shared_receive_queue_events(contexts: tuple[Context, Context]) -> None:
    a, b = Player(contexts[0]), Player(contexts[1], srq=True)
    a.connect(b)
    b.connect(a)
    assert b.srq is not None
    events = b.ctx.async_events
    while events.get_event(0):
        pass
    for n in range(3):
        b.receive(n)
    b.hca_srq.arm_limit(3)
    a.send(WrOpcode.SEND, [a.sge(0, 1)])
    event = events.get_event(2)
    assert event is not None
    assert (event.type, event.number) == (EventType.SRQ_LIMIT, b.hca_srq.srqn)
    b.qp.modify_err()
    event = events.get_event(2)
    assert event is not None
    assert (event.type, event.number) == (EventType.SRQ_QP_LAST_WQE, b.qp.qpn)
