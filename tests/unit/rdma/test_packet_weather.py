"""Reliable connections over links that lose, delay and repeat: each request is carried out once."""

from __future__ import annotations

import pytest

from bluebridge.device.layout.mlx4.cqe import CompletionStatus as CqeStatus
from bluebridge.device.layout.mlx4.eqe import EventType
from bluebridge.device.layout.net.roce import PSN_MASK, BthOpcode, Op, Syndrome
from bluebridge.device.packets.transport import TransportPacket
from bluebridge.device.rdma.connected.packet_receiver import request_of as unit_of
from bluebridge.device.rdma.connected.requester import KEEP, STOP, Limits
from bluebridge.device.rdma.connected.responder import MOST_ANSWERS, PACKET_COST, Responder
from bluebridge.device.rdma.vocabulary import CompletionStatus
from tests.models.faulty_pair import Links
from tests.models.long_messages import LongPair
from tests.models.rdma_node import Pair, SendOpcode, inline
from tests.world import seeds
from tests.world.connection import (
    CALM,
    MTU,
    READABLE,
    Link,
    Remote,
    Weather,
    lost_once,
    replay,
    request_of,
    run,
)

SEEDS = 1000


@pytest.mark.worlds
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS // 4))
def test_weather(first: int) -> None:
    """The promises of verbs hold whatever happens to frames; the ICRC catches most damage.

    They hold for messages and their parts, too.
    """
    some = range(first, first + SEEDS // 4)
    happened = seeds.each("connection", replay, some)
    assert sum(each["of them found by the ICRC"] for each in happened) > len(happened)
    assert all(each["messages"] for each in happened)
    assert sum(each["page faults"] for each in happened) > len(happened)


def test_icrc_by_scapy() -> None:
    """An independent implementation computes the same ICRC for every packet of a run."""
    roce = pytest.importorskip("scapy.contrib.roce")
    ether = pytest.importorskip("scapy.layers.l2").Ether
    frames = run(3).frames
    assert len(frames) > 20
    for frame in frames:
        packet = ether(frame)
        bth = packet[roce.BTH]
        end = 14 + packet["IP"].len
        body = bytes(frame[42 : end - 4])
        assert bth.compute_icrc(body) == frame[end - 4 : end]


def test_answers_count_messages_in_the_order_in_which_they_go_out() -> None:
    """A request that comes while a READ is being answered is counted behind those answers."""
    link = Link(0, CALM)
    psn = link.responder.expected
    read = TransportPacket(
        BthOpcode.RC_READ_REQUEST, psn, va=READABLE, rkey=5, length=2 * MTU, ack=True
    )
    write = TransportPacket(
        BthOpcode.RC_WRITE_ONLY, psn + 2 & PSN_MASK, bytes(4), rkey=5, length=4, ack=True
    )
    link.ask(read)
    answers = link.answers(1)
    link.ask(write)
    answers += link.answers(9)
    assert [(each.psn - psn & PSN_MASK, each.msn) for each in answers] == [(0, 1), (1, 1), (2, 2)]


def test_requests_wait_while_many_answers_are_due() -> None:
    """Execution is never far ahead of its answers, and little is carried out in one turn."""
    link, count, burst = Link(0, CALM), 1000, 32
    responder, psn, va = link.responder, link.responder.expected, READABLE * 2 - 8
    memory = link.remote.memory
    before = int.from_bytes(memory[va : va + 8], "little")

    def done() -> int:
        return int.from_bytes(memory[va : va + 8], "little") - before

    for number in range(count):
        link.ask(
            TransportPacket(
                BthOpcode.RC_FETCH_ADD, psn + number & PSN_MASK, va=va, rkey=5, operand=1
            )
        )
    assert done() == MOST_ANSWERS
    assert responder.held == (count - MOST_ANSWERS) * PACKET_COST
    answered = 0
    while responder.busy:
        earlier = done()
        answered += len(link.answers(burst))
        assert done() - earlier <= burst
    assert answered == done() == count
    assert responder.held == 0


def test_packets_arrive_as_runs() -> None:
    """Packets of a burst that are in the middle of a message are one unit, in weather, too."""
    assert max(run(seed).longest_run for seed in range(2, 20, 3)) > 5


def test_a_run_that_came_in_part_goes_on_behind_it() -> None:
    link = Link(0, CALM)
    psn, payloads = link.responder.expected, [bytes((number,)) * MTU for number in range(4)]

    def ask(opcode: BthOpcode, first: int, last: int) -> None:
        link.ask(
            TransportPacket(
                opcode, psn + first & PSN_MASK, payloads[first], va=0, rkey=5, length=6 * MTU,
                more=payloads[first + 1 : last],
            )
        )  # fmt: skip

    ask(BthOpcode.RC_WRITE_FIRST, 0, 1)
    ask(BthOpcode.RC_WRITE_MIDDLE, 1, 2)
    ask(BthOpcode.RC_WRITE_MIDDLE, 1, 4)
    assert link.responder.expected == psn + 4 & PSN_MASK
    assert link.remote.memory[: 4 * MTU] == b"".join(payloads)


def test_go_back_n() -> None:
    """After a lost packet the sequence NAK brings it and all behind it again, old PSNs."""
    link = Link(0, CALM)
    lost_once(link, 1)
    link.post(request_of(0, Op.WRITE, 5 * MTU))
    link.clock.run_all()
    places = [packet.psn - link.sent[0].psn & PSN_MASK for packet in link.sent]
    assert places == [0, 1, 2, 3, 4, 1, 2, 3, 4]
    assert link.ended < 0.001, "no time-out was needed"
    assert link.completed == [(0, None)]


def test_read_goes_on_in_the_middle() -> None:
    """After a lost response a read asks for the rest only."""
    link = Link(0, CALM)
    lost_once(link, 3)  # the request, then two responses
    link.post(request_of(0, Op.READ, 5 * MTU, va=READABLE))
    link.clock.run_all()
    first, again = link.sent
    assert (again.psn - first.psn & PSN_MASK, again.va, again.length) == (
        2, READABLE + 2 * MTU, 3 * MTU,
    )  # fmt: skip
    assert link.completed == [(0, None)]
    assert link.results[0] == link.remote.memory[READABLE : READABLE + 5 * MTU]


def test_atomic_is_answered_again_not_carried_out_again() -> None:
    """A lost answer to an atomic comes from what the responder kept."""
    link = Link(0, CALM)
    lost_once(link, 1)
    va = READABLE * 2 - 8
    before = int.from_bytes(link.remote.memory[va : va + 8], "little")
    link.post(request_of(0, Op.FETCH_ADD, 8, va=va, operands=(1, 0)))
    link.clock.run_all()
    assert int.from_bytes(link.results[0], "little") == before
    assert int.from_bytes(link.remote.memory[va : va + 8], "little") == before + 1


def test_duplicate_is_acknowledged() -> None:
    """A lost acknowledgement of a SEND comes again for a duplicate, which is not carried out."""
    link = Link(0, CALM)
    lost_once(link, 1)
    link.remote.receives = 2
    link.post(request_of(0, Op.SEND, 9))
    link.clock.run_all()
    assert link.completed == [(0, None)]
    assert len(link.remote.arrived) == 1


def test_time_outs() -> None:
    """A dead link fails a request after retries at 4.096 us * 2^n each, and flushes the rest."""
    link = Link(0, Weather(1, 0, 0, 0), Limits(mtu=MTU, timeout=10, retries=3))
    for number in range(2):
        link.post(request_of(number, Op.SEND, 1))
    link.clock.run_all()
    assert link.ended == pytest.approx(4 * 4.096e-6 * 1024)
    assert link.completed == [
        (0, CompletionStatus.TRANSPORT_RETRY_EXC_ERR),
        (1, CompletionStatus.WR_FLUSH_ERR),
    ]


def test_receiver_not_ready() -> None:
    """Without receives, a sender waits the time it is told, as often as its count says."""
    link = Link(0, CALM, Limits(mtu=MTU, rnr_retries=2))
    link.post(request_of(0, Op.SEND, 3 * MTU))
    link.clock.run_all()
    assert link.ended > 2 * 640e-6
    assert link.completed == [(0, CompletionStatus.RNR_RETRY_EXC_ERR)]


def test_order_of_opcodes() -> None:
    """A MIDDLE without a FIRST is refused, and nothing after it is taken."""
    link = Link(0, CALM)
    responder = link.responder
    for code in (BthOpcode.RC_WRITE_MIDDLE, BthOpcode.RC_WRITE_ONLY):
        link.ask(TransportPacket(code, responder.expected, bytes(MTU), ack=True))
    (answer,) = link.answers(9)
    assert answer.syndrome == Syndrome.NAK_INVALID_REQUEST
    assert responder.failed


def test_acknowledgements_are_joined() -> None:
    """Acknowledgements that come due while answers wait leave as one packet, of the last PSN."""
    link = Link(0, CALM)
    first = link.responder.expected
    for place in range(3):
        link.ask(
            TransportPacket(BthOpcode.RC_WRITE_ONLY, first + place & PSN_MASK, ack=True, rkey=5)
        )
    (answer,) = link.answers(9)
    assert (answer.psn, answer.msn) == (first + 2 & PSN_MASK, 3)


def test_timer_is_set_once_for_a_flight() -> None:
    """The timer starts with the first packet, not with each."""
    link = Link(0, CALM)
    timers = []
    for number in range(3):
        link.requester.post(request_of(number, Op.WRITE, MTU))
        assert link.requester.next_unit() is not None
        timers.append(link.requester.watch())
    assert timers[0] > 0 and timers[1:] == [KEEP, KEEP]
    link.requester.receive(link.requester.oldest, 3, 0, brings=False)
    assert link.requester.watch() == STOP


@pytest.mark.parametrize("words", [
    "drop opcode=WRITE skip=1 count=1",
    "drop kind=response skip=1 count=1",
    "duplicate opcode=WRITE",
    "duplicate 3 kind=request,response",
    "delay 80 opcode=WRITE skip=1 count=1",
])  # fmt: skip
@pytest.mark.parametrize("opcode", [SendOpcode.RDMA_WRITE, SendOpcode.RDMA_READ, SendOpcode.SEND])
def test_a_long_message_survives_the_loss_of_a_part(words: str, opcode: SendOpcode) -> None:
    """A part that is late by more than the timeout of 67 ms is sent again, and taken once."""
    pair = LongPair(rq_shift=6).connect()
    name = {SendOpcode.RDMA_READ: "READ", SendOpcode.SEND: "SEND"}.get(opcode, "WRITE")
    pair.receive()
    if opcode is SendOpcode.RDMA_READ:
        pair.target[:], pair.source[:] = pair.source[:], bytes(len(pair.source))
    rule = Links(pair).rule("a/1", words.replace("WRITE", name))
    pair.post(opcode)
    pair.run(0.5)
    assert pair.sent() == [0]
    assert pair.source[: pair.length] == pair.target[: pair.length]
    receives = [wc.length for wc in pair.b.completions(pair.qb)]
    assert receives == ([pair.length] if opcode is SendOpcode.SEND else [])
    assert rule.taken


def test_a_dead_link_is_the_requesters_error_and_the_port_stays_up() -> None:
    pair = Pair().connect()
    rule = Links(pair).rule("b/1", "drop")
    pair.post_send(SendOpcode.SEND, inline(b"x"))
    pair.run(0.3)
    assert pair.sent() == [CqeStatus.TRANSPORT_RETRY_EXC_ERR]
    assert pair.a.port.link_up and pair.b.port.link_up
    assert not pair.a.events(EventType.PORT_CHANGE)[1:]
    assert rule.taken == 3  # the first try and two more


def test_the_rest_of_a_dropped_message_of_uc_is_dropped_in_silence() -> None:
    """A line in the log for each of its packets would let a peer push all others out."""
    remote_side = Remote()
    responder = Responder(MTU, 0, remote_side, reliable=False)
    middle = [BthOpcode.RC_SEND_MIDDLE] * 8
    for psn, opcode in enumerate([BthOpcode.RC_SEND_FIRST, *middle, BthOpcode.RC_SEND_LAST]):
        responder.receive(unit_of(TransportPacket(opcode, psn, bytes(MTU)), MTU))
        assert responder.refusal is None
    remote_side.receives = 1
    responder.receive(unit_of(TransportPacket(BthOpcode.RC_SEND_ONLY, 10, b"whole"), MTU))
    assert [message for _, message, _ in remote_side.arrived] == [b"whole"]
