"""XRC: a connection that reaches every SRQ of a domain, with the rights of that SRQ."""

from __future__ import annotations

import pytest

from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.contexts import SRQC, ServiceType
from bluebridge.device.layout.mlx4.cqe import CompletionStatus
from bluebridge.device.layout.mlx4.eqe import EventType
from bluebridge.device.layout.mlx4.wqe import INVALID_LKEY
from tests.models.hca_driver import Ring
from tests.models.rdma_node import PD, Node, Pair, SendOpcode, TestQp, inline, remote
from tests.models.rdma_node import data as segments

DOMAIN = 7
OTHER_PD = PD + 4
XRC_BIT = 1 << 23
SRQN = 0x40


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
    for srqn in (SRQN, SRQN + 1):
        queue = xrc.srq(srqn)
        boxes[srqn], key = xrc.b.memory(4096, pd=OTHER_PD)
        xrc.b.post_srq(queue, 0, [(key, boxes[srqn], 64), (INVALID_LKEY, 0, 0)])
    for srqn, text in ((SRQN + 1, b"second"), (SRQN, b"first!")):
        assert xrc.send(srqn, SendOpcode.SEND_IMM, inline(text), immediate=9) == 0
        assert xrc.b.host.peek(boxes[srqn], 6) == text
        (raw,) = xrc.b.poll_cq(xrc.cqs[srqn])
        numbers = [int.from_bytes(raw[at : at + 4], "big") & 0xFFFFFF for at in (0, 4, 8)]
        assert numbers == [xrc.target.qpn, 9, srqn]


def test_one_sided_requests_use_the_protection_domain_of_the_srq() -> None:
    xrc = Xrc()
    xrc.srq(SRQN)
    target, rkey = xrc.b.memory(4096, pd=OTHER_PD)
    assert xrc.send(SRQN, SendOpcode.RDMA_WRITE, remote(target, rkey) + inline(b"write")) == 0
    assert xrc.b.host.peek(target, 5) == b"write"
    inbox, lkey = xrc.a.memory(4096)
    body = remote(target, rkey) + segments((lkey, inbox, 5))
    assert xrc.send(SRQN, SendOpcode.RDMA_READ, body) == 0
    assert xrc.a.host.peek(inbox, 5) == b"write"
    foreign, rkey = xrc.b.memory(4096, pd=PD + 1)
    assert xrc.send(SRQN, SendOpcode.RDMA_WRITE, remote(foreign, rkey) + inline(b"no")) == (
        CompletionStatus.REMOTE_ACCESS_ERR
    )


@pytest.mark.parametrize("which", ["another domain", "no SRQ"])
def test_srqs_outside_of_the_domain_are_out_of_reach(which: str) -> None:
    xrc = Xrc()
    queue = xrc.srq(SRQN, DOMAIN + 1)
    box, key = xrc.b.memory(4096, pd=OTHER_PD)
    xrc.b.post_srq(queue, 0, [(key, box, 64), (INVALID_LKEY, 0, 0)])
    srqn = SRQN if which == "another domain" else 0x7777
    assert xrc.send(srqn, SendOpcode.SEND, inline(b"no")) == CompletionStatus.REMOTE_INVAL_REQ_ERR
    assert xrc.b.events(EventType.WQ_INVALID_REQUEST)
    assert xrc.b.host.peek(box, 2) == bytes(2)


def test_a_receive_that_is_too_short_fails_on_the_cq_of_the_srq() -> None:
    xrc = Xrc()
    queue = xrc.srq(SRQN)
    box, key = xrc.b.memory(4096, pd=OTHER_PD)
    xrc.b.post_srq(queue, 0, [(key, box, 2), (INVALID_LKEY, 0, 0)])
    assert (
        xrc.send(SRQN, SendOpcode.SEND, inline(b"too long"))
        == CompletionStatus.REMOTE_INVAL_REQ_ERR
    )
    (raw,) = xrc.b.poll_cq(xrc.cqs[SRQN])
    assert raw[0x1B] == CompletionStatus.LOCAL_LENGTH_ERR
