"""Long messages move in parts: others have their turn in between, and nothing else differs.

Between two parts keys, memory, queue pairs and guests may go away: then they break off.
"""

from __future__ import annotations

from random import Random
from struct import pack
from typing import Any

import pytest

from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.contexts import QpState, ServiceType
from bluebridge.device.layout.mlx4.cqe import CQE, CompletionStatus
from bluebridge.device.layout.mlx4.eqe import EventType
from bluebridge.device.layout.mlx4.wqe import INVALID_LKEY, FastRegFlag
from bluebridge.device.rdma.pairs.costs import LEAST_PART_BYTES, MOST_PART_BYTES, WHOLE_BYTES
from tests.models.long_messages import (
    HIGH,
    LONG,
    PAGE,
    PAGE_SHIFT,
    PUSHES,
    RECEIVING,
    LongPair,
    deregister,
    to_error,
    to_reset,
)
from tests.models.rdma_node import Node, TestQp, data, inline, remote
from tests.models.rdma_node import SendOpcode as Op
from tests.unit.rdma.test_shared_receives import OTHER_PD, SRQN, Xrc


@pytest.mark.parametrize("service", [ServiceType.RC, ServiceType.UC])
@pytest.mark.parametrize("opcode", PUSHES)
def test_bytes_ascend_and_completions_come_after_the_last(opcode: Op, service: int) -> None:
    pair = LongPair(service, rq_shift=6).connect()
    pair.receive()
    seen = [0]

    def look(_: int) -> None:
        seen.append(pair.arrived())
        assert pair.same(seen[-1])
        assert pair.a.completions(pair.qa) == pair.b.completions(pair.qb) == []

    pair.between(look)
    pair.post(opcode, immediate=0x1234)
    pair.run()
    assert pair.same(LONG)
    assert seen == sorted(seen)
    assert len(set(seen)) > 1
    assert pair.sent() == [0]
    received = [(wc.opcode, wc.length) for wc in pair.b.completions(pair.qb)]
    assert received == ([(RECEIVING[opcode], LONG)] if opcode in RECEIVING else [])
    assert pair.a.state(pair.qa) == pair.b.state(pair.qb) == QpState.RTS


def test_a_long_read_arrives_whole_and_in_order() -> None:
    pair = LongPair().connect()
    wanted, pair.source[:] = bytes(pair.source), bytes(len(pair.source))
    pair.target[:] = wanted
    seen: list[int] = []

    def look(_: int) -> None:
        seen.append(sum(pair.source[at] != 0 for at in range(0, LONG, PAGE)))
        assert pair.source[: max(seen[-1] - 1, 0) * PAGE] == wanted[: max(seen[-1] - 1, 0) * PAGE]
        assert pair.sent() == []

    pair.between(look)
    pair.post(Op.RDMA_READ)
    pair.run()
    assert pair.source[:LONG] == wanted[:LONG]
    assert len(set(seen)) > 1
    assert pair.sent() == [0]


@pytest.mark.parametrize("length", [WHOLE_BYTES, WHOLE_BYTES + 1])
def test_what_is_short_enough_moves_at_once(length: int) -> None:
    pair = LongPair(length=length).connect()
    pair.post(Op.RDMA_WRITE)
    assert (pair.sent() == [0]) == (length <= WHOLE_BYTES)
    pair.run()
    assert pair.same(length)


@pytest.mark.full
@pytest.mark.parametrize("opcode", [Op.RDMA_WRITE, Op.RDMA_READ])
def test_others_have_their_turn_while_256_mib_move(opcode: Op) -> None:
    length = 256 << 20
    pair = LongPair(length=length).connect()
    qa, qb = pair.a.create_qp(0x301), pair.b.create_qp(0x302)
    pair.join(qa, qb)
    (source, key), (target, rkey) = pair.a.memory(4096), pair.b.memory(4096)
    answered: list[int] = []

    def look(turn: int) -> None:
        pair.a.host.poke(source, turn.to_bytes(4, "big"))
        pair.a.post_send(qa, Op.RDMA_WRITE, remote(target, rkey) + data((key, source, 4)))
        pair.b.post_send(qb, Op.RDMA_WRITE, remote(source + 8, key) + data((rkey, target, 4)))
        assert pair.a.statuses(qa) == pair.b.statuses(qb) == [0]
        assert pair.a.host.peek(source + 8, 4) == turn.to_bytes(4, "big")
        assert pair.sent() == []
        answered.append(turn)

    pair.between(look)
    pair.post(opcode)
    pair.run()
    assert length // MOST_PART_BYTES <= len(answered) <= length // LEAST_PART_BYTES
    assert pair.sent() == [0]
    assert pair.source[:length] == pair.target[:length]


@pytest.mark.parametrize("seed", range(6))
def test_messages_of_one_queue_pair_keep_their_order(seed: int) -> None:
    """Small writes and reads before, between and behind long ones, to and from the same bytes."""
    random = Random(seed)
    pair = LongPair().connect()
    box, key = pair.a.memory(4096)
    expected, read = bytearray(LONG), []
    for number in range(12):
        kind = random.choice(["long", "write", "read"])
        at = random.randrange(LONG - 8)
        there = remote(HIGH + at, pair.b_key)
        if kind == "long":
            pair.post(Op.RDMA_WRITE)
            expected[:] = pair.source[:LONG]
        elif kind == "write":
            word = number.to_bytes(8, "big")
            pair.post_send(Op.RDMA_WRITE, there + inline(word))
            expected[at : at + 8] = word
        else:
            place = box + 8 * number
            pair.post_send(Op.RDMA_READ, there + data((key, place, 8)))
            read.append((place, bytes(expected[at : at + 8])))
    pair.run(0.01)
    done = pair.a.completions(pair.qa)
    assert [wc.status for wc in done] == [0] * 12
    assert [wc.index for wc in done] == sorted(wc.index for wc in done)
    assert pair.target[:LONG] == expected
    assert [(place, pair.a.host.peek(place, 8)) for place, _ in read] == read


@pytest.mark.parametrize("opcode", [*PUSHES, Op.RDMA_READ])
def test_a_slow_server_is_no_lost_answer(opcode: Op) -> None:
    """The acknowledge timeout is 67 ms: ten of them pass between two parts, however many those are.

    A busy machine makes parts shorter.
    """
    pair = LongPair(rq_shift=6).connect(rts={"retry_count": 0})
    pair.receive()

    def wait(_: int) -> None:
        pair.a.host.now += 0.7

    pair.between(wait)
    pair.post(opcode)
    pair.run(60)
    assert pair.sent() == [0]
    assert not any("retry" in told.fact.fields for told in pair.a.host.told)


@pytest.mark.parametrize("opcode", [*PUSHES, Op.RDMA_READ])
def test_a_link_that_was_down_costs_a_retry_only(opcode: Op) -> None:
    pair = LongPair(rq_shift=6).connect()
    pair.receive()
    pair.at_turn(2, lambda: pair.b.command(Opcode.CLOSE_PORT, modifier=1))
    pair.post(opcode)
    pair.run(0.05)
    assert pair.sent() == []
    pair.b.command(Opcode.INIT_PORT, modifier=1)
    pair.run(0.1)
    assert pair.sent() == [0]
    assert len(pair.a.host.facts(Fact.NO_ANSWER)) == 1
    received = [wc.length for wc in pair.b.completions(pair.qb)]
    assert received == ([LONG] if opcode in RECEIVING else [])
    assert pair.source[:LONG] == pair.target[:LONG]


@pytest.mark.parametrize("opcode", [Op.SEND, Op.RDMA_WRITE_IMM])
def test_a_receiver_that_is_not_ready_is_asked_again(opcode: Op) -> None:
    pair = LongPair(rq_shift=6).connect()
    pair.post(opcode)
    pair.run(0.01)
    assert pair.sent() == []
    assert pair.a.host.facts(Fact.NOT_READY)
    pair.receive()
    pair.run(0.05)
    assert pair.sent() == [0]
    assert [wc.length for wc in pair.b.completions(pair.qb)] == [LONG]
    assert pair.same(LONG)


def test_draining_waits_for_the_last_part() -> None:
    pair = LongPair().connect()
    pair.at_turn(1, lambda: pair.a.command(Opcode.RTS2SQD_QP, bytes(8), pair.qa.qpn | 1 << 31))
    pair.post(Op.RDMA_WRITE)
    pair.post(Op.RDMA_WRITE, length=8)
    assert pair.a.events(EventType.SQ_DRAINED) == []
    pair.run()
    assert pair.sent() == [0]
    assert pair.same(LONG)
    assert len(pair.a.events(EventType.SQ_DRAINED)) == 1


def test_a_guest_sends_to_itself() -> None:
    pair = LongPair()
    first, second = pair.a.create_qp(0x301), pair.a.create_qp(0x302)
    for qp, other in ((first, second), (second, first)):
        pair.a.to_rtr(qp, pair.a, other.qpn)
        pair.a.to_rts(qp)
    copy = pair.a.host.map(2 * HIGH, len(pair.source))
    pages = [2 * HIGH + at for at in range(0, LONG, PAGE)]
    key = pair.a.create_mr(2 * HIGH, LONG, pages, shift=PAGE_SHIFT)
    segments = remote(2 * HIGH, key) + data((pair.a_key, HIGH, LONG))
    pair.a.post_send(first, Op.RDMA_WRITE, segments)
    pair.run()
    assert pair.a.statuses(first) == [0]
    assert copy[:LONG] == pair.source[:LONG]


def test_a_key_is_invalidated_with_the_last_part() -> None:
    pair = LongPair(rq_shift=6).connect()
    key = pair.b.create_fast_mr(8)
    listing = pair.b.host.allocate(4096)
    pair.b.host.poke(listing, pack(">Q", pair.b.host.allocate(4096) | 1))
    rights = FastRegFlag.LOCAL_READ | FastRegFlag.LOCAL_WRITE | FastRegFlag.REMOTE_WRITE
    segment = pack(">IIQQQIIQ", int(rights), key, listing, 0, 4096, 0, 12, 0)
    pair.b.post_send(pair.qb, Op.FAST_REG_MR, segment)
    assert pair.b.statuses(pair.qb) == [0]
    pair.receive()
    usable: list[bool] = []

    def look(_: int) -> None:
        region = pair.b.adapter.regions.find(key)
        assert region is not None
        usable.append(not region.free)

    pair.between(look)
    pair.post(Op.SEND_INVAL, immediate=key)
    pair.run()
    look(0)
    assert pair.sent() == [0]
    (wc,) = pair.b.completions(pair.qb)
    assert (wc.opcode, wc.length, wc.immediate) == (RECEIVING[Op.SEND_INVAL], LONG, key)
    assert usable[-1] is False
    assert all(usable[:-1])


def test_the_receive_of_an_srq_is_completed_once() -> None:
    """XRC: the queue pair has no receives of its own, memory and completion are the SRQ's."""
    xrc = Xrc()
    queue = xrc.srq(SRQN)
    source, target = (node.host.map(HIGH, LONG + PAGE) for node in (xrc.a, xrc.b))
    source[:LONG] = b"\x5a" * LONG
    pages = [HIGH + at for at in range(0, LONG, PAGE)]
    key = xrc.a.create_mr(HIGH, LONG, pages, shift=PAGE_SHIFT)
    rkey = xrc.b.create_mr(HIGH, LONG, pages, shift=PAGE_SHIFT, pd=OTHER_PD)
    xrc.b.post_srq(queue, 0, [(rkey, HIGH, LONG), (INVALID_LKEY, 0, 0)])
    assert xrc.send(SRQN, Op.SEND, data((key, HIGH, LONG))) == 0
    (raw,) = xrc.b.poll_cq(xrc.cqs[SRQN])
    assert CQE.get(raw, "byte_count") == LONG
    assert target[:LONG] == source[:LONG]


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
    assert pair.sent() == [wanted, BROKEN]
    told = pair.b.statuses(pair.qb)
    assert told == [CompletionStatus.LOCAL_PROT_ERR if send else BROKEN]
    assert pair.a.state(pair.qa) == pair.b.state(pair.qb) == QpState.ERR
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
    assert pair.sent() == [CompletionStatus.LOCAL_PROT_ERR]
    assert pair.a.state(pair.qa) == QpState.ERR
    assert pair.b.state(pair.qb) == QpState.RTS
    assert pair.b.statuses(pair.qb) == []
    to_error(pair.b, pair.qb)  # the receive that the message was moving into is flushed, too
    assert pair.b.statuses(pair.qb) == [BROKEN]


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
        assert pair.sent() == ([] if end == "reset" else [BROKEN])
    if opcode is not Op.RDMA_READ:
        assert pair.same(left[0])
    assert pair.turns == 2
    assert pair.b.statuses(pair.qb) == []


@pytest.mark.parametrize("opcode", [Op.RDMA_WRITE, Op.RDMA_READ, Op.SEND])
@pytest.mark.parametrize("end", ["reset", "error", "function"])
def test_a_responder_that_is_gone_uses_up_the_retries(end: str, opcode: Op) -> None:
    pair = LongPair(rq_shift=6).connect()
    pair.receive()
    left = ended_at_turn_2(pair, pair.b, pair.qb, end)
    pair.post(opcode)
    pair.run(0.5)
    assert pair.sent() == [CompletionStatus.TRANSPORT_RETRY_EXC_ERR]
    if opcode is not Op.RDMA_READ:
        assert pair.same(left[0])
    if end == "error":
        assert pair.b.statuses(pair.qb) == [BROKEN]


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
    (status,) = pair.sent()
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
    assert pair.sent() == [CompletionStatus.REMOTE_INVAL_REQ_ERR]
    assert pair.b.statuses(pair.qb) == [CompletionStatus.LOCAL_LENGTH_ERR]
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
    assert pair.sent() == [CompletionStatus.REMOTE_INVAL_REQ_ERR]
    assert pair.b.statuses(pair.qb) == [BROKEN, BROKEN]


def test_without_reliability_the_next_message_takes_the_receive_of_a_broken_one() -> None:
    pair = broken_off(ServiceType.UC)
    pair.post(Op.SEND)
    pair.run(0.01)
    assert pair.sent() == [0]
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
    assert pair.sent() == [0]
    assert pair.b.statuses(pair.qb) == []
    assert pair.b.state(pair.qb) == QpState.RTS
