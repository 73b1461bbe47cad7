"""Rings that begin within a page, as drivers with their own allocators have them (iPXE)."""

from __future__ import annotations

import pytest

from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.contexts import CQC, EQC
from bluebridge.device.layout.mlx4.eqe import EventType
from tests.models.hca_driver import COMP_EQN, UAR_PAGE, Driver
from tests.models.rdma_node import Pair, SendOpcode, inline
from tests.unit.rdma.test_shared_receives import SRQN

OFFSETS = (64, 0x7C0, 0xFC0)


@pytest.fixture(params=OFFSETS)
def offset(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Where rings begin in their page from now on."""
    start = int(request.param)
    monkeypatch.setattr(Driver, "page_offset", start)
    return start


def test_events_and_completions_come_where_the_contexts_say(offset: int) -> None:
    driver = Driver().start()
    ring = driver.create_cq(0x85, 7)
    assert ring.address & 0xFFF == offset
    queue = driver.adapter.cqs.get(0x85)
    assert queue is not None
    in_front = driver.host.peek(ring.address - offset, offset)
    for lap in range(5):
        driver.arm_cq(ring, lap + 1 & 3)
        for _ in range(100):
            queue.post(bytes(32))
        queue.post_many([bytes(32)] * 20)
        assert len(driver.poll_cq(ring)) == 120
        assert len(driver.poll_eq(driver.comp_eq)) == 1
        driver.eq_doorbell(driver.comp_eq)
    assert driver.host.peek(ring.address - offset, offset) == in_front


@pytest.mark.parametrize("srq", [False, True])
def test_work_requests_are_found_where_the_contexts_say(offset: int, srq: bool) -> None:
    pair = Pair()
    shared = pair.b.create_srq(SRQN)
    if srq:
        pair.qb = pair.b.create_qp(0x277, use_srq=1, srqn=SRQN, doorbell_record=0)
    pair.connect()
    inbox, key = pair.b.memory(4096)
    for number in range(60):
        if srq:
            pair.b.post_srq(shared, number % 16, [(key, inbox, 16)])
        else:
            pair.b.post_recv(pair.qb, [(key, inbox, 16)])
        pair.a.post_send(pair.qa, SendOpcode.SEND, inline(b"number %d" % number))
        assert [wc.status for wc in pair.a.completions(pair.qa)] == [0]
        (got,) = pair.b.completions(pair.qb)
        assert pair.b.host.peek(inbox, got.length) == b"number %d" % number
    assert not pair.b.events(EventType.SRQ_LIMIT)


def test_a_ring_whose_entries_would_cross_pages_is_refused() -> None:
    driver = Driver().start()
    driver.adapter.parameters.large_cqes = True
    _, mtt = driver.buffer(8192)
    context = CQC.pack(log_size=4, uar=UAR_PAGE, eqn=COMP_EQN, mtt_addr=mtt, page_offset=1)
    assert driver.try_command(Opcode.SW2HW_CQ, bytes(context), 0x90)[0] == Status.BAD_PARAM


def test_a_ring_of_events_may_begin_at_any_entry() -> None:
    driver = Driver().start()
    address, mtt = driver.buffer(8192)
    context = EQC.pack(state=9, log_size=4, vector=1, mtt_addr=mtt, page_offset=1)
    driver.command(Opcode.SW2HW_EQ, bytes(context), 9)
    assert driver.host.peek(address, 64) == bytes(63) + b"\x80"
