"""Completion queues: ownership, arming with its races, overrun, resize."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bluebridge.device.layout.mlx4 import uar
from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.contexts import CQC, QPC, QpState
from bluebridge.device.layout.mlx4.cqe import CQE
from bluebridge.device.layout.mlx4.eqe import COMP_EQE, CQ_ERROR_EQE, EventType
from bluebridge.device.layout.mlx4.wqe import SendOpcode
from tests.models.hca_driver import COMP_EQN, UAR_PAGE, Driver, Ring
from tests.models.rdma_node import Pair, data, remote

CQN = 0x85


@pytest.fixture
def ring(driver: Driver) -> Ring:
    """A CQ of 16 entries."""
    return driver.create_cq(CQN, 4)


def post(driver: Driver, number: int = 0, *, solicited: bool = False, error: bool = False) -> None:
    """A completion that carries a number."""
    queue = driver.completion_queue(CQN)
    queue.post(CQE.pack(qpn=0x123456, wqe_index=number & 0xFFFF), solicited, error)


def announced(driver: Driver) -> int:
    """Completion events since the last call."""
    events = driver.poll_eq(driver.comp_eq)
    driver.eq_doorbell(driver.comp_eq)
    for event in events:
        assert event["type"] == EventType.COMP
        assert COMP_EQE.get(bytes(4) + bytes(event["data"]) + bytes(4), "cqn") == CQN
    return len(events)


def numbers(driver: Driver, ring: Ring) -> list[int]:
    """The completions polled now."""
    return [CQE.get(entry, "wqe_index") for entry in driver.poll_cq(ring)]


def test_entries_arrive_in_order_over_many_laps(driver: Driver, ring: Ring) -> None:
    assert numbers(driver, ring) == []
    for lap in range(10):
        for number in range(11):
            post(driver, lap * 11 + number)
        assert numbers(driver, ring) == list(range(lap * 11, lap * 11 + 11))


def test_a_completion_before_the_arming_fires_at_once(driver: Driver, ring: Ring) -> None:
    post(driver)
    driver.arm_cq(ring, 1)
    assert announced(driver) == 1


def test_armed_for_solicited_completions_only(driver: Driver, ring: Ring) -> None:
    driver.arm_cq(ring, 1, uar.CQ_ARM_SOLICITED)
    post(driver)
    assert announced(driver) == 0
    post(driver, solicited=True)
    assert announced(driver) == 1
    driver.poll_cq(ring)
    driver.arm_cq(ring, 2, uar.CQ_ARM_SOLICITED)
    post(driver, error=True)
    assert announced(driver) == 1


def test_solicited_before_the_arming(driver: Driver, ring: Ring) -> None:
    post(driver, solicited=True)
    post(driver)
    driver.arm_cq(ring, 1, uar.CQ_ARM_SOLICITED)
    assert announced(driver) == 1
    driver.poll_cq(ring)
    post(driver)
    driver.arm_cq(ring, 2, uar.CQ_ARM_SOLICITED)
    assert announced(driver) == 0


def test_next_upgrades_solicited_and_never_the_reverse(driver: Driver, ring: Ring) -> None:
    driver.arm_cq(ring, 1, uar.CQ_ARM_SOLICITED)
    driver.arm_cq(ring, 1, uar.CQ_ARM_NEXT)
    driver.arm_cq(ring, 1, uar.CQ_ARM_SOLICITED)
    post(driver)
    assert announced(driver) == 1


def test_arming_again_before_the_event_was_seen_gives_no_second_event(
    driver: Driver, ring: Ring
) -> None:
    driver.arm_cq(ring, 1)
    post(driver)
    driver.arm_cq(ring, 1)
    post(driver)
    assert announced(driver) == 1
    driver.arm_cq(ring, 2)
    assert announced(driver) == 1


def test_arming_after_reading_without_the_event_seen_gives_the_next_event(
    driver: Driver, ring: Ring
) -> None:
    """IPoIB empties a queue by polling and asks anew while the interrupt is on its way."""
    driver.arm_cq(ring, 1)
    post(driver)
    assert announced(driver) == 1
    driver.poll_cq(ring)
    driver.arm_cq(ring, 1)
    assert announced(driver) == 0
    post(driver)
    assert announced(driver) == 1


def test_events_that_nobody_sees_are_two_at_most(driver: Driver, ring: Ring) -> None:
    """And none is lost once they have been seen: the number goes up by one for each."""
    events = 0
    for _ in range(6):
        driver.arm_cq(ring, 1)
        post(driver)
        events += announced(driver)
        driver.poll_cq(ring)
    assert events == 2
    driver.arm_cq(ring, 1 + events)
    events += announced(driver)
    post(driver)
    events += announced(driver)
    assert events == 3


def test_an_entry_is_announced_once_even_if_it_is_read_late(driver: Driver, ring: Ring) -> None:
    """perftest asks for the next event first and reads then; it takes every event for an entry."""
    driver.arm_cq(ring, 1)
    post(driver)
    assert announced(driver) == 1
    driver.arm_cq(ring, 2)
    assert announced(driver) == 0
    post(driver)
    assert announced(driver) == 1


def test_the_doorbell_in_two_halves(driver: Driver, ring: Ring) -> None:
    value = uar.cq_doorbell(1, uar.CQ_ARM_NEXT, CQN, 0)
    at = UAR_PAGE * uar.PAGE_SIZE + uar.CQ_DOORBELL
    driver.write32(at + 4, 0, 2)
    driver.write32(at, value >> 32, 2)
    driver.write32(300 * uar.PAGE_SIZE + uar.CQ_DOORBELL + 4, 0, 2)
    post(driver)
    assert announced(driver) == 0
    driver.write32(at + 4, value & 0xFFFFFFFF, 2)
    assert announced(driver) == 1


def test_only_the_page_of_the_context_rings(driver: Driver, ring: Ring) -> None:
    value = uar.cq_doorbell(1, uar.CQ_ARM_NEXT, CQN, 0).to_bytes(8, "big")
    for page in (0, 1, UAR_PAGE + 1, uar.NUM_UARS - 1):
        driver.hca.bar_write(2, page * uar.PAGE_SIZE + uar.CQ_DOORBELL, value)
        driver.hca.bar_write(2, page * uar.PAGE_SIZE + uar.CQ_DOORBELL, value[:4])
        driver.hca.bar_write(2, page * uar.PAGE_SIZE + uar.CQ_DOORBELL + 4, value[4:])
    post(driver)
    assert announced(driver) == 0
    driver.arm_cq(ring, 1)
    assert announced(driver) == 1


@given(
    st.lists(st.sampled_from(["post", "solicited", "poll", "next", "sol", "event"]), max_size=200)
)
def test_no_completion_is_swallowed(steps: list[str]) -> None:
    """A driver that arms, then sleeps for the event, is woken for all it was not told of yet."""
    driver = Driver().start()
    ring = driver.create_cq(CQN, 9)
    arm_sn, armed, sent, seen, told = 1, 0, 0, 0, 0
    for step in steps:
        if step in ("post", "solicited"):
            post(driver, sent, solicited=step == "solicited")
            sent += 1
        elif step == "poll":
            seen += len(numbers(driver, ring))
        elif step in ("next", "sol"):
            armed = max(armed, 2 if step == "next" else 1)
            driver.arm_cq(ring, arm_sn & 3, armed)
            if armed == 2 and sent > max(seen, told):
                fired = announced(driver)
                assert fired == 1
                arm_sn, armed, told = arm_sn + fired, 0, sent
        if fired := announced(driver):
            assert fired == 1 and armed and sent > told
            arm_sn, armed, told = arm_sn + 1, 0, sent
        assert not (armed == 2 and step in ("post", "solicited"))
        assert not (armed == 1 and step == "solicited")


def test_overrun_breaks_the_queue_with_an_event(driver: Driver, ring: Ring) -> None:
    for number in range(17):
        post(driver, number)
    (event,) = driver.events(EventType.CQ_ERROR)
    decoded = CQ_ERROR_EQE.unpack(bytes(4) + bytes(event["data"]) + bytes(4))
    assert (decoded["cqn"], decoded["syndrome"]) == (CQN, 1)
    assert numbers(driver, ring) == list(range(16))
    post(driver)
    assert numbers(driver, ring) == []


def test_an_overrun_stops_the_queue_pairs_that_complete_there() -> None:
    """Work that cannot be completed is not done: neither now nor on a later doorbell."""
    pair = Pair(log_cq=2).connect()
    source, lkey = pair.a.memory(4096)
    target, rkey = pair.b.memory(4096)
    for number in range(6):
        pair.a.host.poke(source, bytes([number]))
        pair.post_send(SendOpcode.RDMA_WRITE, remote(target, rkey) + data((lkey, source, 1)))
    pair.run()
    assert len(pair.a.events(EventType.CQ_ERROR)) == 1
    pair.a.poll_cq(pair.qa.cq)
    before = pair.b.host.peek(target, 1)
    pair.a.host.poke(source, b"\xee")
    pair.post_send(SendOpcode.RDMA_WRITE, remote(target, rkey) + data((lkey, source, 1)))
    pair.run()
    assert pair.b.host.peek(target, 1) == before
    state = QPC.get(pair.a.query(Opcode.QUERY_QP, pair.qa.qpn)[8:], "state")
    assert state == QpState.ERR


def test_queue_pairs_are_told_that_their_completions_are_lost() -> None:
    pair = Pair(log_cq=1).connect()
    for _ in range(4):
        pair.post_send(SendOpcode.NOP)
    pair.run()
    told = [event["type"] for event in pair.a.poll_eq(pair.a.async_eq)]
    assert told.count(EventType.CQ_ERROR) == 1 and told.count(EventType.WQ_CATAS_ERROR) == 1


def test_the_doorbell_record_makes_room(driver: Driver, ring: Ring) -> None:
    for _ in range(20):
        post(driver)
        driver.poll_cq(ring)
    assert driver.events(EventType.CQ_ERROR) == []


def test_vanished_memory_breaks_the_queue(driver: Driver) -> None:
    extra = 0x40000000
    driver.host.map(extra, 4096)
    mtt = driver.mtt([extra])
    context = CQC.pack(log_size=4, eqn=COMP_EQN, mtt_addr=mtt, doorbell_record=extra + 2048)
    driver.command(Opcode.SW2HW_CQ, bytes(context), CQN)
    driver.host.unmap(extra)
    post(driver)
    (event,) = driver.events(EventType.CQ_ERROR)
    assert CQ_ERROR_EQE.get(bytes(4) + bytes(event["data"]) + bytes(4), "syndrome") == 2


def test_refusals(driver: Driver, ring: Ring) -> None:
    _, mtt = driver.buffer(4096)
    good = {"log_size": 7, "eqn": COMP_EQN, "mtt_addr": mtt}
    for change, cqn, status in (
        ({}, 1 << 16, Status.BAD_INDEX),
        ({}, CQN, Status.BAD_RES_STATE),
        ({"eqn": 77}, 0x90, Status.BAD_RESOURCE),
        ({"log_size": 30}, 0x90, Status.BAD_PARAM),
        ({"log_page_size": 20}, 0x90, Status.BAD_PARAM),
        ({"collapsed": 1}, 0x90, Status.BAD_PARAM),
        ({"mtt_addr": 1 << 35}, 0x90, Status.ICM_ERROR),
    ):
        context = bytes(CQC.pack(good | change))
        assert driver.try_command(Opcode.SW2HW_CQ, context, cqn)[0] == status, change
    assert driver.try_command(Opcode.MODIFY_CQ, context, 0x90)[0] == Status.BAD_INDEX


def test_software_may_have_filled_the_ring(driver: Driver) -> None:
    address, mtt = driver.buffer(4096)
    driver.host.poke(address, b"\xcc" * 4096)
    context = CQC.pack(log_size=7, eqn=COMP_EQN, mtt_addr=mtt, doorbell_record=address)
    driver.command(Opcode.SW2HW_CQ, bytes(context), CQN, 1)
    assert driver.host.peek(address, 4096) == b"\xcc" * 4096


def test_a_destroyed_queue_is_left_alone(driver: Driver, ring: Ring) -> None:
    queue = driver.completion_queue(CQN)
    driver.arm_cq(ring, 1)
    driver.command(Opcode.HW2SW_CQ, 0, CQN, 1)
    queue.post(bytes(32))
    assert numbers(driver, ring) == []
    assert announced(driver) == 0


def test_rings_of_one_page_over_and_over_cost_a_bounded_memory(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Translations may all name one page; what is remembered of them is bounded all the same."""
    pages = driver.adapter.ring_pages
    before = pages.count
    monkeypatch.setattr("bluebridge.device.rings.queue_buffer.MAX_PAGES", before + 3 * 64)
    mtt = driver.mtt([driver.host.allocate(4096)] * 64)
    context = bytes(CQC.pack(log_size=13, eqn=COMP_EQN, mtt_addr=mtt))
    for cqn in (0x90, 0x91, 0x92):
        driver.command(Opcode.SW2HW_CQ, context, cqn)
    assert pages.count == before + 3 * 64
    assert driver.try_command(Opcode.SW2HW_CQ, context, 0x93)[0] == Status.EXCEED_LIM
    assert driver.try_command(Opcode.MODIFY_CQ, context, 0x90)[0] == Status.EXCEED_LIM
    driver.command(Opcode.HW2SW_CQ, 0, 0x90, 1)
    driver.command(Opcode.SW2HW_CQ, context, 0x93)
    driver.hca.reset()
    assert pages.count == 0


def test_rings_of_refused_queues_are_not_counted(driver: Driver) -> None:
    before = driver.adapter.ring_pages.count
    mtt = driver.mtt([1 << 40] * 64)
    context = bytes(CQC.pack(log_size=13, eqn=COMP_EQN, mtt_addr=mtt))
    assert driver.try_command(Opcode.SW2HW_CQ, context, 0x90)[0] == Status.BAD_PARAM
    assert driver.adapter.ring_pages.count == before


def test_software_that_lags_behind_its_events_is_told_of_the_next_completion(
    driver: Driver, ring: Ring
) -> None:
    """It asks twice for each event that it counts: its number must not come round meanwhile."""
    counted = unseen = 0
    for _ in range(5):
        for _ in range(2):
            driver.poll_cq(ring)
            driver.arm_cq(ring, (1 + counted) & 3)
            unseen += announced(driver)
            post(driver)
            unseen += announced(driver)
        assert 1 <= unseen <= 2
        counted, unseen = counted + 1, unseen - 1
    driver.poll_cq(ring)
    driver.arm_cq(ring, (1 + counted + unseen) & 3)
    post(driver)
    assert announced(driver) == 1
