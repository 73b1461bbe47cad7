"""The CM state machine: two ends joined by a line that loses and repeats what a test says."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest

from bluebridge.device.layout.net.cm import CmAttribute, RejectReason
from bluebridge.guest.cm.connection import (
    MAX_RETRIES,
    RESEND_SECONDS,
    STALE_SECONDS,
    TIMEWAIT_SECONDS,
    CmConnection,
    Notice,
    State,
)
from bluebridge.guest.cm.interface import EventType, Peer
from bluebridge.guest.cm.messages import Message, decode

PEER = Peer(bytes(16), bytes(6))
REQUEST = {"local_qpn": 0x50, "starting_psn": 1}
REPLY = {"local_qpn": 0x60, "starting_psn": 2}


@dataclass
class Pair:
    """An active and a passive end, a clock, and the messages under way."""

    now: float = 0.0
    to_passive: list[Message] = field(default_factory=list)
    to_active: list[Message] = field(default_factory=list)
    active_news: list[Notice] = field(default_factory=list)
    passive_news: list[Notice] = field(default_factory=list)

    def __post_init__(self) -> None:
        def to_passive(mad: bytes, peer: Peer) -> None:
            self.to_passive.append(decode(mad))

        def to_active(mad: bytes, peer: Peer) -> None:
            self.to_active.append(decode(mad))

        def clock() -> float:
            return self.now

        self.active = CmConnection(1, 11, PEER, to_passive, clock, self.active_news.append)
        self.passive = CmConnection(2, 22, PEER, to_active, clock, self.passive_news.append)

    def requested(self) -> None:
        """Up to the REQ at the passive end."""
        self.active.connect(REQUEST)
        self.passive.requested(self.to_passive.pop())

    def established(self) -> None:
        """Up to both ends knowing it."""
        self.requested()
        self.passive.accept(REPLY)
        self.deliver()
        self.active.ready()
        self.deliver()
        assert (self.active.state, self.passive.state) == (State.ESTABLISHED, State.ESTABLISHED)

    def deliver(self) -> None:
        """Everything under way arrives."""
        while self.to_active or self.to_passive:
            if self.to_active:
                self.active.handle(self.to_active.pop(0))
            if self.to_passive:
                self.passive.handle(self.to_passive.pop(0))

    def lose(self) -> None:
        """Lose what is under way, and tell both ends that their peer is lost."""
        self.to_active.clear()
        self.to_passive.clear()
        self.active.peer_lost()
        self.passive.peer_lost()

    def wait(self, seconds: float) -> None:
        """Time passes; what is due happens."""
        self.now += seconds
        for end in (self.active, self.passive):
            if end.deadline is not None and end.deadline <= self.now:
                end.expire()


def kinds(news: list[Notice]) -> list[EventType]:
    """Return what was told."""
    return [notice.type for notice in news]


def test_connect_and_disconnect() -> None:
    """REQ, REP, RTU, DREQ, DREP, time-wait; ids and transaction as the kernel has them."""
    pair = Pair()
    pair.active.connect(REQUEST)
    request = pair.to_passive[0]
    assert (request.kind, request.tid, request["local_comm_id"]) == (CmAttribute.REQ, 11, 1)
    pair.passive.requested(pair.to_passive.pop())
    pair.passive.accept(REPLY)
    reply = pair.to_active[0]
    assert (reply.tid, reply["local_comm_id"], reply["remote_comm_id"]) == (11, 2, 1)
    pair.deliver()
    pair.active.ready()
    assert pair.to_passive[0]["remote_comm_id"] == 2
    pair.deliver()
    pair.active.disconnect()
    assert pair.to_passive[0]["remote_qpn"] == 0x60
    pair.deliver()
    assert pair.passive.state is State.DREQ_RECEIVED
    pair.passive.disconnect()
    pair.deliver()
    pair.wait(TIMEWAIT_SECONDS)
    assert kinds(pair.active_news) == [
        EventType.CONNECT_RESPONSE, EventType.DISCONNECTED, EventType.TIMEWAIT_EXIT,
    ]  # fmt: skip
    assert kinds(pair.passive_news) == [
        EventType.ESTABLISHED, EventType.DISCONNECTED, EventType.TIMEWAIT_EXIT,
    ]  # fmt: skip


def test_lost_request_is_repeated_until_it_is_hopeless() -> None:
    """MAX_RETRIES repetitions of the same bytes, then UNREACHABLE."""
    pair = Pair()
    pair.active.connect(REQUEST)
    for _ in range(MAX_RETRIES + 1):
        pair.wait(RESEND_SECONDS)
    assert len(pair.to_passive) == MAX_RETRIES + 1
    assert all(message == pair.to_passive[0] for message in pair.to_passive)
    assert [(n.type, n.status) for n in pair.active_news] == [(EventType.UNREACHABLE, -110)]
    assert pair.active.state is State.DEAD


def test_repeated_request_before_the_answer_asks_for_patience() -> None:
    """An MRA stops the requester from giving up."""
    pair = Pair()
    pair.requested()
    pair.wait(RESEND_SECONDS)
    pair.deliver()
    assert pair.active.deadline is not None and pair.active.deadline > pair.now + 60
    pair.passive.accept(REPLY)
    pair.deliver()
    assert kinds(pair.active_news) == [EventType.CONNECT_RESPONSE]


def test_lost_reply_and_lost_rtu_are_repeated() -> None:
    """The REQ brings the REP again, the REP brings the RTU again."""
    pair = Pair()
    pair.requested()
    pair.passive.accept(REPLY)
    pair.to_active.clear()
    pair.wait(RESEND_SECONDS)
    pair.deliver()
    pair.active.ready()
    pair.to_passive.clear()
    pair.wait(RESEND_SECONDS)
    pair.deliver()
    assert pair.passive.state is State.ESTABLISHED
    assert kinds(pair.passive_news) == [EventType.ESTABLISHED]
    assert kinds(pair.active_news) == [EventType.CONNECT_RESPONSE]


def test_reject() -> None:
    """The reason is the status, the private data comes along."""
    pair = Pair()
    pair.requested()
    pair.passive.reject(RejectReason.CONSUMER_DEFINED, b"not you")
    pair.deliver()
    (notice,) = pair.active_news
    assert (notice.type, notice.status) == (EventType.REJECTED, 28)
    assert notice.message is not None and notice.message.raw("private_data")[:7] == b"not you"
    assert pair.active.state is pair.passive.state is State.DEAD


def test_a_stale_request_is_told_when_the_old_connection_is_over() -> None:
    """Not before: the peer would refuse the next request, too."""
    pair = Pair()
    pair.requested()
    pair.passive.reject(RejectReason.STALE_CONNECTION)
    pair.deliver()
    pair.wait(STALE_SECONDS / 2)
    assert not pair.active_news
    pair.active.old_connection_over()
    assert [(n.type, n.status) for n in pair.active_news] == [(EventType.REJECTED, 10)]
    pair.active.old_connection_over()
    pair.wait(STALE_SECONDS)
    assert len(pair.active_news) == 1 and pair.active.deadline is None


def test_a_stale_request_is_told_in_the_end() -> None:
    """The peer's DREQ was lost: nobody waits for ever, and nothing is repeated."""
    pair = Pair()
    pair.requested()
    pair.passive.reject(RejectReason.STALE_CONNECTION)
    pair.deliver()
    pair.wait(STALE_SECONDS)
    assert [(n.type, n.status) for n in pair.active_news] == [(EventType.REJECTED, 10)]
    assert not pair.to_passive


def test_both_disconnect_at_once() -> None:
    """DREQs that cross."""
    pair = Pair()
    pair.established()
    pair.active.disconnect()
    pair.passive.disconnect()
    pair.deliver()
    assert kinds(pair.active_news)[-1] is EventType.DISCONNECTED
    assert kinds(pair.passive_news)[-1] is EventType.DISCONNECTED
    assert pair.active.state is pair.passive.state is State.TIMEWAIT


def test_disconnect_without_answer_ends_with_a_timeout() -> None:
    """The peer is gone: DISCONNECTED with -ETIMEDOUT."""
    pair = Pair()
    pair.established()
    pair.active.disconnect()
    for _ in range(MAX_RETRIES + 1):
        pair.wait(RESEND_SECONDS)
    assert (pair.active_news[-1].type, pair.active_news[-1].status) == (
        EventType.DISCONNECTED, -110,
    )  # fmt: skip


def test_repeated_dreq_in_time_wait_is_answered_again() -> None:
    """The DREP was lost."""
    pair = Pair()
    pair.established()
    pair.active.disconnect()
    pair.deliver()
    pair.passive.disconnect()
    pair.to_active.clear()
    pair.wait(RESEND_SECONDS / 2)
    pair.active.expire()
    pair.deliver()
    assert pair.active.state is State.TIMEWAIT


ENDINGS = {
    EventType.DISCONNECTED, EventType.UNREACHABLE, EventType.REJECTED, EventType.TIMEWAIT_EXIT,
}  # fmt: skip
PATIENCE = RESEND_SECONDS * (MAX_RETRIES + 2)


@pytest.mark.parametrize("seed", range(100))
def test_a_peer_that_is_lost_leaves_nobody_waiting(seed: int) -> None:
    """At any moment, with any message lost: each end hears of it, at once if it was connected."""
    order, pair = Random(seed), Pair()
    pair.active.connect(REQUEST)

    def answer() -> None:
        if pair.passive.state is State.IDLE and pair.to_passive:
            pair.passive.requested(pair.to_passive.pop(0))
        elif pair.passive.state is State.REQ_RECEIVED:
            pair.passive.accept(REPLY)

    def ready() -> None:
        if pair.active.state is State.REP_RECEIVED:
            pair.active.ready()

    steps = [
        answer, answer, ready, pair.deliver, pair.deliver, pair.to_active.clear,
        lambda: pair.wait(RESEND_SECONDS), pair.active.disconnect, pair.passive.disconnect,
    ]  # fmt: skip
    for step in order.choices(steps, k=order.randrange(12)):
        if step != pair.deliver or pair.passive.state is not State.IDLE:
            step()
        ready()
    connected = (State.ESTABLISHED, State.REP_SENT, State.DREQ_SENT)
    ends = (pair.active, pair.active_news), (pair.passive, pair.passive_news)
    at_once = [news for end, news in ends if end.state in connected]
    pair.lose()
    for news in at_once:
        assert (news[-1].type, news[-1].status) == (EventType.DISCONNECTED, -104)
    if pair.active.deadline is not None and pair.active.state is State.REQ_SENT:
        assert pair.active.deadline <= pair.now + RESEND_SECONDS
    for _ in range(int(PATIENCE / RESEND_SECONDS)):
        pair.wait(RESEND_SECONDS)
    assert ENDINGS & set(kinds(pair.active_news)) or pair.active.state is State.DREQ_RECEIVED
    assert pair.passive.state not in connected


def test_verbs_in_the_wrong_state_are_refused() -> None:
    """And send nothing."""
    pair = Pair()
    with pytest.raises(OSError, match="in state IDLE"):
        pair.active.accept(REPLY)
    with pytest.raises(OSError, match="in state IDLE"):
        pair.active.ready()
    pair.active.disconnect()
    assert not pair.to_passive and pair.active.state is State.IDLE
