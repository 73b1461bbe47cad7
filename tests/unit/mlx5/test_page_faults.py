"""On-demand paging: absent pages hold an operation until software has brought them in."""

from __future__ import annotations

from struct import pack

import pytest

from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.fields import Value
from bluebridge.device.layout.mlx5.commands import Opcode, Status
from bluebridge.device.layout.mlx5.contexts import MKC
from bluebridge.device.layout.mlx5.cqe import CQE, ERROR_CQE, CqeOpcode, Syndrome
from bluebridge.device.layout.mlx5.event_queues import FaultSubtype
from bluebridge.device.layout.mlx5.objects import ENTRY, LIST, SPECIAL_CONTEXTS
from bluebridge.device.layout.mlx5.page_faults import WqeFault
from bluebridge.device.layout.mlx5.queue_pairs import QpState, Receives, Service
from bluebridge.device.layout.mlx5.wqe import UmrFlag
from bluebridge.device.mlx5.adapter import Stage
from tests.models.mlx5_keys import ACCESS, ENABLE, change
from tests.models.mlx5_paged import LONG, QKEY, WITHIN, Paged, content_of, filled
from tests.models.mlx5_pager import READABLE, Pager
from tests.models.mlx5_pair import Pair, SendOpcode, opcodes, remote, vector
from tests.world import paging, seeds

PAGE = 4096


@pytest.fixture(params=["messages", "packets"])
def paged(request: pytest.FixtureRequest) -> Paged:
    return Paged(packets=request.param == "packets")


# -- the peer's requests ------------------------------------------------------------------------


def test_a_write_to_a_page_never_touched_waits_for_it(paged: Paged) -> None:
    a, there = paged.a, paged.there
    a.post(SendOpcode.RDMA_WRITE, remote(there.start + 100, there.key) + a.data(b"at last"))
    paged.run()
    assert not a.sent()
    (fault,) = there.faults()
    assert fault.sub_type is FaultSubtype.RDMA
    assert (fault.rkey, fault.va, fault.length) == (there.key, there.start + 100, 7)
    there.lend(0)
    assert there.resume(fault) is Status.OK
    paged.run()
    assert opcodes(a.sent()) == [CqeOpcode.REQUEST]
    assert there.peek(there.start + 100, 7) == b"at last"
    assert not there.faults()
    (over,) = there.node.host.facts(Fact.PAGE_FAULT)
    assert (over["qpn"], over["status"]) == (paged.b.number, "OK")


def test_a_long_write_asks_for_all_its_pages_at_once(paged: Paged) -> None:
    a, there, content = paged.a, paged.there, content_of(LONG)
    a.post(SendOpcode.RDMA_WRITE, remote(there.start + WITHIN, there.key) + a.data(content))
    (fault,) = paged.serve()
    assert (fault.va, fault.length) == (there.start + WITHIN, LONG)
    assert opcodes(a.sent()) == [CqeOpcode.REQUEST]
    assert there.peek(there.start + WITHIN, LONG) == content


def test_a_page_lent_for_reading_is_asked_for_by_a_write(paged: Paged) -> None:
    """The page of zeros that a process has before it writes must not be changed."""
    a, there = paged.a, paged.there
    there.lend(0, bits=READABLE)
    into = a.node.memory(8)
    read = pack(">IIQ", 8, a.node.key, into)
    a.post(SendOpcode.RDMA_READ, remote(there.start, there.key) + read)
    paged.run()
    assert opcodes(a.sent()) == [CqeOpcode.REQUEST]
    zeros = there.backing(0)
    a.post(SendOpcode.RDMA_WRITE, remote(there.start, there.key) + a.data(b"new"))
    paged.run()
    (fault,) = there.faults()
    there.entries[0] = 0
    there.lend(0)
    there.resume(fault)
    paged.run()
    assert opcodes(a.sent()) == [CqeOpcode.REQUEST]
    assert there.peek(there.start, 3) == b"new"
    assert there.node.host.peek(zeros, 3) == bytes(3)


def test_a_read_of_pages_that_were_swapped_out_brings_them_back(paged: Paged) -> None:
    a, there, content = paged.a, paged.there, content_of(LONG)
    filled(there, content)
    into = a.node.memory(LONG)
    segments = remote(there.start + WITHIN, there.key) + pack(">IIQ", LONG, a.node.key, into)
    a.post(SendOpcode.RDMA_READ, segments)
    (fault,) = paged.serve()
    assert not fault.fault & 2
    assert opcodes(a.sent()) == [CqeOpcode.REQUEST]
    assert a.node.host.peek(into, LONG) == content


def test_an_atomic_changes_an_absent_page_once(paged: Paged) -> None:
    a, there = paged.a, paged.there
    filled(there, (41).to_bytes(8, "little"), within=8)
    into = a.node.memory(8)
    word = pack(">IIQ", 8, a.node.key, into)
    operands = remote(there.start + 8, there.key) + pack(">QQ", 1, 0)
    a.post(SendOpcode.ATOMIC_FA, operands + word)
    assert len(paged.serve()) == 1
    assert opcodes(a.sent()) == [CqeOpcode.REQUEST]
    assert a.node.host.peek(into, 8) == (41).to_bytes(8, "little")
    assert there.peek(there.start + 8, 8) == (42).to_bytes(8, "little")


# -- requests and receives ----------------------------------------------------------------------


@pytest.mark.parametrize("length", [5, LONG])
def test_a_send_from_absent_pages_waits_and_keeps_its_place(paged: Paged, length: int) -> None:
    a, b, here, content = paged.a, paged.b, paged.here, content_of(length)
    filled(here, content)
    first, second, third = (b.receive(1 << 14) for _ in range(3))
    a.post(SendOpcode.SEND, a.data(b"before"))
    a.post(SendOpcode.SEND, paged.segment(here, length))
    a.post(SendOpcode.SEND, a.data(b"behind"))
    paged.run()
    assert opcodes(a.sent()) == [CqeOpcode.REQUEST]
    (fault,) = here.faults()
    assert (fault.sub_type, fault.fault, fault.queue, fault.wqe_index, fault.committed) == (
        FaultSubtype.WQE, WqeFault.SEND, a.number, 1, 0
    )  # fmt: skip
    here.lend(0, 8)
    assert here.resume(fault) is Status.OK
    paged.run()
    assert opcodes(a.sent()) == [CqeOpcode.REQUEST] * 2
    assert [CQE.get(each, "length") for each in b.received()] == [6, length, 6]
    peek = b.node.host.peek
    assert (peek(first, 6), peek(second, length), peek(third, 6)) == (b"before", content, b"behind")
    assert not a.node.host.facts(Fact.SEQUENCE_ERROR)


@pytest.mark.parametrize("length", [5, LONG])
def test_what_a_read_brings_waits_for_absent_pages(paged: Paged, length: int) -> None:
    a, b, here, content = paged.a, paged.b, paged.here, content_of(length)
    key = b.node.make_key((), remote_read=1)
    place = b.node.memory(content)
    a.post(SendOpcode.RDMA_READ, remote(place, key) + paged.segment(here, length))
    paged.run()
    assert not a.sent()
    (fault,) = here.faults()
    assert (fault.fault, fault.queue, fault.wqe_index) == (WqeFault.READ, a.number, 0)
    here.lend(0, 8)
    here.resume(fault)
    paged.run()
    assert opcodes(a.sent()) == [CqeOpcode.REQUEST]
    assert here.peek(here.start + WITHIN, length) == content


@pytest.mark.parametrize("length", [5, LONG])
def test_a_receive_in_absent_pages_takes_its_message_later(paged: Paged, length: int) -> None:
    a, b, there, content = paged.a, paged.b, paged.there, content_of(length)
    _receive_into(b, there)
    a.post(SendOpcode.SEND, a.data(content))
    paged.run()
    assert not a.sent() and not b.received()
    (fault,) = there.faults()
    assert (fault.fault, fault.queue, fault.wqe_index) == (WqeFault.RECEIVE, b.number, 0)
    there.lend(0, 8)
    there.resume(fault)
    paged.run()
    assert opcodes(a.sent()) == [CqeOpcode.REQUEST]
    assert [CQE.get(each, "length") for each in b.received()] == [length]
    assert there.peek(there.start + WITHIN, length) == content


def _receive_into(pair: Pair, pager: Pager, within: int = WITHIN) -> None:
    pair.receive(1 << 14, pager.key)
    slot = pair.rq.address + (pair.rq.posted - 1) % 16 * 64
    pair.node.host.poke(slot + 8, (pager.start + within).to_bytes(8, "big"))


def test_a_receive_of_an_srq_names_the_srq() -> None:
    paged = Paged(packets=False)
    a, there = paged.a, paged.there
    pool = there.node.make_pool()
    b = there.node.make_pair(rq_type=Receives.SHARED, srqn=pool.number)
    a = paged.nodes[0].make_pair()
    a.connect(b)
    b.connect(a)
    pool.post()
    pool.node.host.poke(pool.address + 16, pack(">IIQ", 64, there.key, there.start))
    a.post(SendOpcode.SEND, a.data(b"shared"))
    (fault,) = paged.serve()
    assert (fault.fault, fault.queue, fault.wqe_index) == (WqeFault.SRQ, pool.number, 0)
    assert there.peek(there.start, 6) == b"shared"
    assert len(b.received()) == len(a.sent()) == 1


def test_requests_of_xrc_wait_for_absent_pages(paged: Paged) -> None:
    """Pages of the sender, of the SRQ that a request names, and of what it writes to are absent."""
    (a, b), here, there = paged.nodes, paged.here, paged.there
    xrcd, cq = b.make(Opcode.ALLOC_XRCD), b.make_cq()
    queues = [b.make_xrc_srq(xrcd, cq) for _ in range(2)]
    sender = a.make_pair(Service.XRC, rq_type=Receives.NONE)
    target = b.make_pair(
        Service.XRC, rq_type=Receives.SHARED, srqn=queues[0].number, no_sq=1, xrcd=xrcd
    )
    sender.connect(target)
    target.connect(sender)
    filled(here, b"from xrc")
    for place, queue in enumerate(queues):
        queue.post()
        entry = pack(">IIQ", 64, there.key, there.start + place * PAGE)
        b.host.poke(queue.address + 16, entry)
        named = pack(">I12x", queue.number)
        sender.post(SendOpcode.SEND, named + paged.segment(here, 8))
        faults = paged.serve()
        assert [(fault.fault, fault.queue) for fault in faults if fault.queue != sender.number] == [
            (WqeFault.SRQ, queue.number)
        ]
        assert (len(faults), len(b.completions(cq))) == (2, 1)
        assert there.peek(there.start + place * PAGE, 8) == b"from xrc"
        there.take(0, there.count)
        here.take(0, here.count)
    address = there.start + 9 * PAGE
    named = pack(">I12x", queues[1].number) + remote(address, there.key)
    sender.post(SendOpcode.RDMA_WRITE, named + sender.data(b"written"))
    (fault,) = paged.serve()
    assert (fault.sub_type, fault.rkey, fault.va) == (FaultSubtype.RDMA, there.key, address)
    assert there.peek(address, 7) == b"written"
    sender.post(SendOpcode.RDMA_READ, named + paged.segment(here, 7))
    assert paged.serve()
    assert here.peek(here.start + WITHIN, 7) == b"written"
    assert opcodes(sender.sent()) == [CqeOpcode.REQUEST] * 4


def test_a_datagram_from_absent_pages_leaves_later() -> None:
    paged = Paged(packets=False, service=Service.UD)
    a, b, here = paged.a, paged.b, paged.here
    filled(here, b"datagram")
    buffer, behind = b.receive(), b.receive()
    address = vector(a.node, b.node, b.number, QKEY)
    a.post(SendOpcode.SEND, address + paged.segment(here, 8))
    a.post(SendOpcode.SEND, address + a.data(b"behind"))
    assert not a.sent()
    (fault,) = paged.serve()
    assert fault.fault == WqeFault.SEND
    assert opcodes(a.sent()) == [CqeOpcode.REQUEST] * 2
    peek = b.node.host.peek
    assert (peek(buffer + 40, 8), peek(behind + 40, 6)) == (b"datagram", b"behind")


# -- keys to all addresses ----------------------------------------------------------------------

GIB = 1 << 30
CHILD = 5


def test_a_key_to_all_addresses_gets_its_parts_as_they_are_needed(paged: Paged) -> None:
    """As implicit registrations of Linux: a part is of the null key until somebody is there."""
    a, b, there = paged.a, paged.b, paged.there
    node, updater = there.node, there.updater
    answer = node.command(Opcode.QUERY_SPECIAL_CONTEXTS)
    null = SPECIAL_CONTEXTS.get(answer, "null_key")
    key = node.make_key((), access_mode=3, length64=0, free=1, umr=1, translations=16)
    parts = [pack(">IIQ", GIB, null, 0)] * 16
    values: dict[str, Value] = {**ACCESS, "length64": 1, "pd": node.pd, "log_page_size": 30}
    half = b"".join(parts[:8])
    change(updater, key, 0, flags=UmrFlag.MUST_BE_FREE, values=values, entries=half)
    change(updater, key, ENABLE, offset=8, values=values, entries=half)
    address = CHILD * GIB + 100
    a.post(SendOpcode.RDMA_WRITE, remote(address, key) + a.data(b"anywhere"))
    paged.run()
    (fault,) = there.faults()
    assert (fault.rkey, fault.va) == (key, address)
    child = Pager(node, 64, start=CHILD * GIB, length64=1, length=0)
    parts[CHILD] = pack(">IIQ", GIB, child.key, CHILD * GIB)
    raw = b"".join(parts[4:8])
    change(updater, key, 0, flags=UmrFlag.MUST_NOT_BE_FREE, offset=4, entries=raw)
    answer = node.command(Opcode.QUERY_MKEY, number=key >> 8)
    assert (MKC.get(answer, "free", ENTRY), MKC.get(answer, "start", ENTRY)) == (0, 0)
    assert answer[LIST:] == b"".join(parts)
    answer = node.command(Opcode.QUERY_MKEY, number=child.key >> 8)
    assert MKC.get(answer, "start", ENTRY) == CHILD * GIB
    there.resume(fault)
    paged.run()
    (fault,) = there.faults()
    assert (fault.rkey, fault.va) == (key, address)
    child.lend(0)
    there.resume(fault)
    paged.run()
    assert opcodes(a.sent()) == [CqeOpcode.REQUEST]
    assert child.peek(address, 8) == b"anywhere"
    assert b.state is QpState.RTS


# -- pages that do not come ----------------------------------------------------------------------


def test_pages_that_do_not_come_fail_the_operation(paged: Paged) -> None:
    a, b, there = paged.a, paged.b, paged.there
    a.post(SendOpcode.RDMA_WRITE, remote(there.start, there.key) + a.data(b"never"))
    paged.run()
    (fault,) = there.faults()
    assert there.resume(fault, error=1) is Status.OK
    paged.run()
    (failed,) = a.sent()
    assert ERROR_CQE.get(failed, "syndrome") == Syndrome.REMOTE_ACCESS_ERR
    assert (a.state, b.state) == (QpState.ERR, QpState.ERR)
    assert not there.faults()
    (over,) = there.node.host.facts(Fact.PAGE_FAULT)
    assert over["status"] == "failed"


@pytest.mark.parametrize("receives", [False, True])
def test_pages_that_came_all_the_same_are_not_held_against_later_ones(
    paged: Paged, receives: bool
) -> None:
    a, b, there = paged.a, paged.b, paged.there

    def send(page: int) -> None:
        if receives:
            _receive_into(b, there, page * PAGE)
            a.post(SendOpcode.SEND, a.data(b"came"))
        else:
            address = there.start + page * PAGE
            a.post(SendOpcode.RDMA_WRITE, remote(address, there.key) + a.data(b"came"))
        paged.run()

    send(0)
    (fault,) = there.faults()
    there.lend(0)
    assert there.resume(fault, error=1) is Status.OK
    paged.run()
    assert opcodes(a.sent()) == [CqeOpcode.REQUEST]
    send(8)
    (fault,) = there.faults()
    there.lend(8)
    assert there.resume(fault) is Status.OK
    paged.run()
    assert opcodes(a.sent()) == [CqeOpcode.REQUEST]
    assert there.peek(there.start + 8 * PAGE, 4) == b"came"


@pytest.mark.parametrize("opcode", [SendOpcode.SEND, SendOpcode.RDMA_READ])
def test_own_pages_that_do_not_come_fail_the_request(paged: Paged, opcode: SendOpcode) -> None:
    a, b, here = paged.a, paged.b, paged.here
    b.receive()
    segments = paged.segment(here, 8)
    if opcode is SendOpcode.RDMA_READ:
        segments = remote(b.node.memory(8), b.node.make_key((), remote_read=1)) + segments
    a.post(opcode, segments)
    paged.run()
    (fault,) = here.faults()
    here.resume(fault, error=1)
    paged.run()
    (failed,) = a.sent()
    assert ERROR_CQE.get(failed, "syndrome") == Syndrome.LOCAL_PROT_ERR
    assert a.state is QpState.ERR


def test_a_receive_whose_pages_do_not_come_fails_on_both_sides(paged: Paged) -> None:
    a, b, there = paged.a, paged.b, paged.there
    _receive_into(b, there)
    a.post(SendOpcode.SEND, a.data(b"lost"))
    paged.run()
    (fault,) = there.faults()
    there.resume(fault, error=1)
    paged.run()
    (failed,), (received,) = a.sent(), b.received()
    assert ERROR_CQE.get(failed, "syndrome") == Syndrome.REMOTE_OP_ERR
    assert ERROR_CQE.get(received, "syndrome") == Syndrome.LOCAL_PROT_ERR


def test_without_an_event_queue_absent_pages_are_no_memory(paged: Paged) -> None:
    a, there = paged.a, paged.there
    there.node.status(Opcode.DESTROY_EQ, number=there.eq)
    a.post(SendOpcode.RDMA_WRITE, remote(there.start, there.key) + a.data(b"x"))
    paged.run()
    (failed,) = a.sent()
    assert ERROR_CQE.get(failed, "syndrome") == Syndrome.REMOTE_ACCESS_ERR


@pytest.mark.parametrize("end", [Opcode.TOERR_QP, Opcode.TORST_QP, Opcode.DESTROY_QP])
@pytest.mark.parametrize("side", ["requester", "responder"])
def test_a_queue_pair_that_ends_takes_its_page_fault_along(
    paged: Paged, end: Opcode, side: str
) -> None:
    """In ERR software still answers; an answer that comes later, or twice, is refused."""
    a, b = paged.a, paged.b
    b.receive()
    if side == "requester":
        pair, pager = a, paged.here
        a.post(SendOpcode.SEND, paged.segment(pager, 8))
    else:
        pair, pager = b, paged.there
        a.post(SendOpcode.RDMA_WRITE, remote(pager.start, pager.key) + a.data(b"x"))
    paged.run()
    (fault,) = pager.faults()
    assert pager.node.status(end, number=pair.number) is Status.OK
    pager.lend(0)
    late = pager.resume(fault)
    assert late is (Status.OK if end is Opcode.TOERR_QP else Status.BAD_PARAM)
    assert pager.resume(fault) is Status.BAD_PARAM
    paged.run()
    assert pager.backing(0) and not any(pager.peek(pager.start, 8))
    assert not len(pager.node.adapter.objects.rdma.page_faults)
    flushed = [ERROR_CQE.get(each, "syndrome") for each in pair.sent()]
    assert flushed == [Syndrome.WR_FLUSH_ERR] * (end is Opcode.TOERR_QP and side == "requester")


@pytest.mark.parametrize("lie", ["token", "queue", "fault"])
def test_an_answer_to_another_fault_changes_nothing(paged: Paged, lie: str) -> None:
    a, there = paged.a, paged.there
    a.post(SendOpcode.RDMA_WRITE, remote(there.start, there.key) + a.data(b"x"))
    paged.run()
    (fault,) = there.faults()
    there.lend(0)
    wrong = {lie: getattr(fault, lie if lie != "queue" else "token") ^ 1}
    assert there.resume(fault, **wrong) is Status.BAD_PARAM
    assert there.resume(fault) is Status.OK
    paged.run()
    assert opcodes(a.sent()) == [CqeOpcode.REQUEST]


def test_a_resume_without_the_pages_asks_again(paged: Paged) -> None:
    a, there = paged.a, paged.there
    a.post(SendOpcode.RDMA_WRITE, remote(there.start, there.key) + a.data(b"x"))
    tokens = set()
    for _ in range(3):
        paged.run()
        (fault,) = there.faults()
        tokens.add(fault.token)
        assert there.resume(fault) is Status.OK
    assert len(tokens) == 3
    assert len(paged.serve()) == 1
    assert opcodes(a.sent()) == [CqeOpcode.REQUEST]


def test_a_key_destroyed_meanwhile_ends_the_operation_at_the_answer(paged: Paged) -> None:
    a, there = paged.a, paged.there
    a.post(SendOpcode.RDMA_WRITE, remote(there.start, there.key) + a.data(b"x"))
    paged.run()
    (fault,) = there.faults()
    assert there.node.status(Opcode.DESTROY_MKEY, number=there.key >> 8) is Status.OK
    assert there.resume(fault) is Status.OK
    paged.run()
    assert ERROR_CQE.get(a.sent()[0], "syndrome") == Syndrome.REMOTE_ACCESS_ERR


def test_a_reset_forgets_page_faults(paged: Paged) -> None:
    a, here = paged.a, paged.here
    a.post(SendOpcode.SEND, paged.segment(here, 8))
    paged.run()
    (fault,) = here.faults()
    here.node.adapter.clear()
    here.node.adapter.stage = Stage.INITIALISED
    assert here.resume(fault) is Status.BAD_PARAM
    assert not len(here.node.adapter.objects.rdma.page_faults)


# -- under load -----------------------------------------------------------------------------------


@pytest.mark.worlds
def test_page_faults_under_load_lose_nothing() -> None:
    """Requests of all kinds between pages that come and go: each is carried out once."""
    happened = seeds.each("paging", paging.replay, range(12), least=2)
    assert all(each["page faults"] for each in happened)
