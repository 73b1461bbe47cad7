"""Queue pairs of two ConnectX-5: messages, receives, errors, and what comes late."""

from __future__ import annotations

import json
from struct import pack
from types import SimpleNamespace
from typing import Literal, cast

import pytest

from bluebridge.device.fabric.faults.stage import FaultRules
from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.layout.failures import BY_NAME
from bluebridge.device.layout.fields import Value
from bluebridge.device.layout.mlx5.commands import Opcode, Status
from bluebridge.device.layout.mlx5.contexts import CQC, WQ, WQ_OFFSET, QueueType
from bluebridge.device.layout.mlx5.cqe import CQE, CQE_SIZE, ERROR_CQE, CqeOpcode, Syndrome
from bluebridge.device.layout.mlx5.event_queues import QUEUE_EQE, EventType
from bluebridge.device.layout.mlx5.init_segment import SEND_DOORBELL
from bluebridge.device.layout.mlx5.objects import (
    GROUP_MEMBER,
    MODIFY_QUEUE,
    Q_COUNTERS,
    QUERY_Q_COUNTER,
    VPORT_COUNTERS,
)
from bluebridge.device.layout.mlx5.queue_pairs import (
    KERNEL_USER_INDEX,
    QPC,
    RMP_LIMIT,
    OptPar,
    QpState,
    Receives,
    Service,
)
from bluebridge.device.layout.mlx5.wqe import SendOpcode
from bluebridge.device.layout.net.roce import GSI_QKEY
from bluebridge.device.mlx5.settings.refused import Refused
from bluebridge.device.pci.loop import EventLoop
from bluebridge.device.queue_pairs import PORTION
from bluebridge.device.rdma.pairs.costs import WHOLE_BYTES
from bluebridge.device.server.stats import Stats
from tests.models.mlx5_node import SIGNALLED
from tests.models.mlx5_pair import (
    LOG_RQ,
    LOG_SQ,
    REMOTE_KEY,
    USER_INDEX,
    V1_INDEX,
    V2_INDEX,
    Pair,
    RoceNode,
    opcodes,
    remote,
    vector,
)

QKEY = 0x11111111


@pytest.fixture
def nodes() -> tuple[RoceNode, RoceNode]:
    fabric = LocalFabric()
    return RoceNode(1, fabric), RoceNode(2, fabric)


def connected(nodes: tuple[RoceNode, RoceNode], service: int = Service.RC) -> tuple[Pair, Pair]:
    a, b = (node.make_pair(service) for node in nodes)
    a.connect(b)
    b.connect(a)
    return a, b


@pytest.fixture
def pairs(nodes: tuple[RoceNode, RoceNode]) -> tuple[Pair, Pair]:
    return connected(nodes)


@pytest.mark.parametrize("service", [Service.RC, Service.UC])
def test_a_send_arrives_and_both_sides_have_a_completion(
    nodes: tuple[RoceNode, RoceNode], service: Service
) -> None:
    a, b = connected(nodes, service)
    buffer = b.receive()
    a.post(SendOpcode.SEND_IMM, a.data(b"hello"), last=0x1234)
    (sent,), (came,) = a.sent(), b.received()
    assert CQE.get(sent, "opcode") == CqeOpcode.REQUEST
    assert CQE.get(sent, "qpn") == a.number
    assert CQE.get(sent, "srqn") == CQE.get(came, "srqn") == USER_INDEX
    assert CQE.get(came, "opcode") == CqeOpcode.RESPONSE_SEND_IMM
    assert CQE.get(came, "immediate") == 0x1234
    assert b.node.host.peek(buffer, CQE.get(came, "length")) == b"hello"


def test_rings_go_round(pairs: tuple[Pair, Pair]) -> None:
    a, b = pairs
    for number in range(3 << max(LOG_SQ, LOG_RQ)):
        buffer = b.receive()
        content = number.to_bytes(4, "big") * 8
        a.post(SendOpcode.SEND, a.data(content))
        (sent,), (came,) = a.sent(), b.received()
        assert CQE.get(sent, "wqe_counter") == CQE.get(came, "wqe_counter") == number
        assert b.node.host.peek(buffer, len(content)) == content


def test_writes_reads_and_atomics_reach_memory_by_a_key(pairs: tuple[Pair, Pair]) -> None:
    a, b = pairs
    key = b.node.make_key((), **REMOTE_KEY)
    place = b.node.memory((5).to_bytes(8, "little") + b"there" + bytes(19))
    a.post(SendOpcode.RDMA_WRITE, remote(place + 16, key) + a.data(b"written"))
    assert b.node.host.peek(place + 16, 7) == b"written"
    into = a.node.memory(32)
    segment = pack(">IIQ", 5, a.node.key, into)
    a.post(SendOpcode.RDMA_READ, remote(place + 8, key) + segment)
    assert a.node.host.peek(into, 5) == b"there"
    word = pack(">IIQ", 8, a.node.key, into)
    a.post(SendOpcode.ATOMIC_FA, remote(place, key) + pack(">QQ", 3, 0) + word)
    assert (a.node.host.peek(into, 1), b.node.host.peek(place, 1)) == (b"\x05", b"\x08")
    a.post(SendOpcode.ATOMIC_CS, remote(place, key) + pack(">QQ", 9, 8) + word)
    assert (a.node.host.peek(into, 1), b.node.host.peek(place, 1)) == (b"\x08", b"\x09")
    done = a.sent()
    assert [CQE.get(each, "wqe_opcode") for each in done] == [
        SendOpcode.RDMA_WRITE, SendOpcode.RDMA_READ, SendOpcode.ATOMIC_FA, SendOpcode.ATOMIC_CS
    ]  # fmt: skip
    assert not b.received()


@pytest.mark.parametrize(
    ("opcode", "modifier", "operands", "after"),
    [
        (SendOpcode.ATOMIC_MASKED_CS, 9, pack(">QQQQ", 0xF5, 0x0A, 0xF0, 0x0F), 0xFA),
        (SendOpcode.ATOMIC_MASKED_CS, 9, pack(">QQQQ", 0xF5, 0x0B, 0xF0, 0x0F), 0x0A),
        (SendOpcode.ATOMIC_MASKED_FA, 9, pack(">QQ", 0x07, 0x08), 0x01),
        (SendOpcode.ATOMIC_MASKED_CS, 8, pack(">IIII", 0xF5, 0x0A, 0xF0, 0x0F), 0xFA),
        (SendOpcode.ATOMIC_MASKED_FA, 8, pack(">II8x", 0xFFFFFFFF, 0), 0x09),
    ],
)
def test_masked_atomics_return_what_they_found(
    pairs: tuple[Pair, Pair], opcode: SendOpcode, modifier: int, operands: bytes, after: int
) -> None:
    a, b = pairs
    size = 1 << modifier - 6
    # The key ends with the number: an operation on 4 bytes touches no others.
    place = b.node.host.allocate(4096, 4096)
    key = b.node.make_key((place,), start=0, length=16 + size, **REMOTE_KEY)
    around = b"\xee" * 8
    b.node.host.poke(place + 8, around + (10).to_bytes(size, "little") + around)
    into = a.node.memory(around)
    segments = remote(16, key) + operands + pack(">IIQ", size, a.node.key, into)
    a.post(opcode | modifier << 24, segments)
    (done,) = a.sent()
    assert (CQE.get(done, "wqe_opcode"), CQE.get(done, "length")) == (opcode, size)
    # Software asks for results of 8 bytes in the order of its host; shorter ones stay big-endian.
    order: Literal["little", "big"] = "little" if size == 8 else "big"
    assert a.node.host.peek(into, 8) == (10).to_bytes(size, order) + around[size:]
    assert b.node.host.peek(place + 8, 16 + size) == (
        around + after.to_bytes(size, "little") + around
    )


@pytest.mark.parametrize(
    ("opcode", "modifier", "length", "offset"),
    [
        (SendOpcode.ATOMIC_MASKED_FA, 0, 8, 0),
        (SendOpcode.ATOMIC_MASKED_FA, 10, 16, 0),
        (SendOpcode.ATOMIC_MASKED_FA, 8, 8, 0),
        (SendOpcode.ATOMIC_MASKED_FA, 9, 4, 0),
        (SendOpcode.ATOMIC_MASKED_CS, 8, 4, 2),
        (SendOpcode.ATOMIC_MASKED_CS, 9, 8, 4),
    ],
)
def test_masked_atomics_of_other_sizes_or_unaligned_fail(
    pairs: tuple[Pair, Pair], opcode: SendOpcode, modifier: int, length: int, offset: int
) -> None:
    a, b = pairs
    key, place = b.node.make_key((), **REMOTE_KEY), b.node.memory(64)
    operands = bytes(32 if (opcode, modifier) == (SendOpcode.ATOMIC_MASKED_CS, 9) else 16)
    word = pack(">IIQ", length, a.node.key, a.node.memory(64))
    a.post(opcode | modifier << 24, remote(place + offset, key) + operands + word)
    (failed,) = a.sent()
    assert ERROR_CQE.get(failed, "syndrome") == (
        Syndrome.REMOTE_INVAL_REQ_ERR if offset
        else Syndrome.LOCAL_LENGTH_ERR if modifier in (8, 9) else Syndrome.LOCAL_QP_OP_ERR
    )  # fmt: skip
    assert not any(b.node.host.peek(place, 64))


def test_inline_data_and_entries_without_completion(pairs: tuple[Pair, Pair]) -> None:
    a, b = pairs
    buffer = b.receive()
    segment = pack(">I", 1 << 31 | 20) + b"inline data, 20 by..".ljust(28, b"\0")
    a.post(SendOpcode.SEND, segment, flags=0)
    assert not a.sent()
    assert len(b.received()) == 1
    assert b.node.host.peek(buffer, 20) == b"inline data, 20 by.."


def test_a_message_before_a_receive_waits_for_it(pairs: tuple[Pair, Pair]) -> None:
    a, b = pairs
    a.post(SendOpcode.SEND, a.data(b"early"))
    assert not a.sent()
    buffer = b.receive()
    a.node.host.run(1)
    assert b.node.host.peek(buffer, 5) == b"early"
    assert len(a.sent()) == 1


@pytest.mark.parametrize(("place", "length"), [(0, 8), (4, 4), (0, 64)])
def test_a_doorbell_may_have_the_rest_of_its_entry_behind_it(
    pairs: tuple[Pair, Pair], place: int, length: int
) -> None:
    """UCX stores whole entries; stores that follow each other come as one."""
    a, b = pairs
    b.receive()
    a.node.wqe(a.sq, a.data(b"whole"))
    entry = a.node.host.peek(a.sq.address, 64)
    a.node.store(SEND_DOORBELL + place, entry[place : place + length])
    a.node.host.run()
    assert opcodes(b.received()) == [CqeOpcode.RESPONSE_SEND]


def test_what_is_counted_without_a_doorbell_waits_for_one(pairs: tuple[Pair, Pair]) -> None:
    """An answer is no reason to read the doorbell record: each post rings, or is stored."""
    a, b = pairs
    a.post(SendOpcode.SEND, a.data(b"first"))
    a.node.wqe(a.sq, a.data(b"second"), SendOpcode.SEND, SIGNALLED)
    for _ in range(2):
        b.receive()
    a.node.host.run(1)
    assert len(a.sent()) == 1
    a.node.ring(a.sq)
    assert len(a.sent()) == 1


@pytest.mark.parametrize(
    ("opcode", "segments", "status"),
    [
        (SendOpcode.RDMA_WRITE, remote(0x1000, 0x77777700), "REMOTE_ACCESS_ERR"),
        (SendOpcode.SEND, pack(">IIQ", 8, 0x77777700, 0x1000), "LOCAL_PROT_ERR"),
        (0x3F, b"", "LOCAL_QP_OP_ERR"),
    ],
)
def test_errors_have_the_syndromes_of_hardware(
    pairs: tuple[Pair, Pair], opcode: int, segments: bytes, status: str
) -> None:
    a, b = pairs
    b.receive()
    if opcode == SendOpcode.RDMA_WRITE:
        segments += a.data(b"bytes")
    a.post(opcode, segments)
    a.post(SendOpcode.SEND, a.data(b"later"), flags=0)
    failed, flushed = a.sent()
    get = ERROR_CQE.get
    assert get(failed, "syndrome") == Syndrome[status]
    assert get(failed, "vendor_syndrome") == BY_NAME[status].vendor_syndrome
    assert (get(failed, "qpn"), get(failed, "srqn")) == (a.number, USER_INDEX)
    assert get(flushed, "syndrome") == Syndrome.WR_FLUSH_ERR
    assert a.state is QpState.ERR


def test_a_pair_in_error_flushes_what_is_posted_without_a_doorbell(
    pairs: tuple[Pair, Pair],
) -> None:
    """`ib_drain_rq` waits for a receive that it posts to a queue pair in ERR."""
    a, _ = pairs
    assert a.node.status(Opcode.TOERR_QP, number=a.number) is Status.OK
    a.receive()
    a.node.host.run(1)
    (flushed,) = a.received()
    assert ERROR_CQE.get(flushed, "syndrome") == Syndrome.WR_FLUSH_ERR
    assert a.node.status(Opcode.TORST_QP, number=a.number) is Status.OK
    a.receive()
    a.node.host.run(2)
    assert not a.received()


def test_after_a_reset_the_pair_begins_anew(pairs: tuple[Pair, Pair]) -> None:
    a, b = pairs
    for pair in pairs:
        pair.receive()
        assert pair.node.status(Opcode.TORST_QP, number=pair.number) is Status.OK
        assert pair.node.status(Opcode.TORST_QP, number=pair.number) is Status.OK  # twice
        assert pair.state is QpState.RST
        pair.sq.posted = pair.rq.posted = 0
        pair.node.host.poke(pair.record, bytes(8))
    a.connect(b)
    b.connect(a)
    buffer = b.receive()
    a.post(SendOpcode.SEND, a.data(b"again"))
    (sent,) = a.sent()
    assert CQE.get(sent, "wqe_counter") == 0
    assert b.node.host.peek(buffer, 5) == b"again"


def test_commands_out_of_order_are_refused(nodes: tuple[RoceNode, RoceNode]) -> None:
    a, b = (node.make_pair() for node in nodes)
    assert a.change(Opcode.INIT2RTR_QP) is Status.BAD_QP_STATE
    assert a.node.status(Opcode.TOERR_QP, number=a.number) is Status.BAD_QP_STATE
    a.connect(b)
    assert a.change(Opcode.RST2INIT_QP) is Status.BAD_QP_STATE
    assert a.change(Opcode.RTS2RTS_QP, OptPar.RWE) is Status.OK
    assert QPC.get(a.context(), "remote_write") == 0
    assert a.node.status(Opcode.DESTROY_QP, number=a.number) is Status.OK
    for opcode in (Opcode.DESTROY_QP, Opcode.TOERR_QP, Opcode.TORST_QP):
        assert a.node.status(opcode, number=a.number) is Status.BAD_RES_STATE
    assert a.node.status(Opcode.QUERY_QP, number=a.number) is Status.BAD_RES
    a.post(SendOpcode.SEND, a.data(b"gone"))  # the doorbell of a queue pair that is gone
    assert not a.sent()


@pytest.mark.parametrize(
    "values",
    [{"service": 5}, {"signature": 1}, {"rq_type": 2}, {"cqn_send": 0xFFFF}, {"page_offset": 63}],
)
def test_garbage_makes_no_pair(nodes: tuple[RoceNode, RoceNode], values: dict[str, int]) -> None:
    before = nodes[0].adapter.objects.counts()["qp"]
    if "page_offset" in values:
        values = {**values, "log_sq_size": 9}
    with pytest.raises(Refused):
        nodes[0].make_pair(**values)
    assert nodes[0].adapter.objects.counts()["qp"] == before


@pytest.mark.parametrize("version_index", [V1_INDEX, V1_INDEX + 1])
def test_datagrams_come_behind_their_network_header(
    nodes: tuple[RoceNode, RoceNode], version_index: int
) -> None:
    a, b = (node.make_pair(Service.UD) for node in nodes)
    for pair in (a, b):
        pair.start(QKEY)
    buffer = b.receive()
    address = vector(a.node, b.node, b.number, QKEY, source=version_index)
    a.post(SendOpcode.SEND, address + a.data(b"datagram"))
    assert opcodes(a.sent()) == [CqeOpcode.REQUEST]
    (came,) = b.received()
    assert CQE.get(came, "length") == 48
    assert CQE.get(came, "remote_qpn") == a.number
    assert CQE.get(came, "grh") == 1
    assert CQE.get(came, "roce_header") == (0 if version_index == V1_INDEX else 2)
    assert b.node.host.peek(buffer + 40, 8) == b"datagram"


def test_a_datagram_with_another_key_is_dropped(nodes: tuple[RoceNode, RoceNode]) -> None:
    a, b = (node.make_pair(Service.UD) for node in nodes)
    for pair in (a, b):
        pair.start(QKEY)
    b.receive()
    a.post(SendOpcode.SEND, vector(a.node, b.node, b.number, QKEY + 1) + a.data(b"x"))
    assert not b.received()


def test_management_datagrams_are_of_queue_pair_1(nodes: tuple[RoceNode, RoceNode]) -> None:
    a, b = (node.make_pair(Service.QP1) for node in nodes)
    for pair in (a, b):
        pair.start(GSI_QKEY)
    buffer = b.receive(296)
    own_key = 1 << 31 | GSI_QKEY & 0x7FFFFFFF
    a.post(SendOpcode.SEND, vector(a.node, b.node, 1, own_key) + a.data(b"m" * 256))
    (came,) = b.received()
    assert CQE.get(came, "remote_qpn") == 1
    assert CQE.get(came, "immediate") == 0xFFFF
    assert b.node.host.peek(buffer + 40, 256) == b"m" * 256


def test_groups_get_copies(nodes: tuple[RoceNode, RoceNode]) -> None:
    a, b = nodes
    sender, one, two = a.make_pair(Service.UD), b.make_pair(Service.UD), b.make_pair(Service.UD)
    gid = bytes.fromhex("ff0e000000000000000000000000abcd")
    for pair in (sender, one, two):
        pair.start(QKEY)
    for pair in (one, two):
        data = bytes(GROUP_MEMBER.pack(qpn=pair.number, gid=gid))
        assert b.status(Opcode.ATTACH_TO_MCG, data) is Status.OK
    mac = bytes.fromhex("33330000abcd")
    address = vector(a, b, 0xFFFFFF, QKEY, rgid=gid, rmac=mac)
    for pair in (one, two):
        pair.receive()
    sender.post(SendOpcode.SEND, address + sender.data(b"to all"))
    assert len(one.received()) == len(two.received()) == 1
    assert b.status(Opcode.DETACH_FROM_MCG, data) is Status.OK
    assert b.status(Opcode.DETACH_FROM_MCG, data) is Status.BAD_RES
    for pair in (one, two):
        pair.receive()
    sender.post(SendOpcode.SEND, address + sender.data(b"to one"))
    assert (len(one.received()), len(two.received())) == (1, 0)


@pytest.mark.parametrize(
    ("kind", "plain"),
    [(QueueType.LINKED_LIST, False), (QueueType.CYCLIC, False), (QueueType.CYCLIC, True)],
)
def test_a_shared_queue_gives_receives_and_tells_its_limit(
    nodes: tuple[RoceNode, RoceNode], kind: QueueType, plain: bool
) -> None:
    a, b = nodes
    pool = b.make_pool(kind=kind, plain=plain)
    sender = a.make_pair()
    shared = {"rq_type": Receives.SHARED, "srqn": pool.number}
    receiver = b.make_pair(**shared)
    sender.connect(receiver)
    receiver.connect(sender)
    for number in range(40):  # the list goes round
        buffer = pool.post()
        sender.post(SendOpcode.SEND, sender.data(b"%03d" % number))
        (came,) = receiver.received()
        assert CQE.get(came, "wqe_counter") == number % 16
        assert CQE.get(came, "srqn") == USER_INDEX
        assert b.host.peek(buffer, 3) == b"%03d" % number
        sender.sent()
    pool.post()
    b.events()
    limit = MODIFY_QUEUE.pack(number=pool.number, fields=RMP_LIMIT)
    work = WQ.pack(limit=2)
    b.command(
        Opcode.MODIFY_RMP, (bytes(limit) + bytes(WQ_OFFSET) + bytes(work)).ljust(0x110, b"\0")
    )
    (event,) = b.events()
    assert (event[1], QUEUE_EQE.get(event, "number")) == (EventType.SRQ_LIMIT, pool.number)
    sender.post(SendOpcode.SEND, sender.data(b"one more"))
    assert not b.events()  # a limit is told once
    assert b.status(Opcode.DESTROY_RMP, number=pool.number) is Status.BAD_RES_STATE
    b.command(Opcode.DESTROY_QP, number=receiver.number)
    assert b.status(Opcode.DESTROY_RMP, number=pool.number) is Status.OK
    assert b.status(Opcode.QUERY_RMP, number=pool.number) is Status.BAD_RES


def test_xrc_requests_name_the_shared_queue_of_the_peer(nodes: tuple[RoceNode, RoceNode]) -> None:
    a, b = nodes
    xrcd, cq = b.make(Opcode.ALLOC_XRCD), b.make_cq()
    srq = b.make_xrc_srq(xrcd, cq, user_index=0x77)
    kernels = b.make_xrc_srq(xrcd, cq, user_index=KERNEL_USER_INDEX)
    sender = a.make_pair(Service.XRC, rq_type=Receives.NONE)
    target = b.make_pair(Service.XRC, rq_type=Receives.SHARED, srqn=srq.number, no_sq=1, xrcd=xrcd)
    sender.connect(target)
    target.connect(sender)
    for queue, shown in ((srq, 0x77), (kernels, kernels.number)):
        buffer = queue.post()
        sender.post(SendOpcode.SEND, pack(">I12x", queue.number) + sender.data(b"xrc"))
        (came,) = b.completions(cq)
        assert (CQE.get(came, "srqn"), CQE.get(came, "qpn")) == (shown, target.number)
        assert b.host.peek(buffer, 3) == b"xrc"
    assert b.status(Opcode.DEALLOC_XRCD, number=xrcd) is Status.BAD_RES_STATE
    kernels.post(64)
    sender.post(SendOpcode.SEND, pack(">I12x", kernels.number) + sender.data(b"longer" * 11))
    (failed,) = b.completions(cq)  # software gives the entry back to the queue that it names
    assert ERROR_CQE.get(failed, "syndrome") == Syndrome.LOCAL_LENGTH_ERR
    assert ERROR_CQE.get(failed, "srqn") == kernels.number


def test_a_pair_of_xrc_in_no_domain_reaches_no_shared_queue(
    nodes: tuple[RoceNode, RoceNode],
) -> None:
    """Queues that are not of XRC are in no domain either."""
    b = nodes[1]
    pool = b.make_pool()
    sender, target = (node.make_pair(Service.XRC, rq_type=Receives.NONE) for node in nodes)
    sender.connect(target)
    target.connect(sender)
    buffer = pool.post()
    sender.post(SendOpcode.SEND, pack(">I12x", pool.number) + sender.data(b"xrc"))
    assert ERROR_CQE.get(sender.sent()[0], "syndrome") == Syndrome.REMOTE_INVAL_REQ_ERR
    assert not any(b.host.peek(buffer, 3))


def test_nothing_completes_for_a_queue_of_xrc_that_is_gone(
    nodes: tuple[RoceNode, RoceNode],
) -> None:
    """A completion of an index that nobody has is an error of ibv_poll_cq (libmlx5 cq.c)."""
    a, b = nodes
    xrcd, cq = b.make(Opcode.ALLOC_XRCD), b.make_cq()
    srq, drivers = (b.make_xrc_srq(xrcd, cq) for _ in range(2))
    named = {"srqn": drivers.number, "no_sq": 1, "xrcd": xrcd}
    sender = a.make_pair(Service.XRC, rq_type=Receives.NONE)
    target = b.make_pair(Service.XRC, rq_type=Receives.SHARED, **named)
    sender.connect(target)
    target.connect(sender)
    length = WHOLE_BYTES + 4096  # it moves in two parts
    srq.post(length)
    data = pack(">IIQ", length, a.key, a.memory(length))
    a.wqe(sender.sq, pack(">I12x", srq.number) + data)
    a.store(SEND_DOORBELL, pack(">II", 0, sender.number << 8))
    assert b.status(Opcode.DESTROY_XRC_SRQ, number=srq.number) is Status.OK
    a.host.run()
    b.host.run()
    (failed,) = sender.sent()
    assert ERROR_CQE.get(failed, "syndrome") == Syndrome.REMOTE_INVAL_REQ_ERR
    assert not b.completions(cq)


def test_the_last_receive_of_a_shared_queue_is_told_once(nodes: tuple[RoceNode, RoceNode]) -> None:
    a, b = nodes
    pool = b.make_pool()
    receiver = b.make_pair(rq_type=Receives.SHARED, srqn=pool.number)
    receiver.connect(a.make_pair())
    b.events()
    assert b.status(Opcode.TOERR_QP, number=receiver.number) is Status.OK
    b.host.run()
    told = [event for event in b.events() if event[1] == EventType.LAST_WQE]
    assert [QUEUE_EQE.get(event, "number") for event in told] == [receiver.number]


def test_completions_of_128_bytes(nodes: tuple[RoceNode, RoceNode]) -> None:
    a, b = nodes
    sender, receiver = a.make_pair(), b.make_pair()
    wide = a.host.allocate(128 * 64)
    context = CQC.pack(log_size=6, eqn=a.eq, doorbell_record=a.host.allocate(64), cqe_size=1)
    data = (bytes(16) + bytes(context)).ljust(0x110, b"\0") + a.pages(wide, 2)
    cqn = a.make(Opcode.CREATE_CQ, data)
    sender = a.make_pair(cqn_send=cqn)
    sender.connect(receiver)
    receiver.connect(sender)
    for _ in range(2):
        receiver.receive()
        sender.post(SendOpcode.SEND, sender.data(b"wide"))
    for number in range(2):
        entry = a.host.peek(wide + 128 * number + CQE_SIZE, CQE_SIZE)
        assert CQE.get(entry, "opcode") == CqeOpcode.REQUEST
        assert CQE.get(entry, "qpn") == sender.number


def test_nothing_comes_while_roce_is_off_or_its_address_is_gone(
    nodes: tuple[RoceNode, RoceNode],
) -> None:
    a, b = (node.make_pair(Service.UD) for node in nodes)
    for pair in (a, b):
        pair.start(QKEY)
    b.receive()
    b.node.set_address(V1_INDEX, bytes(16))
    b.node.set_address(V1_INDEX + 1, bytes(16))
    a.post(SendOpcode.SEND, vector(a.node, b.node, b.number, QKEY) + a.data(b"x"))
    answer = b.node.command(
        Opcode.QUERY_ROCE_ADDRESS, bytes(8) + (V1_INDEX << 16).to_bytes(4, "big")
    )
    assert not any(answer[16:])


def test_counter_sets_count_the_troubles_of_their_pairs(nodes: tuple[RoceNode, RoceNode]) -> None:
    a, b = nodes
    own, other = a.make(Opcode.ALLOC_Q_COUNTER), a.make(Opcode.ALLOC_Q_COUNTER)
    sender, receiver = a.make_pair(counter_set=own), b.make_pair()
    sender.connect(receiver)
    receiver.connect(sender)
    sender.post(SendOpcode.RDMA_WRITE, remote(0x1000, 0x77777700) + sender.data(b"x"))
    for number, count in ((own, 1), (other, 0)):
        data = bytes(QUERY_Q_COUNTER.pack(number=number))
        answer = a.command(Opcode.QUERY_Q_COUNTER, data)
        assert Q_COUNTERS.get(answer, "req_remote_access_errors") == count
        assert Q_COUNTERS.get(answer, "req_cqe_error") >= count


def counters(node: RoceNode, number: int, **how: int) -> dict[str, Value]:
    """A set of counters, those at zero left out."""
    data = bytes(QUERY_Q_COUNTER.pack(number=number, **how))
    found = Q_COUNTERS.unpack(node.command(Opcode.QUERY_Q_COUNTER, data))
    return {name: value for name, value in found.items() if value}


@pytest.mark.parametrize("service", [Service.RC, Service.UC])
def test_requests_of_peers_are_counted_by_kind(
    nodes: tuple[RoceNode, RoceNode], service: int
) -> None:
    a, b = nodes
    own = b.make(Opcode.ALLOC_Q_COUNTER)
    sender, receiver = a.make_pair(service), b.make_pair(service, counter_set=own)
    sender.connect(receiver)
    receiver.connect(sender)
    key, place, unused = b.make_key((), **REMOTE_KEY), b.memory(64), 3 << 20
    receiver.receive()
    receiver.receive()
    target = remote(place, key)
    sender.post(SendOpcode.SEND, sender.data(b"no request of memory"))
    parts = pack(">IIQ", WHOLE_BYTES + 1, a.key, unused)
    sender.post(SendOpcode.RDMA_WRITE, remote(unused, key) + parts)
    a.host.run(1)
    sender.post(SendOpcode.RDMA_WRITE_IMM, target + sender.data(b"two"))
    expected = {"rx_write_requests": 2}
    if service == Service.RC:
        into = pack(">IIQ", 8, a.key, a.memory(8))
        for _ in range(3):
            sender.post(SendOpcode.RDMA_READ, target + into)
        sender.post(SendOpcode.ATOMIC_FA, target + pack(">QQ", 1, 0) + into)
        expected |= {"rx_read_requests": 3, "rx_atomic_requests": 1}
    assert counters(b, own) == expected
    sender.post(SendOpcode.RDMA_WRITE, remote(place, key ^ 0x100) + sender.data(b"refused"))
    found = counters(b, own, clear=1)
    assert found["rx_write_requests"] == 2
    if service == Service.RC:
        assert found["resp_remote_access_errors"] == 1
    assert not counters(b, own)


def test_statistics_of_the_server_count_pairs_with_a_counter_set(
    nodes: tuple[RoceNode, RoceNode],
) -> None:
    """Linux gives one to each queue pair (ib/qp.c: __mlx5_ib_modify_qp)."""
    a, b = nodes
    sender, receiver = a.make_pair(counter_set=a.make(Opcode.ALLOC_Q_COUNTER)), b.make_pair()
    sender.connect(receiver)
    receiver.connect(sender)
    sender.post(SendOpcode.SEND, sender.data(b"early"))
    loop, rules = SimpleNamespace(longest=0.0), SimpleNamespace(taken=0)
    stats = Stats(cast(EventLoop, loop), (), {"a": a.hca}, cast(FaultRules, rules))
    rows = {row["name"]: row["samples"] for row in map(json.loads, stats.lines())}
    told = {each["labels"]["reason"]: each["value"] for each in rows["retries"]}
    assert told["receiver_not_ready"] == 1


def test_datagrams_without_a_receive_are_counted(nodes: tuple[RoceNode, RoceNode]) -> None:
    a, b = nodes
    number = b.make(Opcode.ALLOC_Q_COUNTER)
    sender, receiver = a.make_pair(Service.UD), b.make_pair(Service.UD, counter_set=number)
    for pair in (sender, receiver):
        pair.start(QKEY)
    receiver.receive()
    for _ in range(3):
        sender.post(SendOpcode.SEND, vector(a, b, receiver.number, QKEY) + sender.data(b"x"))
    answer = b.command(Opcode.QUERY_Q_COUNTER, bytes(QUERY_Q_COUNTER.pack(number=number)))
    assert Q_COUNTERS.get(answer, "out_of_buffer") == 2


def test_packets_of_queue_pairs_are_counted_until_a_reset(pairs: tuple[Pair, Pair]) -> None:
    a, b = pairs
    b.receive()
    a.post(SendOpcode.SEND, a.data(b"counted"))
    sent = "transmitted_ib_unicast_packets"
    query = Opcode.QUERY_VPORT_COUNTER
    assert VPORT_COUNTERS.get(a.node.command(query), sent) == 1
    a.node.adapter.clear()
    assert VPORT_COUNTERS.get(a.node.command(query), sent) == 0


def test_teardown_leaves_no_pair(pairs: tuple[Pair, Pair]) -> None:
    a, _ = pairs
    a.receive()
    a.node.adapter.clear()
    counts = a.node.adapter.objects.counts()
    assert (counts["qp"], counts["srq"], counts["xrcd"]) == (0, 0, 0)
    a.post(SendOpcode.SEND, a.data(b"late"), flags=SIGNALLED)
    assert not a.sent()


def test_an_address_that_changes_reroutes_many_pairs_in_portions(
    nodes: tuple[RoceNode, RoceNode],
) -> None:
    a, b = nodes
    peer = b.make_pair()
    peer.init()
    pairs = [a.make_pair() for _ in range(2 * PORTION + 1)]
    for pair in pairs:
        pair.connect(peer)
    mac = bytes.fromhex("020000000099")
    a.set_address(V2_INDEX, a.gid, mac=mac)
    assert a.portions == 3 and len(pairs) == 2 * PORTION + 1
    routed = [a.adapter.objects.rdma.pairs.get(pair.number) for pair in pairs]
    assert {found.route.smac for found in routed if found is not None} == {mac}


def test_a_pair_of_umr_hears_nobody(nodes: tuple[RoceNode, RoceNode]) -> None:
    """A pair that changes keys of all domains carries out no request that names it."""
    a, b = nodes
    umr, peer = a.make_pair(Service.UMR), b.make_pair()
    for pair, other in ((umr, peer), (peer, umr)):
        pair.connect(other)
    place = a.memory(b"as it was")
    peer.post(SendOpcode.RDMA_WRITE, remote(place, a.make_key((), **REMOTE_KEY)) + peer.data(b"x"))
    assert a.host.peek(place, 9) == b"as it was"
    assert not peer.sent()
