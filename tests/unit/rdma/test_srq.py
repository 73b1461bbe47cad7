"""Shared receive queues: entries in the order of the list, limit and last-entry events."""

from __future__ import annotations

from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.contexts import SRQC
from bluebridge.device.layout.mlx4.eqe import EventType
from tests.models.rdma_node import Pair, SendOpcode, TestQp, inline
from tests.unit.rdma.test_qp_protection import statuses

SRQN = 0x42


def pair_with_srq() -> tuple[Pair, TestQp]:
    """B takes its receives from an SRQ."""
    pair = Pair()
    srq = pair.b.create_srq(SRQN)
    pair.qb = pair.b.create_qp(0x277, use_srq=1, srqn=SRQN, doorbell_record=0)
    return pair.connect(), srq


def test_entries_follow_the_list() -> None:
    pair, srq = pair_with_srq()
    inbox, key = pair.b.memory(4096)
    for slot in range(3):
        pair.b.post_srq(srq, slot, [(key, inbox + 16 * slot, 16)])
    for slot in range(3):
        pair.a.post_send(pair.qa, SendOpcode.SEND, inline(b"%d" % slot))
    got = pair.b.completions(pair.qb)
    assert [wc.index for wc in got] == [0, 1, 2]
    assert pair.b.host.peek(inbox, 33)[::16] == b"012"
    pair.a.post_send(pair.qa, SendOpcode.SEND, inline(b"3"))  # none left: RNR
    assert statuses(pair.a, pair.qa) == [0, 0, 0]
    pair.b.post_srq(srq, 3, [(key, inbox, 16)])
    pair.run(0.01)
    assert statuses(pair.a, pair.qa) == [0]


def test_many_entries_at_once_are_as_many_as_are_posted() -> None:
    pair, srq = pair_with_srq()
    inbox, key = pair.b.memory(4096)
    for slot in range(3):
        pair.b.post_srq(srq, slot, [(key, inbox + 16 * slot, 16)])
    queue = pair.b.adapter.srqs.get(SRQN)
    assert queue is not None
    assert [entry.index for entry in queue.take_many(2)] == [0, 1]
    assert [entry.sges for entry in queue.take_many(5)] == [[(key, inbox + 32, 16)]]
    assert queue.take_many(1) == []


def test_limit_and_last_entry_events() -> None:
    pair, srq = pair_with_srq()
    inbox, key = pair.b.memory(4096)
    for slot in range(3):
        pair.b.post_srq(srq, slot, [(key, inbox, 16)])
    pair.b.command(Opcode.ARM_SRQ, 2, SRQN)
    assert SRQC.get(pair.b.query(Opcode.QUERY_SRQ, SRQN), "limit_watermark") == 2
    pair.a.post_send(pair.qa, SendOpcode.SEND, inline(b"x"))
    assert not pair.b.events(EventType.SRQ_LIMIT)
    pair.a.post_send(pair.qa, SendOpcode.SEND, inline(b"x"))
    assert len(pair.b.events(EventType.SRQ_LIMIT)) == 1
    pair.a.post_send(pair.qa, SendOpcode.SEND, inline(b"x"))
    assert not pair.b.events(EventType.SRQ_LIMIT)
    pair.b.command(Opcode.TOERR_QP, bytes(8), pair.qb.qpn)
    (event,) = pair.b.events(EventType.SRQ_QP_LAST_WQE)
    assert isinstance(event["data"], bytes)
    assert event["data"][:4] == pair.qb.qpn.to_bytes(4, "big")


def test_commands_on_queues_that_do_not_exist() -> None:
    pair = Pair()
    for opcode in (Opcode.QUERY_SRQ, Opcode.ARM_SRQ):
        assert pair.b.try_command(opcode, 1, 0x99, out=True)[0] == Status.BAD_INDEX
    pair.b.command(Opcode.HW2SW_SRQ, modifier=0x99, op_modifier=1)
    pair.b.create_srq(SRQN)
    status, _ = pair.b.try_command(Opcode.SW2HW_SRQ, bytes(64), SRQN)
    assert status == Status.BAD_RES_STATE
    pair.b.command(Opcode.HW2SW_SRQ, modifier=SRQN, op_modifier=1)
    assert pair.b.try_command(Opcode.ARM_SRQ, 1, SRQN)[0] == Status.BAD_INDEX


def test_a_queue_that_is_taken_back_leaves_its_context_where_there_is_a_mailbox() -> None:
    """Address 0 is memory of the guest as well, and no mailbox."""
    pair = Pair()
    pair.b.host.map(0, 4096)
    pair.b.create_srq(SRQN)
    pair.b.command(Opcode.HW2SW_SRQ, modifier=SRQN)
    assert not any(pair.b.host.peek(0, 4096))
    pair.b.create_srq(SRQN)
    assert any(pair.b.query(Opcode.HW2SW_SRQ, SRQN))
