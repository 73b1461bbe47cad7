"""A third HCA that knows every number of a connection still has no part in it."""

from __future__ import annotations

import pytest

from bluebridge.device.fabric.messages import Request, Response, Route
from bluebridge.device.layout.mlx4.contexts import QpState, ServiceType
from bluebridge.device.layout.mlx4.cqe import CompletionStatus
from bluebridge.device.layout.net.operations import Op, Syndrome
from tests.models.rdma_node import Node, Pair, SendOpcode, data, inline, remote
from tests.unit.rdma.test_qp_protection import state, statuses

PATTERN = bytes(range(64))


@pytest.mark.parametrize("service", [ServiceType.RC, ServiceType.UC])
def test_request_of_a_third_node_moves_nothing(service: int) -> None:
    """The same queue pair number, the PSN that is expected and the right key, but not the peer."""
    pair = Pair(service).connect()
    third = Node("c", 3, pair.fabric)
    evil = third.create_qp(pair.qa.qpn, service)
    third.to_rtr(evil, pair.b, pair.qb.qpn)
    third.to_rts(evil, retry_count=1)
    target, rkey = pair.b.memory(4096)
    pair.b.host.poke(target, PATTERN)
    pair.b.post_recv(pair.qb, [(rkey, target, 64)])
    third.post_send(evil, SendOpcode.RDMA_WRITE, remote(target, rkey) + inline(b"evil"))
    third.post_send(evil, SendOpcode.SEND, inline(b"evil"))
    third.host.run(1)
    assert pair.b.host.peek(target, 64) == PATTERN
    assert pair.b.completions(pair.qb) == []
    assert state(pair.b, pair.qb) == QpState.RTS
    told = [text for _, text, _ in pair.b.host.notes if "not its peer" in text]
    assert "02:00:00:00:0a:03" in told[0]
    if service == ServiceType.RC:
        assert statuses(third, evil)[0] == CompletionStatus.TRANSPORT_RETRY_EXC_ERR
    # the connection goes on where it was
    pair.a.post_send(pair.qa, SendOpcode.SEND, inline(b"good"))
    assert pair.b.host.peek(target, 4) == b"good"


def test_response_of_a_third_node_completes_nothing() -> None:
    pair = Pair().connect()
    third = Node("c", 3, pair.fabric)
    local, key = pair.a.memory(4096)
    pair.a.post_send(pair.qa, SendOpcode.SEND, data((key, local, 4)))  # waits: no receive
    route = Route(third.mac, pair.a.mac, third.gid, pair.a.gid)
    for syndrome in (Syndrome.ACK, Syndrome.NAK_REMOTE_ACCESS):
        pair.fabric.send(third.port, Response(route, pair.qa.qpn, 100, syndrome))
    assert statuses(pair.a, pair.qa) == []
    assert state(pair.a, pair.qa) == QpState.RTS


def test_an_answer_of_another_length_completes_no_read() -> None:
    """From the peer itself: what its read asked for is 8 bytes, neither 4 nor 12."""
    for length in (4, 12):
        pair = Pair().connect()
        pair.watched.watch = lambda _, message: not isinstance(message, Request)
        local, key = pair.a.memory(4096)
        segments = remote(0x1000, 0x100) + data((key, local, 8))
        pair.a.post_send(pair.qa, SendOpcode.RDMA_READ, segments)
        route = Route(pair.b.mac, pair.a.mac, pair.b.gid, pair.a.gid)
        answer = Response(route, pair.qa.qpn, 100, Syndrome.ACK, 1, [memoryview(bytes(length))])
        pair.a.host.poke(local, PATTERN)
        pair.fabric.send(pair.b.port, answer)
        assert statuses(pair.a, pair.qa) == [CompletionStatus.BAD_RESP_ERR]
        assert pair.a.host.peek(local, 64) == PATTERN


def test_address_alone_or_gid_alone_is_not_the_peer() -> None:
    pair = Pair().connect()
    third = Node("c", 3, pair.fabric)
    target, rkey = pair.b.memory(4096)
    for smac, sgid in ((pair.a.mac, third.gid), (third.mac, pair.a.gid)):
        route = Route(smac, pair.b.mac, sgid, pair.b.gid)
        pair.fabric.send(
            third.port,
            Request(
                Op.WRITE, route, pair.qa.qpn, pair.qb.qpn, 100, 1, 4,
                [memoryview(bytearray(b"evil"))], target, rkey,
            ),
        )  # fmt: skip
    assert pair.b.host.peek(target, 4) == bytes(4)


def test_a_flood_of_strangers_does_not_fill_the_log() -> None:
    pair = Pair().connect()
    third = Node("c", 3, pair.fabric)
    route = Route(third.mac, pair.b.mac, third.gid, pair.b.gid)
    for _ in range(1000):
        pair.fabric.send(third.port, Request(Op.WRITE, route, 1, pair.qb.qpn, 100, 1, 0))
    told = sum("not its peer" in text for _, text, _ in pair.b.host.notes)
    assert 1 < told < 110
