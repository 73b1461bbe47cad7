"""Faults of work requests that are chosen by operation, type and connection, not by a number."""

from __future__ import annotations

import pytest

from bluebridge.device.layout.mlx4.contexts import ServiceType
from bluebridge.device.layout.mlx4.cqe import CompletionStatus
from bluebridge.device.layout.mlx4.eqe import EventType
from bluebridge.device.rdma.vocabulary import Role
from tests.models.rdma_node import Pair, SendOpcode, data, inline, remote
from tests.unit.mlx4.test_named_faults import arm, of, sends

ERROR, FLUSHED = CompletionStatus.REMOTE_ACCESS_ERR, CompletionStatus.WR_FLUSH_ERR
REFUSED = CompletionStatus.LOCAL_QP_OP_ERR


def test_the_first_message_of_a_connection_that_is_made_later_is_hit() -> None:
    pair = Pair()
    commands = of(pair.a)
    number = arm(commands, "wc-rem-access-err next-connection=1")
    assert commands.execute("armed a")[0] == (
        f"{number} a wc-rem-access-err of the next connection of RC, UC, XRC: matched 0, taken 0"
    )
    pair.connect()
    assert sends(pair, 2) == [ERROR, 0]
    assert f"of {pair.qa.qpn:#x}: matched 2, taken 1" in commands.execute("armed a")[0]


def test_only_one_connection_is_the_next() -> None:
    pair = Pair().connect()
    arm(of(pair.a), "hung-wr next-connection=1")
    assert sends(pair) == [0]
    second, other = pair.a.create_qp(0x800241), pair.b.create_qp(0x251)
    third, last = pair.a.create_qp(0x800242), pair.b.create_qp(0x252)
    pair.join(third, last)
    pair.join(second, other)
    for qp, peer in ((second, other), (third, last)):
        pair.b.post_recv(peer, [])
        pair.a.post_send(qp, SendOpcode.SEND)
    pair.run(0.01)
    assert (pair.a.statuses(third), pair.a.statuses(second), sends(pair)) == ([], [0], [0])


def test_a_fault_without_a_number_is_about_every_queue_pair_of_programs() -> None:
    pair = Pair()
    arm(of(pair.a), "wc-rem-access-err nth=2")
    pair.connect()
    assert sends(pair, 3) == [0, ERROR, 0]


@pytest.mark.parametrize(
    ("service", "types", "hit"),
    [
        (ServiceType.RC, "", True), (ServiceType.UC, "qp-type=UC", True),
        (ServiceType.UC, "qp-type=RC,UD", False), (ServiceType.RC, "qp-type=rc", True),
    ],
)  # fmt: skip
def test_the_type_of_a_queue_pair_is_a_condition(
    service: ServiceType, types: str, hit: bool
) -> None:
    pair = Pair(service)
    arm(of(pair.a), f"wc-rem-access-err {types}")
    pair.connect()
    assert sends(pair) == [ERROR if hit else 0]


def test_the_kernels_own_queue_pairs_are_spared_unless_they_are_named() -> None:
    pair = Pair()
    pair.a.hca.adapter.faults.role_of = lambda _qpn: Role.GSI
    commands = of(pair.a)
    number = arm(commands, "hung-wr")
    pair.connect()
    assert sends(pair) == [0]
    commands.execute(f"disarm a {number}")
    arm(commands, "hung-wr qp-type=GSI")
    assert sends(pair) == []


@pytest.mark.parametrize(
    ("name", "statuses"),
    [
        ("SEND", [ERROR, 0]), ("IBV_WR_SEND", [ERROR, 0]), ("RDMA_WRITE", [0, ERROR]),
        ("write", [0, ERROR]), ("RECV", [0, 0]), ("SEND_WITH_INV", [0, 0]),
    ],
)  # fmt: skip
def test_an_operation_is_a_condition_by_any_of_its_names(name: str, statuses: list[int]) -> None:
    pair = Pair()
    commands = of(pair.a)
    arm(commands, f"wc-rem-access-err opcode={name} count=9")
    pair.connect()
    target, rkey = pair.b.memory(4096)
    pair.post_recv([])
    pair.post_send(SendOpcode.SEND)
    pair.post_send(SendOpcode.RDMA_WRITE, remote(target, rkey) + inline(b"here"))
    pair.run(0.01)
    assert pair.sent() == statuses


def test_receives_are_an_operation_too() -> None:
    pair = Pair()
    arm(of(pair.b), "wc-rem-access-err opcode=RECV_RDMA_WITH_IMM")
    pair.connect()
    target, rkey = pair.b.memory(4096)
    for _ in range(2):
        pair.post_recv([])
    pair.post_send(SendOpcode.SEND)
    pair.post_send(SendOpcode.RDMA_WRITE_IMM, remote(target, rkey) + inline(b"here"))
    pair.run(0.01)
    assert pair.b.statuses(pair.qb) == [0, ERROR]


def test_an_operation_that_the_adapter_offers_and_cannot_carry_out() -> None:
    """The peer gets nothing, the queue pair is in ERR, as of a card that promises too much."""
    pair = Pair()
    commands = of(pair.a)
    number = arm(commands, "wr-unsupported opcode=SEND_WITH_INV")
    pair.connect()
    _, key = pair.b.memory(4096)
    assert sends(pair) == [0]
    assert [wc.status for wc in pair.b.completions(pair.qb)] == [0]
    source, lkey = pair.a.memory(4096)
    for _ in range(2):
        pair.post_recv([])
    pair.post_send(SendOpcode.SEND_INVAL, data((lkey, source, 4)), immediate=key)
    pair.post_send(SendOpcode.SEND)
    pair.run(0.01)
    assert pair.sent() == [REFUSED, FLUSHED]
    assert pair.a.state(pair.qa) == 6
    assert pair.b.completions(pair.qb) == []
    (line, _) = commands.execute("armed a")
    assert line.startswith(
        f"{number} a wr-unsupported of queue pairs of RC, UC, UD, XRC, SEND_INV:"
    )
    assert pair.a.events(EventType.WQ_CATAS_ERROR) == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("wc-rem-access-err opcode=FROB", "opcode=FROB: choose from SEND, SEND_IMM, SEND_INV"),
        ("hung-wr qp-type=RX", "qp-type=RX: choose from RC, UC, UD, XRC, GSI, ETH"),
        ("hung-wr next-connection=maybe", "next-connection=maybe: say next-connection or leave"),
        ("cqe-late", "cqe-late needs ms"),
        ("hung-wr qpn=0x800240 next-connection=1", "leave next-connection out"),
        ("hung-wr qpn=7", "there is no QP 0x7"),
        ("command-never opcode=SEND", "opcode=SEND: choose from"),
    ],
)
def test_what_is_wrong_is_said_with_what_there_is(words: str, says: str) -> None:
    commands = of(Pair().connect().a)
    (answer,) = commands.execute(f"arm a {words}")
    assert answer.startswith("error: ") and says in answer
    assert commands.execute("armed") == ["ok"]
