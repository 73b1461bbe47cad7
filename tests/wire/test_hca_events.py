"""Completion events: arming, solicited events, channels and their vectors."""

from __future__ import annotations

import select

import pytest

from bluebridge.guest.drivers.hca.context import Context
from bluebridge.guest.verbs import CompletionQueue, QpInit, QpType, WcStatus, WrOpcode
from tests.wire.players import Player, connected, settle

OK = WcStatus.SUCCESS


@pytest.fixture
def pair(contexts: tuple[Context, Context]) -> tuple[Player, Player]:
    """Two connected players."""
    return connected(*contexts)


def event(player: Player, timeout: float = 2.0) -> CompletionQueue | None:
    """The next completion event."""
    return player.channel.get_event(timeout)


def test_one_event_for_many(pair: tuple[Player, Player]) -> None:
    a, b = pair
    b.cq.req_notify()
    for _ in range(4):
        b.receive()
    for _ in range(4):
        a.send(WrOpcode.SEND, [a.sge(0, 1)])
    a.expect(OK, OK, OK, OK)
    assert event(b) is b.cq
    assert event(b, 0.02) is None
    b.expect(OK, OK, OK, OK)


def test_descriptor_stays_readable(pair: tuple[Player, Player]) -> None:
    """Two CQs on one channel: after the first event the second still shows."""
    a, b = pair
    second = b.ctx.create_cq(8, b.channel)
    other = Player(b.ctx)
    other_init_cq, other.cq = other.cq, second
    other.qp.destroy()
    other_init_cq.destroy()
    other.qp = other.pd.create_qp(QpInit(QpType.RC, second, second, 4, 4))
    peer = Player(a.ctx)
    peer.connect(other)
    other.connect(peer)
    b.receive()
    other.receive()
    b.cq.req_notify()
    second.req_notify()
    a.send(WrOpcode.SEND, [a.sge(0, 1)])
    peer.send(WrOpcode.SEND, [peer.sge(0, 1)])
    a.expect(OK)
    peer.expect(OK)
    settle(b)
    fd = b.channel.fileno()
    seen = []
    for _ in range(2):
        assert select.select([fd], [], [], 2)[0]
        seen.append(event(b, 0))
    assert set(seen) == {b.cq, second}
    assert event(b, 0) is None
    assert not select.select([fd], [], [], 0)[0]


def test_vectors_are_separate(contexts: tuple[Context, Context]) -> None:
    a, b = connected(*contexts)
    bystander = Player(contexts[1])
    bystander.cq.req_notify()
    b.cq.req_notify()
    b.receive()
    a.send(WrOpcode.SEND, [a.sge(0, 1)])
    assert event(b) is b.cq
    assert not select.select([bystander.channel.fileno()], [], [], 0)[0]
