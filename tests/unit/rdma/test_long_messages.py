"""Long messages move in parts: others have their turn in between, and nothing else differs."""

from __future__ import annotations

from random import Random
from struct import pack

import pytest

from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.contexts import QpState, ServiceType
from bluebridge.device.layout.mlx4.cqe import CQE
from bluebridge.device.layout.mlx4.eqe import EventType
from bluebridge.device.layout.mlx4.wqe import INVALID_LKEY, FastRegFlag
from bluebridge.device.rdma.pairs.costs import LEAST_PART_BYTES, MOST_PART_BYTES, WHOLE_BYTES
from tests.models.long_messages import HIGH, LONG, PAGE, PAGE_SHIFT, PUSHES, RECEIVING, LongPair
from tests.models.rdma_node import SendOpcode as Op
from tests.models.rdma_node import data, inline, remote
from tests.unit.rdma.test_qp_protection import state, statuses
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
    assert statuses(pair.a, pair.qa) == [0]
    received = [(wc.opcode, wc.length) for wc in pair.b.completions(pair.qb)]
    assert received == ([(RECEIVING[opcode], LONG)] if opcode in RECEIVING else [])
    assert state(pair.a, pair.qa) == state(pair.b, pair.qb) == QpState.RTS


def test_a_long_read_arrives_whole_and_in_order() -> None:
    pair = LongPair().connect()
    wanted, pair.source[:] = bytes(pair.source), bytes(len(pair.source))
    pair.target[:] = wanted
    seen: list[int] = []

    def look(_: int) -> None:
        seen.append(sum(pair.source[at] != 0 for at in range(0, LONG, PAGE)))
        assert pair.source[: max(seen[-1] - 1, 0) * PAGE] == wanted[: max(seen[-1] - 1, 0) * PAGE]
        assert statuses(pair.a, pair.qa) == []

    pair.between(look)
    pair.post(Op.RDMA_READ)
    pair.run()
    assert pair.source[:LONG] == wanted[:LONG]
    assert len(set(seen)) > 1
    assert statuses(pair.a, pair.qa) == [0]


@pytest.mark.parametrize("length", [WHOLE_BYTES, WHOLE_BYTES + 1])
def test_what_is_short_enough_moves_at_once(length: int) -> None:
    pair = LongPair(length=length).connect()
    pair.post(Op.RDMA_WRITE)
    assert (statuses(pair.a, pair.qa) == [0]) == (length <= WHOLE_BYTES)
    pair.run()
    assert pair.same(length)


@pytest.mark.parametrize("opcode", [Op.RDMA_WRITE, Op.RDMA_READ])
def test_others_have_their_turn_while_256_mib_move(opcode: Op) -> None:
    length = 256 << 20
    pair = LongPair(length=length).connect()
    qa, qb = pair.a.create_qp(0x301), pair.b.create_qp(0x302)
    for node, qp, peer, other in ((pair.a, qa, pair.b, qb), (pair.b, qb, pair.a, qa)):
        node.to_rtr(qp, peer, other.qpn)
        node.to_rts(qp)
    (source, key), (target, rkey) = pair.a.memory(4096), pair.b.memory(4096)
    answered: list[int] = []

    def look(turn: int) -> None:
        pair.a.host.poke(source, turn.to_bytes(4, "big"))
        pair.a.post_send(qa, Op.RDMA_WRITE, remote(target, rkey) + data((key, source, 4)))
        pair.b.post_send(qb, Op.RDMA_WRITE, remote(source + 8, key) + data((rkey, target, 4)))
        assert statuses(pair.a, qa) == statuses(pair.b, qb) == [0]
        assert pair.a.host.peek(source + 8, 4) == turn.to_bytes(4, "big")
        assert statuses(pair.a, pair.qa) == []
        answered.append(turn)

    pair.between(look)
    pair.post(opcode)
    pair.run()
    assert length // MOST_PART_BYTES <= len(answered) <= length // LEAST_PART_BYTES
    assert statuses(pair.a, pair.qa) == [0]
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
            pair.a.post_send(pair.qa, Op.RDMA_WRITE, there + inline(word))
            expected[at : at + 8] = word
        else:
            place = box + 8 * number
            pair.a.post_send(pair.qa, Op.RDMA_READ, there + data((key, place, 8)))
            read.append((place, bytes(expected[at : at + 8])))
    pair.run(0.01)
    done = pair.a.completions(pair.qa)
    assert [wc.status for wc in done] == [0] * 12
    assert [wc.index for wc in done] == sorted(wc.index for wc in done)
    assert pair.target[:LONG] == expected
    assert [(place, pair.a.host.peek(place, 8)) for place, _ in read] == read


@pytest.mark.parametrize("opcode", [*PUSHES, Op.RDMA_READ])
def test_a_slow_server_is_no_lost_answer(opcode: Op) -> None:
    """The acknowledge timeout is 67 ms: ten of them pass between two parts."""
    pair = LongPair(rq_shift=6).connect(rts={"retry_count": 0})
    pair.receive()

    def wait(_: int) -> None:
        pair.a.host.now += 0.7

    pair.between(wait)
    pair.post(opcode)
    pair.run(5)
    assert statuses(pair.a, pair.qa) == [0]
    assert not any("answer" in text or "retry" in text for _, text, _ in pair.a.host.notes)


@pytest.mark.parametrize("opcode", [*PUSHES, Op.RDMA_READ])
def test_a_link_that_was_down_costs_a_retry_only(opcode: Op) -> None:
    pair = LongPair(rq_shift=6).connect()
    pair.receive()
    pair.at_turn(2, lambda: pair.b.command(Opcode.CLOSE_PORT, modifier=1))
    pair.post(opcode)
    pair.run(0.05)
    assert statuses(pair.a, pair.qa) == []
    pair.b.command(Opcode.INIT_PORT, modifier=1)
    pair.run(0.1)
    assert statuses(pair.a, pair.qa) == [0]
    assert sum("no answer" in text for _, text, _ in pair.a.host.notes) == 1
    received = [wc.length for wc in pair.b.completions(pair.qb)]
    assert received == ([LONG] if opcode in RECEIVING else [])
    assert pair.source[:LONG] == pair.target[:LONG]


@pytest.mark.parametrize("opcode", [Op.SEND, Op.RDMA_WRITE_IMM])
def test_a_receiver_that_is_not_ready_is_asked_again(opcode: Op) -> None:
    pair = LongPair(rq_shift=6).connect()
    pair.post(opcode)
    pair.run(0.01)
    assert statuses(pair.a, pair.qa) == []
    assert any("RNR NAK" in text for _, text, _ in pair.a.host.notes)
    pair.receive()
    pair.run(0.05)
    assert statuses(pair.a, pair.qa) == [0]
    assert [wc.length for wc in pair.b.completions(pair.qb)] == [LONG]
    assert pair.same(LONG)


def test_draining_waits_for_the_last_part() -> None:
    pair = LongPair().connect()
    pair.at_turn(1, lambda: pair.a.command(Opcode.RTS2SQD_QP, bytes(8), pair.qa.qpn | 1 << 31))
    pair.post(Op.RDMA_WRITE)
    pair.post(Op.RDMA_WRITE, length=8)
    assert pair.a.events(EventType.SQ_DRAINED) == []
    pair.run()
    assert statuses(pair.a, pair.qa) == [0]
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
    assert statuses(pair.a, first) == [0]
    assert copy[:LONG] == pair.source[:LONG]


def test_a_key_is_invalidated_with_the_last_part() -> None:
    pair = LongPair(rq_shift=6).connect()
    key = pair.b.create_fast_mr(8)
    listing = pair.b.host.allocate(4096)
    pair.b.host.poke(listing, pack(">Q", pair.b.host.allocate(4096) | 1))
    rights = FastRegFlag.LOCAL_READ | FastRegFlag.LOCAL_WRITE | FastRegFlag.REMOTE_WRITE
    segment = pack(">IIQQQIIQ", int(rights), key, listing, 0, 4096, 0, 12, 0)
    pair.b.post_send(pair.qb, Op.FAST_REG_MR, segment)
    assert statuses(pair.b, pair.qb) == [0]
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
    assert statuses(pair.a, pair.qa) == [0]
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
