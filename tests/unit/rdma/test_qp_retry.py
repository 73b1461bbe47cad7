"""Receivers that are not ready, peers that are gone, flushing, and the states around them."""

from __future__ import annotations

from typing import Any

import pytest

from bluebridge.device.fabric.interface import FabricPort
from bluebridge.device.fabric.messages import Message, Request, Response
from bluebridge.device.fabric.settings import NetworkSettings
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.commands import OptPar as Par
from bluebridge.device.layout.mlx4.contexts import QPC, QpState
from bluebridge.device.layout.mlx4.cqe import CompletionStatus
from bluebridge.device.layout.mlx4.eqe import EventType
from bluebridge.device.layout.net.roce import Op, Syndrome
from bluebridge.device.rdma.connected.sender import BATCH
from tests.models.rdma_node import Pair, SendOpcode, data, inline, remote


def times(pair: Pair, fact: Fact) -> int:
    """How often A's device told a fact."""
    return len(pair.a.host.facts(fact))


def test_receiver_not_ready_is_asked_again() -> None:
    pair = Pair().connect()
    target, rkey = pair.b.memory(4096)
    pair.post_send(SendOpcode.SEND, inline(b"first"))
    pair.post_send(SendOpcode.SEND, inline(b"second"))
    assert pair.sent() == []
    pair.post_recv([(rkey, target, 16)])
    pair.post_recv([(rkey, target + 16, 16)])
    pair.run(0.01)
    assert pair.sent() == [0, 0]
    assert pair.b.host.peek(target, 5) == b"first"
    assert pair.b.host.peek(target + 16, 6) == b"second"
    assert times(pair, Fact.NOT_READY)


@pytest.mark.parametrize(("code", "retries", "seconds"), [(12, 3, 0.05), (0, 1, 0.8)])
def test_receiver_retries_are_counted(code: int, retries: int, seconds: float) -> None:
    pair = Pair().connect(rtr={"min_rnr_timer": code}, rts={"rnr_retry": retries})
    pair.post_send(SendOpcode.SEND, inline(b"x"))
    pair.run(seconds)
    assert pair.sent() == [CompletionStatus.RNR_RETRY_EXC_ERR]
    assert times(pair, Fact.NOT_READY) == retries
    assert pair.a.state(pair.qa) == QpState.ERR
    assert pair.b.state(pair.qb) == QpState.RTS


def test_seven_retries_are_for_ever() -> None:
    pair = Pair().connect(rtr={"min_rnr_timer": 1}, rts={"rnr_retry": 7})
    target, rkey = pair.b.memory(4096)
    pair.post_send(SendOpcode.SEND, inline(b"patience"))
    pair.run(0.2)
    assert pair.sent() == []
    pair.post_recv([(rkey, target, 16)])
    pair.run(0.01)
    assert pair.sent() == [0]


class HurriedPair(Pair):
    """Two guests of `--rnr fast`."""

    network = NetworkSettings(fast_rnr=True)


def test_timer_code_zero_is_offered_every_millisecond_where_that_is_asked_for() -> None:
    pair = HurriedPair().connect(rtr={"min_rnr_timer": 0}, rts={"rnr_retry": 1})
    target, rkey = pair.b.memory(4096)
    pair.post_send(SendOpcode.SEND, inline(b"soon"))
    pair.run(0.1)
    assert times(pair, Fact.NOT_READY) == 1  # one 655 ms retry, however often it is offered
    pair.post_recv([(rkey, target, 16)])
    pair.run(0.003)
    assert pair.sent() == [0]


def test_timer_code_zero_is_655_ms() -> None:
    pair = Pair().connect(rtr={"min_rnr_timer": 0})
    target, rkey = pair.b.memory(4096)
    pair.post_send(SendOpcode.SEND, inline(b"late"))
    pair.post_recv([(rkey, target, 16)])
    pair.run(0.65)
    assert pair.sent() == []
    pair.run(0.01)
    assert pair.sent() == [0]
    (told,) = pair.a.host.facts(Fact.NOT_READY)
    assert (told["retry"], told["offered"]) == (1, 0)


@pytest.mark.parametrize("code", [0, 1])
def test_many_receivers_that_are_not_ready_share_the_offers_of_a_port(code: int) -> None:
    """As many offers in a second as one queue pair would make, four every millisecond."""
    pair = HurriedPair().connect()
    count, seconds = 40, 0.1
    for number in range(count):
        a, b = pair.a.create_qp(0x300 + number), pair.b.create_qp(0x400 + number)
        pair.join(a, b, {"min_rnr_timer": code})
        pair.a.post_send(a, SendOpcode.SEND, inline(b"soon"))
    before = pair.fabric.statistics.delivered
    pair.run(seconds)
    offers = (pair.fabric.statistics.delivered - before) // 2  # each is answered
    assert count <= offers <= 2 * seconds * 4000


@pytest.mark.parametrize("gone", ["reset", "not connected", "link"])
def test_silence_uses_up_the_retries(gone: str) -> None:
    pair = Pair()
    pair.a.to_rtr(pair.qa, pair.b, pair.qb.qpn)
    pair.a.to_rts(pair.qa, retry_count=2)
    if gone == "reset":
        pair.b.command(Opcode.TORST_QP, modifier=pair.qb.qpn, op_modifier=2)
    elif gone == "link":
        pair.b.command(Opcode.CLOSE_PORT, modifier=1)
    source, key = pair.a.memory(4096)
    sent: list[int] = []

    def see(_: FabricPort, message: Message) -> bool:
        if isinstance(message, Request):
            sent.append(message.psn)
        return True

    pair.watched.watch = see
    pair.post_send(SendOpcode.SEND, data((key, source, 4)))
    pair.post_send(SendOpcode.SEND, data((key, source, 4)), signalled=False)
    pair.run(0.15)
    assert pair.sent() == []
    pair.run(0.15)  # three times 67 ms
    assert pair.sent() == [CompletionStatus.TRANSPORT_RETRY_EXC_ERR, CompletionStatus.WR_FLUSH_ERR]
    assert times(pair, Fact.NO_ANSWER) == 2
    assert sent.count(sent[0]) == 3


def test_a_peer_that_comes_late_is_reached() -> None:
    pair = Pair()
    target, rkey = pair.b.memory(4096)
    pair.a.to_rtr(pair.qa, pair.b, pair.qb.qpn)
    pair.a.to_rts(pair.qa, retry_count=7)
    pair.post_send(SendOpcode.SEND, inline(b"early"))
    pair.run(0.1)
    pair.post_recv([(rkey, target, 16)])
    pair.b.to_rtr(pair.qb, pair.a, pair.qa.qpn)
    pair.run(0.1)
    assert pair.sent() == [0]
    assert pair.b.events(EventType.COMM_EST)


def request(
    pair: Pair, psn: int, op: Op = Op.WRITE, packets: int = 1, **more: Any
) -> list[Response]:
    """Return what B answers to a request with a PSN of our choice, as A would send it."""
    answers: list[Response] = []
    qp = pair.a.adapter.qps.get(pair.qa.qpn)
    assert qp is not None

    def keep(source: FabricPort, message: Message) -> bool:
        if source is pair.b.port and isinstance(message, Response):
            answers.append(message)
        return source is not pair.b.port

    pair.watched.watch = keep
    message = Request(op, qp.route, qp.qpn, pair.qb.qpn, psn, packets, 0, **more)
    pair.fabric.send(pair.a.port, message)
    pair.watched.watch = lambda source, message: True
    return answers


def addition(pair: Pair) -> tuple[int, dict[str, Any]]:
    """Memory of B, and what a request has that adds 1 there."""
    target, rkey = pair.b.memory(4096)
    return target, {"remote_address": target, "rkey": rkey, "atomic": (1, 0, 0, 0)}


def test_gap_in_the_sequence_is_refused_once() -> None:
    pair = Pair().connect()
    (nak,) = request(pair, 105)
    assert (nak.syndrome, nak.psn) == (Syndrome.NAK_PSN, 100)
    assert request(pair, 106) == []
    (ack,) = request(pair, 100)
    assert (ack.syndrome, ack.psn, ack.msn) == (Syndrome.ACK, 100, 1)
    assert pair.b.state(pair.qb) == QpState.RTS


def test_duplicates_are_acknowledged_but_not_done_again() -> None:
    pair = Pair().connect()
    target, add = addition(pair)
    (first,) = request(pair, 100, Op.FETCH_ADD, **add)
    (again,) = request(pair, 100, Op.FETCH_ADD, **add)
    assert first.atomic_original == again.atomic_original == 0
    assert pair.b.host.peek(target, 8) == b"\1" + bytes(7)
    pair.post_recv([(add["rkey"], target, 16)])
    request(pair, 101, Op.SEND)
    (ack,) = request(pair, 101, Op.SEND)
    assert ack.syndrome == Syndrome.ACK
    assert len(pair.b.completions(pair.qb)) == 1


def test_an_atomic_that_comes_again_is_answered_once_after_a_lap_of_the_sequence() -> None:
    """Four messages of 2^22 packets, and the PSN is that of an atomic again."""
    pair = Pair().connect(rtr={"msg_max": 31})
    target, add = addition(pair)
    request(pair, 100, Op.FETCH_ADD, **add)
    for number in range(4):
        request(pair, 101 + (number << 22) & 0xFFFFFF, packets=(1 << 22) - (number == 3))
    request(pair, 100, Op.FETCH_ADD, **add)
    (again,) = request(pair, 100, Op.FETCH_ADD, **add)
    assert again.atomic_original == 1
    assert pair.b.host.peek(target, 8) == b"\2" + bytes(7)


def test_results_of_atomics_are_kept_as_long_as_their_requests_may_come_again() -> None:
    pair = Pair().connect(rtr={"rra_max": 1})
    _, add = addition(pair)
    for psn in (100, 101, 102):
        request(pair, psn, Op.FETCH_ADD, **add)
    assert request(pair, 100, Op.FETCH_ADD, **add) == []
    for psn in (101, 102):
        (again,) = request(pair, psn, Op.FETCH_ADD, **add)
        assert again.atomic_original == psn - 100


READS = pytest.mark.parametrize(
    ("opcode", "operands"),
    [(SendOpcode.RDMA_READ, b""), (SendOpcode.ATOMIC_FA, (1).to_bytes(8, "big") + bytes(8))],
)


def post_reads(pair: Pair, count: int, opcode: SendOpcode, operands: bytes, **how: bool) -> int:
    """Reads or atomics behind one doorbell; the address of the peer's memory."""
    local, key = pair.a.memory(4096)
    target, rkey = pair.b.memory(4096)
    segments = remote(target, rkey) + operands + data((key, local, 8))
    for _ in range(count):
        pair.post_send(opcode, segments, ring=False, **how)
    pair.a.doorbell(pair.qa.qpn)
    return target


@READS
def test_more_reads_and_atomics_at_once_than_the_responder_takes_are_refused(
    opcode: SendOpcode, operands: bytes
) -> None:
    pair = Pair().connect(rtr={"rra_max": 1}, rts={"sra_max": 2})
    target = post_reads(pair, 4, opcode, operands)
    invalid, flushed = CompletionStatus.REMOTE_INVAL_REQ_ERR, CompletionStatus.WR_FLUSH_ERR
    assert pair.sent() == [0, 0, invalid, flushed]
    assert pair.b.events(EventType.WQ_INVALID_REQUEST)
    assert pair.b.host.peek(target, 1)[0] == (2 if operands else 0)


@READS
@pytest.mark.parametrize("how", ["limit", "fence", "doorbells"])
def test_reads_and_atomics_that_wait_for_each_other_are_answered(
    opcode: SendOpcode, operands: bytes, how: str
) -> None:
    pair = Pair().connect(rtr={"rra_max": 1}, rts={"sra_max": 1 if how == "limit" else 4})
    doorbells = 8 if how == "doorbells" else 1
    for _ in range(doorbells):
        post_reads(pair, 8 // doorbells, opcode, operands, fence=how == "fence")
    assert pair.sent() == [0] * 8


def test_sequence_error_sends_again_what_is_pending() -> None:
    pair = Pair().connect()
    pair.b.command(Opcode.CLOSE_PORT, modifier=1)
    pair.post_send(SendOpcode.RDMA_WRITE, remote(0, 0))  # lost
    pair.b.command(Opcode.INIT_PORT, modifier=1)
    pair.post_send(SendOpcode.RDMA_WRITE, remote(0, 0))
    assert pair.sent() == []
    pair.run(0.01)
    assert pair.sent() == [0, 0]
    assert times(pair, Fact.SEQUENCE_ERROR) == 1


def test_an_answer_gives_all_retries_back() -> None:
    """A connection that loses a message now and then goes on for ever: 2 retries, 6 losses."""
    pair = Pair().connect(rts={"retry_count": 2})
    for _ in range(6):
        pair.b.command(Opcode.CLOSE_PORT, modifier=1)
        pair.post_send(SendOpcode.RDMA_WRITE, remote(0, 0))
        pair.b.command(Opcode.INIT_PORT, modifier=1)
        pair.run(0.1)
        assert pair.sent() == [0]
    assert [told["retry"] for told in pair.a.host.facts(Fact.NO_ANSWER)] == [1] * 6


def test_what_is_sent_again_goes_once_in_order_and_without_a_gap() -> None:
    """More than one batch: a responder would mend a gap, by a NAK and all of it once more."""
    pair = Pair(log_sq=6).connect()
    sent: list[int] = []

    def see(source: FabricPort, message: Message) -> bool:
        if isinstance(message, Request):
            sent.append(message.psn)
        return True

    count = 2 * BATCH + 3
    pair.b.command(Opcode.CLOSE_PORT, modifier=1)
    for _ in range(count):
        pair.post_send(SendOpcode.RDMA_WRITE, remote(0, 0))
    pair.b.command(Opcode.INIT_PORT, modifier=1)
    pair.watched.watch = see
    pair.run(0.1)
    assert sent == list(range(100, 100 + count))
    assert pair.sent() == [0] * count
    assert times(pair, Fact.SEQUENCE_ERROR) == 0


def test_nothing_is_sent_again_behind_a_request_whose_memory_is_gone() -> None:
    pair = Pair().connect()
    local, key = pair.a.memory(4096)
    sent: list[int] = []

    def lose(source: FabricPort, message: Message) -> bool:
        if isinstance(message, Request):
            sent.append(message.psn)
        return False

    pair.watched.watch = lose
    for segments in (b"", data((key, local, 4)), b""):
        pair.post_send(SendOpcode.RDMA_WRITE, remote(0, 0) + segments)
    pair.a.command(Opcode.HW2SW_MPT, modifier=key >> 8, op_modifier=1)
    pair.run(0.1)
    assert sent == [100, 101, 102, 100]


def test_requests_that_wait_do_not_overtake_what_is_sent_again() -> None:
    """The first read's answer makes room for the second one; the write in between goes first."""
    pair = Pair().connect(rts={"sra_max": 0, "retry_count": 7})
    local, key = pair.a.memory(4096)
    target, rkey = pair.b.memory(4096)
    segments = remote(target, rkey) + data((key, local, 4))
    pair.b.command(Opcode.CLOSE_PORT, modifier=1)
    pair.post_send(SendOpcode.RDMA_READ, segments)
    pair.post_send(SendOpcode.RDMA_WRITE, segments)
    pair.post_send(SendOpcode.RDMA_READ, segments)
    pair.b.command(Opcode.INIT_PORT, modifier=1)
    pair.run(0.1)
    assert pair.sent() == [0, 0, 0]
    assert times(pair, Fact.SEQUENCE_ERROR) == 0


def test_error_flushes_everything_posted_before_and_after() -> None:
    pair = Pair().connect()
    inbox, key = pair.b.memory(4096)
    for _ in range(3):
        pair.post_recv([(key, inbox, 8)])
    pair.b.command(Opcode.TOERR_QP, bytes(8), pair.qb.qpn)
    flushed = pair.b.completions(pair.qb)
    assert [(wc.status, wc.send) for wc in flushed] == [(CompletionStatus.WR_FLUSH_ERR, False)] * 3
    pair.post_recv([(key, inbox, 8)])  # no doorbell tells of it
    assert pair.b.statuses(pair.qb) == []
    pair.run(0.005)
    assert pair.b.statuses(pair.qb) == [CompletionStatus.WR_FLUSH_ERR]
    pair.b.post_send(pair.qb, SendOpcode.RDMA_WRITE, remote(0, 0), signalled=False)
    (sent,) = pair.b.completions(pair.qb)
    assert (sent.status, sent.send, sent.index) == (CompletionStatus.WR_FLUSH_ERR, True, 0)


def test_reset_is_final() -> None:
    pair = Pair().connect()
    inbox, key = pair.b.memory(4096)
    pair.b.command(Opcode.TOERR_QP, bytes(8), pair.qb.qpn)
    pair.b.command(Opcode.TORST_QP, modifier=pair.qb.qpn, op_modifier=2)
    pair.b.command(Opcode.TORST_QP, modifier=pair.qb.qpn, op_modifier=2)
    pair.post_recv([(key, inbox, 8)])
    pair.b.post_send(pair.qb, SendOpcode.SEND, inline(b"x"))
    pair.run(0.02)
    assert pair.b.completions(pair.qb) == []
    assert pair.b.host.timers == 0
    assert pair.b.state(pair.qb) == QpState.RST


def test_reset_with_requests_outstanding_completes_nothing() -> None:
    pair = Pair().connect()
    pair.post_send(SendOpcode.SEND, inline(b"x"))  # waits: no receive
    pair.a.command(Opcode.TORST_QP, modifier=pair.qa.qpn, op_modifier=2)
    pair.run(0.3)
    assert pair.a.completions(pair.qa) == []
    assert pair.a.host.timers == 0


def test_many_entries_are_flushed_in_portions() -> None:
    pair = Pair(log_cq=13).connect()
    pair.b.host.poke(pair.qb.record, (5000).to_bytes(4, "big"))  # a producer that jumped
    pair.b.command(Opcode.TOERR_QP, bytes(8), pair.qb.qpn)
    first = len(pair.b.completions(pair.qb))
    assert 0 < first <= 256
    pair.run(0.01)
    assert first + len(pair.b.completions(pair.qb)) == 5000


def test_requests_wait_in_rtr_until_rts() -> None:
    pair = Pair().connect()
    late = pair.a.create_qp(0x260)
    other = pair.b.create_qp(0x261)
    pair.b.to_rtr(other, pair.a, late.qpn)
    pair.a.to_rtr(late, pair.b, other.qpn)
    pair.a.post_send(late, SendOpcode.RDMA_WRITE, remote(0, 0))
    assert pair.a.completions(late) == []
    pair.a.to_rts(late)
    assert pair.a.statuses(late) == [0]


def test_fence_and_registration_wait_for_reads() -> None:
    """With B's link down the read stays out, so nothing behind the fence may start."""
    pair = Pair().connect(rts={"retry_count": 7})
    local, key = pair.a.memory(4096)
    target, rkey = pair.b.memory(4096)
    pair.b.command(Opcode.CLOSE_PORT, modifier=1)
    pair.post_send(SendOpcode.RDMA_READ, remote(target, rkey) + data((key, local, 4)))
    pair.post_send(SendOpcode.RDMA_WRITE, remote(target, rkey) + data((key, local, 4)), fence=True)
    requester = pair.a.adapter.qps.get(pair.qa.qpn)
    assert requester is not None
    outstanding = requester.engine.outstanding()
    assert outstanding is not None and len(outstanding.entries) == 1
    pair.b.host.poke(target, b"data")
    pair.b.command(Opcode.INIT_PORT, modifier=1)
    pair.run(0.1)
    assert pair.sent() == [0, 0]
    assert pair.a.host.peek(local, 4) == b"data"


def test_drain_stops_sending_and_tells() -> None:
    pair = Pair().connect()
    pair.a.command(Opcode.RTS2SQD_QP, bytes(8 + 248), pair.qa.qpn | 1 << 31)
    assert pair.a.events(EventType.SQ_DRAINED)
    pair.post_send(SendOpcode.RDMA_WRITE, remote(0, 0))
    assert pair.sent() == []
    pair.a.command(Opcode.SQD2RTS_QP, bytes(8 + 248), pair.qa.qpn)
    assert pair.sent() == [0]


def test_drain_waits_for_what_is_outstanding() -> None:
    pair = Pair().connect()
    target, rkey = pair.b.memory(4096)
    pair.b.command(Opcode.CLOSE_PORT, modifier=1)
    pair.post_send(SendOpcode.RDMA_WRITE, remote(target, rkey) + inline(b"late"))
    pair.a.command(Opcode.RTS2SQD_QP, bytes(8 + 248), pair.qa.qpn | 1 << 31)
    assert pair.a.state(pair.qa) == QpState.SQDRAINING
    assert not pair.a.events(EventType.SQ_DRAINED)
    pair.b.command(Opcode.INIT_PORT, modifier=1)
    pair.run(0.1)
    assert pair.a.events(EventType.SQ_DRAINED)
    assert pair.a.state(pair.qa) == QpState.SQD
    assert pair.sent() == [0]


def test_transitions_from_wrong_states_are_refused() -> None:
    pair = Pair()
    for opcode in (Opcode.RTR2RTS_QP, Opcode.RTS2RTS_QP, Opcode.SQD2RTS_QP, Opcode.RST2INIT_QP):
        status, _ = pair.a.try_command(opcode, bytes(8 + 248), pair.qa.qpn)
        assert status == Status.BAD_QP_STATE
    status, _ = pair.a.try_command(Opcode.INIT2RTR_QP, bytes(8 + 248), 0x777)
    assert status == Status.BAD_QP_STATE


def test_optional_parameters_change_what_they_name_only() -> None:
    pair = Pair().connect()
    pair.a.modify(
        pair.qa, Opcode.RTS2RTS_QP, 1 << Par.RNR_TIMEOUT | 1 << Par.RWE, min_rnr_timer=9, qkey=5
    )
    context = pair.a.query(Opcode.QUERY_QP, pair.qa.qpn)[8:]
    assert QPC.get(context, "min_rnr_timer") == 9
    assert QPC.get(context, "remote_write") == 0
    assert QPC.get(context, "remote_read") == 1
    assert QPC.get(context, "qkey") == 0
    assert QPC.get(context, "pri_ack_timeout") == 14
    assert QPC.get(context, "pri_link_type") == 1
