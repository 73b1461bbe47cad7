"""Reliable connections over links that lose, delay and repeat: each request is carried out once."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from struct import pack, unpack

import pytest

from bluebridge.device.layout.mlx4.cqe import CompletionStatus as CqeStatus
from bluebridge.device.layout.mlx4.eqe import EventType
from bluebridge.device.layout.net.roce import PSN_MASK, BthOpcode, Op, Syndrome
from bluebridge.device.packets.transport import TransportPacket
from bluebridge.device.rdma.by_packets.requester import Limits, SetTimer
from bluebridge.device.rdma.by_packets.responder import (
    MOST_ANSWERS,
    PACKET_COST,
    PacketResponder,
)
from bluebridge.device.rdma.vocabulary import CompletionStatus
from tests.models.faulty_pair import Links
from tests.models.long_messages import LongPair
from tests.models.rdma_node import Pair, SendOpcode, Wc, data, inline, remote
from tests.world import seeds
from tests.world.packets import (
    CALM,
    MTU,
    READABLE,
    Link,
    Remote,
    Weather,
    lost_once,
    request_of,
    run,
)

WORK = 40
BATCH = 8
SLOTS = 8
SLOT = 64
COUNTER = 0x800
CONSTANT = 0x1000
"""Where in B's memory the counter of atomics is, and what nobody changes."""

KINDS = ("send", "write", "write with immediate", "read", "add")
DISTURBED = (CqeStatus.TRANSPORT_RETRY_EXC_ERR, CqeStatus.RNR_RETRY_EXC_ERR)


class Traffic:
    """`WORK` entries posted by A in batches; `sent` and `received` are the completions."""

    def __init__(self, pair: Pair, random: Random) -> None:
        self.pair, self._random = pair, random
        self._local, self._key = pair.a.memory(1 << 15)
        self._target, self._rkey = pair.b.memory(1 << 13)
        self._inbox, self._inbox_key = pair.b.memory(1 << 13)
        pair.b.host.poke(self._target + CONSTANT, random.randbytes(4096))
        self.kinds = [random.choice(KINDS) for _ in range(WORK)]
        self.sent: list[Wc] = []
        self.received: list[Wc] = []
        self._receives = 0

    def run(self, seconds: float = 3.0) -> None:
        """Post everything and wait for it, at most so long."""
        posted = 0
        while len(self.sent) < WORK and seconds > 0:
            while posted < WORK and posted - len(self.sent) < BATCH:
                self._post(posted)
                posted += 1
            self.pair.run(0.002)
            seconds -= 0.002
            self.sent += self.pair.a.completions(self.pair.qa)
            self.received += self.pair.b.completions(self.pair.qb)

    def _post(self, index: int) -> None:
        pair, kind = self.pair, self.kinds[index]
        slot = index % SLOTS
        at = remote(self._target + slot * SLOT, self._rkey)
        text = f"{index:06}".encode()
        local = data((self._key, self._local + index * SLOT, SLOT))
        if kind == "send":
            self._receive()
            pair.post_send(SendOpcode.SEND_IMM, inline(text), immediate=index)
        elif kind == "write":
            pair.post_send(SendOpcode.RDMA_WRITE, at + inline(text))
        elif kind == "write with immediate":
            self._receive()
            pair.post_send(SendOpcode.RDMA_WRITE_IMM, at + inline(text), immediate=index)
        elif kind == "read":
            at = remote(self._target + CONSTANT + index * SLOT, self._rkey)
            pair.post_send(SendOpcode.RDMA_READ, at + local)
        else:
            at = remote(self._target + COUNTER, self._rkey)
            local = data((self._key, self._local + index * SLOT, 8))
            pair.post_send(SendOpcode.ATOMIC_FA, at + pack(">QQ", 1, 0) + local)

    def _receive(self) -> None:
        place = self._inbox + self._receives * SLOT
        self.pair.b.post_recv(self.pair.qb, [(self._inbox_key, place, SLOT)])
        self._receives += 1

    # -- what is to be true of it -------------------------------------------------------------

    def check(self) -> bool:
        """Whether all arrived; otherwise the connection must have ended as it should."""
        done = sum(wc.status == 0 for wc in self.sent)
        assert [wc.index for wc in self.sent] == list(range(len(self.sent)))
        failed = [wc.status for wc in self.sent[done:]]
        assert done == WORK or failed[0] in DISTURBED
        assert all(status == CqeStatus.WR_FLUSH_ERR for status in failed[1:])
        self._check_receives(done)
        self._check_answers(done)
        if done == WORK:
            self._check_slots()
        return done == WORK

    def _check_receives(self, done: int) -> None:
        """Each message with a receive arrived once, in order, at least those that A knows of."""
        taking = [n for n, kind in enumerate(self.kinds) if kind in ("send", KINDS[2])]
        arrived = [wc.immediate for wc in self.received if wc.status == 0]
        assert arrived == taking[: len(arrived)]
        assert len(arrived) >= sum(n < done for n in taking)
        for place, index in enumerate(arrived):
            if self.kinds[index] == "send":
                text = self.pair.b.host.peek(self._inbox + place * SLOT, 6)
                assert text == f"{index:06}".encode()

    def _check_answers(self, done: int) -> None:
        """Reads brought what is there, and the n-th atomic found n."""
        host, added = self.pair.a.host, 0
        for index, kind in enumerate(self.kinds[:done]):
            got = host.peek(self._local + index * SLOT, SLOT)
            if kind == "read":
                place = self._target + CONSTANT + index * SLOT
                assert got == self.pair.b.host.peek(place, SLOT)
            elif kind == "add":
                assert unpack("<Q", got[:8]) == (added,)
                added += 1
        (counter,) = unpack("<Q", self.pair.b.host.peek(self._target + COUNTER, 8))
        assert added <= counter <= sum(kind == "add" for kind in self.kinds)
        assert done < WORK or counter == added

    def _check_slots(self) -> None:
        for slot in range(SLOTS):
            writers = [n for n in range(slot, WORK, SLOTS) if self.kinds[n] in KINDS[1:3]]
            expected = f"{writers[-1]:06}".encode() if writers else bytes(6)
            assert self.pair.b.host.peek(self._target + slot * SLOT, 6) == expected


SEEDS = 1000


def test_weather() -> None:
    """What the verbs promise holds whatever happens to frames; the ICRC catches most damage."""
    caught = seeds.each("packets", lambda seed: run(seed).icrc_errors, range(SEEDS))
    assert sum(caught) > len(caught)


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
    responder, psn = link.responder, link.responder.expected
    read = TransportPacket(
        BthOpcode.RC_READ_REQUEST, psn, va=READABLE, rkey=5, length=2 * MTU, ack=True
    )
    write = TransportPacket(
        BthOpcode.RC_WRITE_ONLY, psn + 2 & PSN_MASK, bytes(4), rkey=5, length=4, ack=True
    )
    responder.receive(read)
    answers = responder.answers(1)
    responder.receive(write)
    answers += responder.answers(9)
    assert [(each.psn - psn & PSN_MASK, each.msn) for each in answers] == [(0, 1), (1, 1), (2, 2)]


def test_requests_wait_while_many_answers_are_due() -> None:
    """What is carried out is never far ahead of its answers, and little of it in one turn."""
    link, count, burst = Link(0, CALM), 1000, 32
    responder, psn, va = link.responder, link.responder.expected, READABLE * 2 - 8
    memory = link.remote.memory
    before = int.from_bytes(memory[va : va + 8], "little")

    def done() -> int:
        return int.from_bytes(memory[va : va + 8], "little") - before

    for number in range(count):
        responder.receive(
            TransportPacket(
                BthOpcode.RC_FETCH_ADD, psn + number & PSN_MASK, va=va, rkey=5, operand=1
            )
        )
    assert done() == MOST_ANSWERS
    assert responder.held == (count - MOST_ANSWERS) * PACKET_COST
    answered = 0
    while responder.busy:
        earlier = done()
        answered += len(responder.answers(burst))
        assert done() - earlier <= burst
    assert answered == done() == count
    assert responder.held == 0


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
        responder.receive(TransportPacket(code, responder.expected, bytes(MTU), ack=True))
    (answer,) = responder.answers(9)
    assert answer.syndrome == Syndrome.NAK_INVALID_REQUEST
    assert responder.failed


def test_acknowledgements_are_joined() -> None:
    """What is acknowledged while answers wait leaves as one packet, of the last PSN."""
    link = Link(0, CALM)
    first = link.responder.expected
    for place in range(3):
        link.responder.receive(
            TransportPacket(BthOpcode.RC_WRITE_ONLY, first + place & PSN_MASK, ack=True, rkey=5)
        )
    (answer,) = link.responder.answers(9)
    assert (answer.psn, answer.msn) == (first + 2 & PSN_MASK, 3)


def test_timer_is_set_once_for_a_flight() -> None:
    """The timer starts with the first packet, not with each."""
    link = Link(0, CALM)
    for number in range(3):
        link.requester.post(request_of(number, Op.WRITE, MTU))
    timers = [action for action in link.requester.actions if isinstance(action, SetTimer)]
    assert len(timers) == 1
    assert all(one.psn != other.psn for one, other in pairwise(link.sent))


LINK_SEEDS = range(40)
TIMEOUT = 8
"""Of an acknowledgement: 4.096 us * 2^8, so 1 ms."""


def disturbed(seed: int) -> Traffic:
    """Traffic over links with rules that the seed chooses."""
    random = Random(seed)
    pair = Pair().connect(rts={"pri_ack_timeout": TIMEOUT, "retry_count": 7})
    links = Links(pair)
    for _ in range(random.randint(1, 4)):
        action = random.choice(["drop", "delay", "duplicate"])
        time = f" {random.choice([0, 0.4, 1.2, 3])}" if action != "drop" else ""
        link = random.choice(["a/1", "b/1"])
        direction = random.choice(["in", "out", "both"])
        chance = random.choice([0.02, 0.1, 0.3])
        words = f"{action}{time} direction={direction} probability={chance} seed={seed}"
        links.rule(link, words)
    traffic = Traffic(pair, random)
    traffic.run()
    return traffic


@pytest.mark.parametrize("seed", LINK_SEEDS)
def test_a_mix_arrives_once_and_in_order(seed: int) -> None:
    disturbed(seed).check()


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
    responder = PacketResponder(MTU, 0, remote_side, reliable=False)
    middle = [BthOpcode.RC_SEND_MIDDLE] * 8
    for psn, opcode in enumerate([BthOpcode.RC_SEND_FIRST, *middle, BthOpcode.RC_SEND_LAST]):
        responder.receive(TransportPacket(opcode, psn, bytes(MTU)))
        assert responder.refusal is None
    remote_side.receives = 1
    responder.receive(TransportPacket(BthOpcode.RC_SEND_ONLY, 10, b"whole"))
    assert [message for _, message, _ in remote_side.arrived] == [b"whole"]
