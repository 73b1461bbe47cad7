"""Long messages that break off: keys, memory, queue pairs and guests go away between two parts."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.contexts import QpState, ServiceType
from bluebridge.device.layout.mlx4.cqe import CompletionStatus
from bluebridge.device.layout.mlx4.eqe import EventType
from tests.models.long_messages import (
    HIGH,
    LONG,
    PAGE,
    PAGE_SHIFT,
    LongPair,
    deregister,
    to_error,
    to_reset,
)
from tests.models.rdma_node import Node, TestQp
from tests.models.rdma_node import SendOpcode as Op
from tests.unit.rdma.test_qp_protection import state, statuses

BROKEN = CompletionStatus.WR_FLUSH_ERR


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("opcode", [Op.RDMA_WRITE, Op.RDMA_READ, Op.SEND])
@pytest.mark.parametrize("gone", ["key", "memory"])
def test_a_target_that_goes_away_is_a_refusal(gone: str, opcode: Op, seed: int) -> None:
    pair = LongPair(rq_shift=6).connect()
    pair.receive()
    left: list[int] = []

    def vanish() -> None:
        left.append(pair.arrived())
        if gone == "key":
            deregister(pair.b, pair.b_key)
        else:
            pair.b.host.unmap(HIGH)

    pair.at_turn(1 + Random(seed).randrange(2), vanish)
    pair.post(opcode)
    pair.post(Op.RDMA_WRITE, length=8)
    pair.run(0.01)
    send = opcode is Op.SEND
    wanted = CompletionStatus.REMOTE_OP_ERR if send else CompletionStatus.REMOTE_ACCESS_ERR
    assert statuses(pair.a, pair.qa) == [wanted, BROKEN]
    told = statuses(pair.b, pair.qb)
    assert told == [CompletionStatus.LOCAL_PROT_ERR if send else BROKEN]
    assert state(pair.a, pair.qa) == state(pair.b, pair.qb) == QpState.ERR
    assert len(pair.b.events(EventType.WQ_ACCESS_ERROR)) == (0 if send else 1)
    if opcode is not Op.RDMA_READ:
        assert pair.same(left[0])


@pytest.mark.parametrize("opcode", [Op.RDMA_WRITE, Op.RDMA_READ, Op.SEND])
@pytest.mark.parametrize("gone", ["key", "memory"])
def test_a_source_that_goes_away_is_a_local_error(gone: str, opcode: Op) -> None:
    pair = LongPair(rq_shift=6).connect()
    pair.receive()
    if gone == "key":
        pair.at_turn(2, lambda: deregister(pair.a, pair.a_key))
    else:
        pair.at_turn(2, lambda: pair.a.host.unmap(HIGH))
    pair.post(opcode)
    pair.run(0.01)
    assert statuses(pair.a, pair.qa) == [CompletionStatus.LOCAL_PROT_ERR]
    assert state(pair.a, pair.qa) == QpState.ERR
    assert state(pair.b, pair.qb) == QpState.RTS
    assert statuses(pair.b, pair.qb) == []
    to_error(pair.b, pair.qb)  # the receive that the message was moving into is flushed, too
    assert statuses(pair.b, pair.qb) == [BROKEN]


def ended_at_turn_2(pair: LongPair, node: Node, qp: TestQp, end: str) -> list[int]:
    """Have one side end between two parts; the list gets the bytes that have arrived then."""
    left: list[int] = []

    def stop() -> None:
        left.append(pair.arrived())
        if end == "function":
            node.hca.reset()
        else:
            (to_reset if end == "reset" else to_error)(node, qp)

    pair.at_turn(2, stop)
    return left


@pytest.mark.parametrize("opcode", [Op.RDMA_WRITE, Op.RDMA_READ, Op.SEND])
@pytest.mark.parametrize("end", ["reset", "error", "function"])
def test_nothing_moves_for_a_requester_that_was_stopped(end: str, opcode: Op) -> None:
    pair = LongPair(rq_shift=6).connect()
    pair.receive()
    left = ended_at_turn_2(pair, pair.a, pair.qa, end)
    pair.post(opcode)
    pair.run(0.01)
    if end != "function":
        assert statuses(pair.a, pair.qa) == ([] if end == "reset" else [BROKEN])
    if opcode is not Op.RDMA_READ:
        assert pair.same(left[0])
    assert pair.turns == 2
    assert statuses(pair.b, pair.qb) == []


@pytest.mark.parametrize("opcode", [Op.RDMA_WRITE, Op.RDMA_READ, Op.SEND])
@pytest.mark.parametrize("end", ["reset", "error", "function"])
def test_a_responder_that_is_gone_uses_up_the_retries(end: str, opcode: Op) -> None:
    pair = LongPair(rq_shift=6).connect()
    pair.receive()
    left = ended_at_turn_2(pair, pair.b, pair.qb, end)
    pair.post(opcode)
    pair.run(0.5)
    assert statuses(pair.a, pair.qa) == [CompletionStatus.TRANSPORT_RETRY_EXC_ERR]
    if opcode is not Op.RDMA_READ:
        assert pair.same(left[0])
    if end == "error":
        assert statuses(pair.b, pair.qb) == [BROKEN]


@pytest.mark.parametrize("opcode", [Op.RDMA_WRITE, Op.RDMA_READ, Op.SEND])
@pytest.mark.parametrize("side", ["a", "b"])
def test_keys_are_checked_to_the_last_byte_before_the_first_moves(side: str, opcode: Op) -> None:
    pair = LongPair(rq_shift=6).connect()
    node = pair.a if side == "a" else pair.b
    pages = [HIGH + at for at in range(0, LONG, PAGE)]
    key = node.create_mr(HIGH, LONG - 1, pages, shift=PAGE_SHIFT)
    setattr(pair, f"{side}_key", key)
    pair.receive()
    before = bytes(pair.source)
    pair.post(opcode)
    pair.run(0.01)
    (status,) = statuses(pair.a, pair.qa)
    wanted = (
        CompletionStatus.REMOTE_OP_ERR
        if opcode is Op.SEND
        else (CompletionStatus.REMOTE_ACCESS_ERR)
    )
    assert status == (CompletionStatus.LOCAL_PROT_ERR if side == "a" else wanted)
    assert pair.same(0)
    assert pair.source == before


def test_a_send_that_is_too_long_for_the_receive_moves_nothing() -> None:
    pair = LongPair(rq_shift=6).connect()
    pair.receive(LONG - 1)
    pair.post(Op.SEND)
    pair.run(0.01)
    assert statuses(pair.a, pair.qa) == [CompletionStatus.REMOTE_INVAL_REQ_ERR]
    assert statuses(pair.b, pair.qb) == [CompletionStatus.LOCAL_LENGTH_ERR]
    assert pair.same(0)


def broken_off(service: int, **more: Any) -> LongPair:
    """A SEND whose sender was reset in the middle and is connected again, at B's next PSN."""
    pair = LongPair(service, rq_shift=6, **more).connect()
    pair.receive()
    pair.receive()
    pair.at_turn(2, lambda: to_reset(pair.a, pair.qa))
    pair.post(Op.SEND)
    pair.run(0.01)
    psn = pair.b.adapter.qps.get(pair.qb.qpn).responder.psn  # type: ignore[union-attr]
    pair.qa = pair.a.create_qp(pair.qa.qpn, service, rq_shift=6)
    pair.a.to_rtr(pair.qa, pair.b, pair.qb.qpn)
    pair.a.to_rts(pair.qa, next_send_psn=psn)
    return pair


def test_a_message_in_the_middle_of_another_is_refused() -> None:
    pair = broken_off(ServiceType.RC)
    pair.post(Op.SEND)
    pair.run(0.01)
    assert statuses(pair.a, pair.qa) == [CompletionStatus.REMOTE_INVAL_REQ_ERR]
    assert statuses(pair.b, pair.qb) == [BROKEN, BROKEN]


def test_without_reliability_the_next_message_takes_the_receive_of_a_broken_one() -> None:
    pair = broken_off(ServiceType.UC)
    pair.post(Op.SEND)
    pair.run(0.01)
    assert statuses(pair.a, pair.qa) == [0]
    assert [(wc.index, wc.length) for wc in pair.b.completions(pair.qb)] == [(0, LONG)]
    assert pair.same(LONG)


def test_without_reliability_a_lost_part_loses_the_message() -> None:
    pair = LongPair(ServiceType.UC, rq_shift=6).connect()
    pair.receive()
    steps = {2: Opcode.CLOSE_PORT, 3: Opcode.INIT_PORT}
    pair.between(
        lambda turn: None if turn not in steps else pair.b.command(steps[turn], modifier=1)
    )
    pair.post(Op.SEND)
    pair.run(0.01)
    assert statuses(pair.a, pair.qa) == [0]
    assert statuses(pair.b, pair.qb) == []
    assert state(pair.b, pair.qb) == QpState.RTS
