"""Protection of queue pairs: memory they may not reach, and packets of strangers."""

from __future__ import annotations

from struct import pack

import pytest

from bluebridge.device.fabric.messages import Request, Response, Route
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.mlx4.commands import SetPort
from bluebridge.device.layout.mlx4.contexts import ROCE_MODE_V2, QpState, ServiceType
from bluebridge.device.layout.mlx4.cqe import CompletionStatus
from bluebridge.device.layout.mlx4.eqe import EventType
from bluebridge.device.layout.net.roce import Op, Syndrome
from bluebridge.device.rdma.memory.region import Rights
from tests.models.packet_pair import PacketPair
from tests.models.rdma_node import Node, Pair, SendOpcode, data, inline, remote
from tests.unit.rdma.test_qp_datagram import ProPair

READ = int(Rights.LOCAL_READ)
LOCAL = READ | int(Rights.LOCAL_WRITE)
PATTERN = b"\xa5" * 4096


def check_remote(pair: Pair, status: int, event: int | None) -> None:
    """The requester sees `status`, both queue pairs fail, B's receives are flushed."""
    assert pair.sent() == [status]
    assert pair.a.state(pair.qa) == QpState.ERR
    assert pair.b.state(pair.qb) == QpState.ERR
    if event is not None:
        (told,) = pair.b.events(event)
        assert isinstance(told["data"], bytes)
        assert told["data"][:4] == pair.qb.qpn.to_bytes(4, "big")


@pytest.mark.parametrize("fault", ["key byte", "pd", "below", "above", "wrap", "right", "unknown"])
@pytest.mark.parametrize("operation", [SendOpcode.RDMA_WRITE, SendOpcode.RDMA_READ])
def test_remote_access_violation(fault: str, operation: SendOpcode) -> None:
    pair = Pair().connect()
    source, key = pair.a.memory(4096)
    more = {"pd": {"pd": 9}, "right": {"rights": LOCAL}}.get(fault, {})
    target, rkey = pair.b.memory(4096, **more)
    pair.a.host.poke(source, PATTERN)
    pair.b.host.poke(target, PATTERN[::-1])
    inbox, inbox_key = pair.b.memory(4096)
    pair.post_recv([(inbox_key, inbox, 64)])
    address, used = {
        "key byte": (target, rkey ^ 1),
        "below": (target - 1, rkey),
        "above": (target + 4093, rkey),
        "wrap": ((1 << 64) - 2, rkey),
        "unknown": (target, 0x7FFF00),
    }.get(fault, (target, rkey))
    pair.post_send(operation, remote(address, used) + data((key, source, 4)))
    check_remote(pair, CompletionStatus.REMOTE_ACCESS_ERR, EventType.WQ_ACCESS_ERROR)
    assert pair.b.statuses(pair.qb) == [CompletionStatus.WR_FLUSH_ERR]
    assert pair.a.host.peek(source, 4096) == PATTERN
    assert pair.b.host.peek(target, 4096) == PATTERN[::-1]


def test_atomic_without_the_right_and_unaligned() -> None:
    access = CompletionStatus.REMOTE_ACCESS_ERR, EventType.WQ_ACCESS_ERROR
    request = CompletionStatus.REMOTE_INVAL_REQ_ERR, EventType.WQ_INVALID_REQUEST
    for offset, rights, told in ((0, LOCAL | int(Rights.REMOTE_WRITE), access), (4, None, request)):
        pair = Pair().connect()
        local, key = pair.a.memory(4096)
        target, rkey = pair.b.memory(4096, rights)
        segments = remote(target + offset, rkey) + pack(">QQ", 1, 0) + data((key, local, 8))
        pair.post_send(SendOpcode.ATOMIC_FA, segments)
        check_remote(pair, *told)
        assert pair.b.host.peek(target, 16) == bytes(16)


def test_message_longer_than_the_receive() -> None:
    pair = Pair().connect()
    source, key = pair.a.memory(4096)
    target, rkey = pair.b.memory(4096)
    pair.a.host.poke(source, PATTERN)
    pair.post_recv([(rkey, target, 10)])
    pair.post_recv([(rkey, target, 100)])
    pair.post_send(SendOpcode.SEND, data((key, source, 11)))
    check_remote(pair, CompletionStatus.REMOTE_INVAL_REQ_ERR, None)
    assert pair.b.statuses(pair.qb) == [
        CompletionStatus.LOCAL_LENGTH_ERR,
        CompletionStatus.WR_FLUSH_ERR,
    ]
    assert pair.b.host.peek(target, 16) == bytes(16)


def test_invalidation_of_a_key_that_is_not_valid_moves_nothing() -> None:
    pair = Pair().connect()
    source, key = pair.a.memory(4096)
    target, rkey = pair.b.memory(4096)
    pair.a.host.poke(source, PATTERN)
    pair.post_recv([(rkey, target, 64)])
    pair.post_send(SendOpcode.SEND_INVAL, data((key, source, 8)), immediate=0x123400)
    check_remote(pair, CompletionStatus.REMOTE_ACCESS_ERR, EventType.WQ_ACCESS_ERROR)
    assert pair.b.host.peek(target, 16) == bytes(16)


def test_zero_length_write_needs_no_key() -> None:
    pair = Pair().connect()
    pair.post_send(SendOpcode.RDMA_WRITE, remote(0, 0))
    assert pair.sent() == [0]


def test_failure_comes_after_what_was_posted_before() -> None:
    pair = Pair().connect(rts={"rnr_retry": 7})
    source, key = pair.a.memory(4096)
    target, rkey = pair.b.memory(4096)
    pair.post_send(SendOpcode.SEND, data((key, source, 4)))  # waits: no receive
    pair.post_send(SendOpcode.RDMA_WRITE, remote(target, rkey) + data((1, 0, 4)))
    assert pair.sent() == []
    pair.post_recv([(rkey, target, 64)])
    pair.run(0.01)
    assert pair.sent() == [0, CompletionStatus.LOCAL_PROT_ERR]


@pytest.mark.parametrize("also_memory", [False, True])
@pytest.mark.parametrize(
    ("opcode", "operands"), [(SendOpcode.RDMA_READ, b""), (SendOpcode.ATOMIC_FA, bytes(16))]
)
def test_inline_data_cannot_be_where_an_answer_goes(
    opcode: SendOpcode, operands: bytes, also_memory: bool
) -> None:
    """Nothing is asked of the peer, and no success is told of data that is nowhere."""
    pair = Pair().connect()
    local, key = pair.a.memory(4096)
    target, rkey = pair.b.memory(4096)
    pair.a.host.poke(local, PATTERN)
    segments = remote(target, rkey) + operands + inline(b"four")
    segments += data((key, local, 4)) if also_memory else inline(b"more")
    pair.post_send(opcode, segments)
    assert pair.sent() == [CompletionStatus.LOCAL_QP_OP_ERR]
    assert pair.a.state(pair.qa) == QpState.ERR
    assert pair.b.state(pair.qb) == QpState.RTS
    assert pair.a.host.peek(local, 4096) == PATTERN
    assert pair.b.host.peek(target, 16) == bytes(16)


RAMP = bytes(range(64))


@pytest.mark.parametrize("service", [ServiceType.RC, ServiceType.UC])
def test_request_of_a_third_node_moves_nothing(service: int) -> None:
    """The same queue pair number, the PSN that is expected and the right key, but not the peer."""
    pair = Pair(service).connect()
    third = Node("c", 3, pair.fabric)
    evil = third.create_qp(pair.qa.qpn, service)
    third.to_rtr(evil, pair.b, pair.qb.qpn)
    third.to_rts(evil, retry_count=1)
    target, rkey = pair.b.memory(4096)
    pair.b.host.poke(target, RAMP)
    pair.post_recv([(rkey, target, 64)])
    third.post_send(evil, SendOpcode.RDMA_WRITE, remote(target, rkey) + inline(b"evil"))
    third.post_send(evil, SendOpcode.SEND, inline(b"evil"))
    third.host.run(1)
    assert pair.b.host.peek(target, 64) == RAMP
    assert pair.b.completions(pair.qb) == []
    assert pair.b.state(pair.qb) == QpState.RTS
    told = pair.b.host.facts(Fact.FOREIGN_MESSAGE)[0]
    assert (told["mac"], told["reason"]) == ("02:00:00:00:0a:03", "not its peer")
    if service == ServiceType.RC:
        assert third.statuses(evil)[0] == CompletionStatus.TRANSPORT_RETRY_EXC_ERR
    # the connection goes on where it was
    pair.post_send(SendOpcode.SEND, inline(b"good"))
    assert pair.b.host.peek(target, 4) == b"good"


def test_response_of_a_third_node_completes_nothing() -> None:
    pair = Pair().connect()
    third = Node("c", 3, pair.fabric)
    local, key = pair.a.memory(4096)
    pair.post_send(SendOpcode.SEND, data((key, local, 4)))  # waits: no receive
    route = Route(third.mac, pair.a.mac, third.gid, pair.a.gid)
    for syndrome in (Syndrome.ACK, Syndrome.NAK_REMOTE_ACCESS):
        pair.fabric.send(third.port, Response(route, pair.qa.qpn, 100, syndrome))
    assert pair.sent() == []
    assert pair.a.state(pair.qa) == QpState.RTS


def test_an_answer_of_another_length_completes_no_read() -> None:
    """From the peer itself: what its read asked for is 8 bytes, neither 4 nor 12."""
    for length in (4, 12):
        pair = Pair().connect()
        pair.watched.watch = lambda _, message: not isinstance(message, Request)
        local, key = pair.a.memory(4096)
        segments = remote(0x1000, 0x100) + data((key, local, 8))
        pair.post_send(SendOpcode.RDMA_READ, segments)
        route = Route(pair.b.mac, pair.a.mac, pair.b.gid, pair.a.gid)
        answer = Response(route, pair.qa.qpn, 100, Syndrome.ACK, 1, [memoryview(bytes(length))])
        pair.a.host.poke(local, RAMP)
        pair.fabric.send(pair.b.port, answer)
        assert pair.sent() == [CompletionStatus.BAD_RESP_ERR]
        assert pair.a.host.peek(local, 64) == RAMP


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
    assert 1 < len(pair.b.host.facts(Fact.FOREIGN_MESSAGE)) < 110


@pytest.mark.parametrize("network", [ProPair, PacketPair], ids=["messages", "packets"])
@pytest.mark.parametrize("version", [1, 2])
def test_a_peer_of_the_other_version_of_roce_is_not_reached(
    network: type[Pair], version: int
) -> None:
    """Neither side takes the other's frames, which differ in Ethertype and UDP port."""
    pair = network()
    qa, qb = pair.a.create_qp(0x260), pair.b.create_qp(0x261)
    modes = {1: {}, 2: {"roce_mode": ROCE_MODE_V2}}
    pair.a.to_rtr(qa, pair.b, qb.qpn, **modes[version])
    pair.b.to_rtr(qb, pair.a, qa.qpn, **modes[3 - version])
    pair.a.to_rts(qa, pri_ack_timeout=10, retry_count=1)
    pair.b.to_rts(qb)
    target, rkey = pair.b.memory(4096)
    pair.a.post_send(qa, SendOpcode.RDMA_WRITE, remote(target, rkey) + inline(b"wrong"))
    pair.run(0.5)
    assert pair.a.statuses(qa) == [CompletionStatus.TRANSPORT_RETRY_EXC_ERR]
    assert pair.b.host.peek(target, 5) == bytes(5)
    told = pair.b.host.facts(Fact.FOREIGN_MESSAGE)[0]
    assert told["reason"] == f"RoCE v{version}, not v{3 - version}"


def test_a_message_for_another_gid_of_the_port_is_not_the_connections() -> None:
    pair = Pair().connect()
    target, rkey = pair.b.memory(4096)
    other = bytes(15) + b"\x09"
    pair.b.set_port(SetPort.GID_TABLE, (pair.b.gid + other).ljust(2048, b"\0"))
    route = Route(pair.a.mac, pair.b.mac, pair.a.gid, other)
    evil = [memoryview(bytearray(b"evil"))]
    pair.fabric.send(
        pair.a.port,
        Request(Op.WRITE, route, pair.qa.qpn, pair.qb.qpn, 100, 1, 4, evil, target, rkey),
    )
    assert pair.b.host.peek(target, 4) == bytes(4)
