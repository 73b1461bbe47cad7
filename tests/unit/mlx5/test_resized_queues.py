"""Completion queues of a ConnectX-5 that get another ring, or another moderation.

Software goes on as rdma-core and Linux do (`mlx5_cq_resize_copy_cqes`, `copy_resize_cqes`): what it
has not read it copies to the places one further in the new ring.
"""

from __future__ import annotations

import pytest

from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.layout.mlx5.commands import Opcode, Status
from bluebridge.device.layout.mlx5.contexts import CQC
from bluebridge.device.layout.mlx5.cqe import CQE, CQE_SIZE, CqeOpcode
from bluebridge.device.layout.mlx5.objects import ENTRY, LIST, MODIFY_CQ, RESIZE, CqField
from bluebridge.device.layout.mlx5.wqe import SendOpcode
from tests.models.mlx5_node import LOG_CQ, Queue
from tests.models.mlx5_pair import Pair, RoceNode

LARGER = LOG_CQ + 1


@pytest.fixture
def pair() -> Pair:
    fabric = LocalFabric()
    a, b = (RoceNode(n, fabric).make_pair() for n in (1, 2))
    a.connect(b)
    b.connect(a)
    return a


def resize(
    node: RoceNode, cq: Queue, log_size: int, *, number: int = 0, **values: int
) -> tuple[Status, int]:
    """Ask for another ring; how that ended, and where it is."""
    address = node.host.allocate(CQE_SIZE << log_size)
    node.host.poke(address, (bytes(CQE_SIZE - 1) + b"\xf0") * (1 << log_size))
    data = MODIFY_CQ.pack(modifier=RESIZE, number=number or cq.number)
    data += CQC.pack(log_size=log_size, **values)
    count = -(-(CQE_SIZE << log_size) // 4096)
    listed = bytes(data).ljust(LIST, b"\0") + node.pages(address, count)
    assert len(data) == ENTRY + CQC.size
    return node.status(Opcode.MODIFY_CQ, listed), address


def send(pair: Pair, count: int) -> None:
    """Complete sends without a receive of the peer: writes of no bytes."""
    for _ in range(count):
        pair.post(SendOpcode.NOP, b"")


def test_a_marker_stands_in_the_old_ring_and_entries_go_on_in_the_new(pair: Pair) -> None:
    node, cq = pair.node, pair.scq
    send(pair, 3)
    status, address = resize(node, cq, LARGER)
    assert status is Status.OK
    send(pair, 1)
    old = [node.host.peek(cq.address + at * CQE_SIZE, CQE_SIZE) for at in range(5)]
    kinds = [CQE.get(entry, "opcode") for entry in old]
    assert kinds == [CqeOpcode.REQUEST] * 3 + [CqeOpcode.RESIZE, CqeOpcode.INVALID]
    new = [node.host.peek(address + at * CQE_SIZE, CQE_SIZE) for at in range(6)]
    kinds = [CQE.get(entry, "opcode") for entry in new]
    assert kinds == [CqeOpcode.INVALID] * 4 + [CqeOpcode.REQUEST, CqeOpcode.INVALID]
    assert new[4][-1] & 1 == 0
    context = node.command(Opcode.QUERY_CQ, number=cq.number)
    assert CQC.get(context, "log_size", ENTRY) == LARGER


def test_a_ring_is_resized_twice_and_back(pair: Pair) -> None:
    node, cq, index = pair.node, pair.scq, 0
    for log_size in (LARGER, LOG_CQ, LARGER, LOG_CQ):
        send(pair, 1)
        status, address = resize(node, cq, log_size)
        assert status is Status.OK
        index += 2  # the entry and the marker
        node.host.poke(cq.record, index.to_bytes(4, "big"))
        send(pair, 1)
        place = address + (index & (1 << log_size) - 1) * CQE_SIZE
        entry = node.host.peek(place, CQE_SIZE)
        assert CQE.get(entry, "opcode") == CqeOpcode.REQUEST
        assert entry[-1] & 1 == index >> log_size & 1
        index += 1
        node.host.poke(cq.record, index.to_bytes(4, "big"))


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        ("full", Status.RES_BUSY),
        ("too small", Status.BAD_PARAM),
        ("too large", Status.BAD_PARAM),
        ("other entries", Status.BAD_PARAM),
        ("none", Status.BAD_RES),
        ("old memory", Status.BAD_PARAM),
    ],
)
def test_a_ring_that_cannot_be_resized_stays(pair: Pair, fault: str, status: Status) -> None:
    node, cq = pair.node, pair.scq
    log_size, values, number = LARGER, {}, 0
    if fault == "full":
        send(pair, 1 << LOG_CQ)
    elif fault == "too small":
        send(pair, 3)
        log_size = 1
    elif fault == "too large":
        log_size = 23
    elif fault == "other entries":
        values = {"cqe_size": 1}
    elif fault == "none":
        number = 0x999
    else:
        cq = pair.scq = node.make_cq()
        node.adapter.objects.cqs.known(cq.number).buffer.pages = [1 << 50]
    if fault != "too large":
        assert resize(node, cq, log_size, number=number, **values)[0] is status
    else:
        data = bytes(MODIFY_CQ.pack(modifier=RESIZE, number=cq.number) + CQC.pack(log_size=23))
        assert node.status(Opcode.MODIFY_CQ, data.ljust(LIST, b"\0")) is status
    context = node.command(Opcode.QUERY_CQ, number=cq.number)
    assert CQC.get(context, "log_size", ENTRY) == LOG_CQ


def test_moderation_is_changed_and_told(pair: Pair) -> None:
    """Fields that are not named keep their values (`ethtool -C`)."""
    node, cq = pair.node, pair.scq
    fields = CqField.PERIOD | CqField.COUNT | CqField.PERIOD_MODE
    for chosen, values in (fields, (33, 7, 1)), (CqField.COUNT, (33, 9, 1)):
        period, count, mode = values if chosen == fields else (0, 9, 0)
        data = MODIFY_CQ.pack(number=cq.number, fields=chosen)
        data += CQC.pack(period=period, max_count=count, period_mode=mode)
        assert node.status(Opcode.MODIFY_CQ, bytes(data)) is Status.OK
        context = node.command(Opcode.QUERY_CQ, number=cq.number)
        names = ("period", "max_count", "period_mode")
        assert tuple(CQC.get(context, name, ENTRY) for name in names) == values
