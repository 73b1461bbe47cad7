"""Receives that queue pairs share: SRQ and XRC."""

from __future__ import annotations

import pytest

from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.contexts import SRQC, ServiceType
from bluebridge.device.layout.mlx4.cqe import CompletionStatus
from bluebridge.device.layout.mlx4.eqe import EventType
from bluebridge.device.layout.mlx4.wqe import INVALID_LKEY
from tests.models.hca_driver import Ring
from tests.models.rdma_node import PD, Node, Pair, SendOpcode, TestQp, inline, remote
from tests.models.rdma_node import data as segments

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
        pair.post_send(SendOpcode.SEND, inline(b"%d" % slot))
    got = pair.b.completions(pair.qb)
    assert [wc.index for wc in got] == [0, 1, 2]
    assert pair.b.host.peek(inbox, 33)[::16] == b"012"
    pair.post_send(SendOpcode.SEND, inline(b"3"))  # none left: RNR
    assert pair.sent() == [0, 0, 0]
    pair.b.post_srq(srq, 3, [(key, inbox, 16)])
    pair.run(0.01)
    assert pair.sent() == [0]


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
    pair.post_send(SendOpcode.SEND, inline(b"x"))
    assert not pair.b.events(EventType.SRQ_LIMIT)
    pair.post_send(SendOpcode.SEND, inline(b"x"))
    assert len(pair.b.events(EventType.SRQ_LIMIT)) == 1
    pair.post_send(SendOpcode.SEND, inline(b"x"))
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


DOMAIN = 7
OTHER_PD = PD + 4
XRC_BIT = 1 << 23
XRC_SRQN = 0x40


class Xrc:
    """A's initiator, B's target, and SRQs of B's in the domain; they belong to another PD."""

    def __init__(self) -> None:
        self.pair = Pair()
        self.a, self.b = self.pair.a, self.pair.b
        self.initiator = self.a.create_qp(0x300, ServiceType.XRC, doorbell_record=0)
        self.target = self.b.create_qp(
            XRC_BIT | 0x301, ServiceType.XRC, doorbell_record=0, xrcd=DOMAIN, pd=PD + 1
        )
        self.a.to_rtr(self.initiator, self.b, self.target.qpn)
        self.b.to_rtr(self.target, self.a, self.initiator.qpn)
        self.a.to_rts(self.initiator)
        self.cqs: dict[int, Ring] = {}

    def srq(self, srqn: int, domain: int = DOMAIN) -> TestQp:
        """An SRQ with a CQ of its own."""
        self.cqs[srqn] = self.b.cq()
        return create_srq(self.b, srqn, domain, self.cqs[srqn].number)

    def send(self, srqn: int, opcode: SendOpcode, body: bytes, **more: int) -> int:
        """One request for an SRQ; the initiator's status."""
        self.a.post_send(self.initiator, opcode, body, srqn=srqn, **more)  # type: ignore[arg-type]
        self.pair.run(0.01)
        (wc,) = self.a.completions(self.initiator)
        return wc.status


def create_srq(node: Node, srqn: int, domain: int, cqn: int) -> TestQp:
    """SW2HW_SRQ of an XRC SRQ."""
    srq = node.create_srq(srqn, pd=OTHER_PD, xrcd=domain, cqn=cqn)
    context = SRQC.unpack(node.query(Opcode.QUERY_SRQ, srqn))
    assert (context["xrcd"], context["cqn"]) == (domain, cqn)
    return srq


def test_each_request_finds_its_srq() -> None:
    xrc = Xrc()
    boxes = {}
    for srqn in (XRC_SRQN, XRC_SRQN + 1):
        queue = xrc.srq(srqn)
        boxes[srqn], key = xrc.b.memory(4096, pd=OTHER_PD)
        xrc.b.post_srq(queue, 0, [(key, boxes[srqn], 64), (INVALID_LKEY, 0, 0)])
    for srqn, text in ((XRC_SRQN + 1, b"second"), (XRC_SRQN, b"first!")):
        assert xrc.send(srqn, SendOpcode.SEND_IMM, inline(text), immediate=9) == 0
        assert xrc.b.host.peek(boxes[srqn], 6) == text
        (raw,) = xrc.b.poll_cq(xrc.cqs[srqn])
        numbers = [int.from_bytes(raw[at : at + 4], "big") & 0xFFFFFF for at in (0, 4, 8)]
        assert numbers == [xrc.target.qpn, 9, srqn]


def test_one_sided_requests_use_the_protection_domain_of_the_srq() -> None:
    xrc = Xrc()
    xrc.srq(XRC_SRQN)
    target, rkey = xrc.b.memory(4096, pd=OTHER_PD)
    assert xrc.send(XRC_SRQN, SendOpcode.RDMA_WRITE, remote(target, rkey) + inline(b"write")) == 0
    assert xrc.b.host.peek(target, 5) == b"write"
    inbox, lkey = xrc.a.memory(4096)
    body = remote(target, rkey) + segments((lkey, inbox, 5))
    assert xrc.send(XRC_SRQN, SendOpcode.RDMA_READ, body) == 0
    assert xrc.a.host.peek(inbox, 5) == b"write"
    foreign, rkey = xrc.b.memory(4096, pd=PD + 1)
    assert xrc.send(XRC_SRQN, SendOpcode.RDMA_WRITE, remote(foreign, rkey) + inline(b"no")) == (
        CompletionStatus.REMOTE_ACCESS_ERR
    )


@pytest.mark.parametrize("which", ["another domain", "no SRQ"])
def test_srqs_outside_of_the_domain_are_out_of_reach(which: str) -> None:
    xrc = Xrc()
    queue = xrc.srq(XRC_SRQN, DOMAIN + 1)
    box, key = xrc.b.memory(4096, pd=OTHER_PD)
    xrc.b.post_srq(queue, 0, [(key, box, 64), (INVALID_LKEY, 0, 0)])
    srqn = XRC_SRQN if which == "another domain" else 0x7777
    assert xrc.send(srqn, SendOpcode.SEND, inline(b"no")) == CompletionStatus.REMOTE_INVAL_REQ_ERR
    assert xrc.b.events(EventType.WQ_INVALID_REQUEST)
    assert xrc.b.host.peek(box, 2) == bytes(2)


def test_a_receive_that_is_too_short_fails_on_the_cq_of_the_srq() -> None:
    xrc = Xrc()
    queue = xrc.srq(XRC_SRQN)
    box, key = xrc.b.memory(4096, pd=OTHER_PD)
    xrc.b.post_srq(queue, 0, [(key, box, 2), (INVALID_LKEY, 0, 0)])
    assert (
        xrc.send(XRC_SRQN, SendOpcode.SEND, inline(b"too long"))
        == CompletionStatus.REMOTE_INVAL_REQ_ERR
    )
    (raw,) = xrc.b.poll_cq(xrc.cqs[XRC_SRQN])
    assert raw[0x1B] == CompletionStatus.LOCAL_LENGTH_ERR
