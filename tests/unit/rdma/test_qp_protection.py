"""Protection: a violation gives the right NAK and statuses, error states, and moves no byte."""

from __future__ import annotations

from struct import pack

import pytest

from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.contexts import QPC, QpState
from bluebridge.device.layout.mlx4.cqe import CompletionStatus
from bluebridge.device.layout.mlx4.eqe import EventType
from bluebridge.device.rdma.memory.rights import Rights
from tests.models.rdma_node import Node, Pair, SendOpcode, data, inline, remote
from tests.models.rdma_node import TestQp as Qp

READ = int(Rights.LOCAL_READ)
LOCAL = READ | int(Rights.LOCAL_WRITE)
PATTERN = b"\xa5" * 4096


def state(node: Node, qp: Qp) -> int:
    """The state QUERY_QP shows."""
    return QPC.get(node.query(Opcode.QUERY_QP, qp.qpn)[8:], "state")


def statuses(node: Node, qp: Qp) -> list[int]:
    """Statuses of new completions."""
    return [wc.status for wc in node.completions(qp)]


def check_remote(pair: Pair, status: int, event: int | None) -> None:
    """The requester sees `status`, both queue pairs fail, B's receives are flushed."""
    assert statuses(pair.a, pair.qa) == [status]
    assert state(pair.a, pair.qa) == QpState.ERR
    assert state(pair.b, pair.qb) == QpState.ERR
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
    pair.b.post_recv(pair.qb, [(inbox_key, inbox, 64)])
    address, used = {
        "key byte": (target, rkey ^ 1),
        "below": (target - 1, rkey),
        "above": (target + 4093, rkey),
        "wrap": ((1 << 64) - 2, rkey),
        "unknown": (target, 0x7FFF00),
    }.get(fault, (target, rkey))
    pair.a.post_send(pair.qa, operation, remote(address, used) + data((key, source, 4)))
    check_remote(pair, CompletionStatus.REMOTE_ACCESS_ERR, EventType.WQ_ACCESS_ERROR)
    assert statuses(pair.b, pair.qb) == [CompletionStatus.WR_FLUSH_ERR]
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
        pair.a.post_send(pair.qa, SendOpcode.ATOMIC_FA, segments)
        check_remote(pair, *told)
        assert pair.b.host.peek(target, 16) == bytes(16)


def test_message_longer_than_the_receive() -> None:
    pair = Pair().connect()
    source, key = pair.a.memory(4096)
    target, rkey = pair.b.memory(4096)
    pair.a.host.poke(source, PATTERN)
    pair.b.post_recv(pair.qb, [(rkey, target, 10)])
    pair.b.post_recv(pair.qb, [(rkey, target, 100)])
    pair.a.post_send(pair.qa, SendOpcode.SEND, data((key, source, 11)))
    check_remote(pair, CompletionStatus.REMOTE_INVAL_REQ_ERR, None)
    assert statuses(pair.b, pair.qb) == [
        CompletionStatus.LOCAL_LENGTH_ERR,
        CompletionStatus.WR_FLUSH_ERR,
    ]
    assert pair.b.host.peek(target, 16) == bytes(16)


def test_invalidation_of_a_key_that_is_not_valid_moves_nothing() -> None:
    pair = Pair().connect()
    source, key = pair.a.memory(4096)
    target, rkey = pair.b.memory(4096)
    pair.a.host.poke(source, PATTERN)
    pair.b.post_recv(pair.qb, [(rkey, target, 64)])
    pair.a.post_send(pair.qa, SendOpcode.SEND_INVAL, data((key, source, 8)), immediate=0x123400)
    check_remote(pair, CompletionStatus.REMOTE_ACCESS_ERR, EventType.WQ_ACCESS_ERROR)
    assert pair.b.host.peek(target, 16) == bytes(16)


def test_zero_length_write_needs_no_key() -> None:
    pair = Pair().connect()
    pair.a.post_send(pair.qa, SendOpcode.RDMA_WRITE, remote(0, 0))
    assert statuses(pair.a, pair.qa) == [0]


def test_failure_comes_after_what_was_posted_before() -> None:
    pair = Pair().connect(rts={"rnr_retry": 7})
    source, key = pair.a.memory(4096)
    target, rkey = pair.b.memory(4096)
    pair.a.post_send(pair.qa, SendOpcode.SEND, data((key, source, 4)))  # waits: no receive
    pair.a.post_send(pair.qa, SendOpcode.RDMA_WRITE, remote(target, rkey) + data((1, 0, 4)))
    assert statuses(pair.a, pair.qa) == []
    pair.b.post_recv(pair.qb, [(rkey, target, 64)])
    pair.run(0.01)
    assert statuses(pair.a, pair.qa) == [0, CompletionStatus.LOCAL_PROT_ERR]


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
    pair.a.post_send(pair.qa, opcode, segments)
    assert statuses(pair.a, pair.qa) == [CompletionStatus.LOCAL_QP_OP_ERR]
    assert state(pair.a, pair.qa) == QpState.ERR
    assert state(pair.b, pair.qb) == QpState.RTS
    assert pair.a.host.peek(local, 4096) == PATTERN
    assert pair.b.host.peek(target, 16) == bytes(16)
