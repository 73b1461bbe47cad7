"""Completion queues that are changed: interrupt moderation, a move to another ring."""

from __future__ import annotations

import pytest

from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.contexts import CQC, EQC
from bluebridge.device.layout.mlx4.cqe import CQE, CQE_SIZE, OPCODE_RESIZE
from bluebridge.device.layout.mlx4.eqe import EventType
from tests.models.hca_driver import COMP_EQN, Driver, Ring
from tests.unit.mlx4.test_hca_cq import CQN, numbers, post


@pytest.fixture
def armed(driver: Driver) -> Ring:
    """A completion queue of sixteen entries, armed."""
    armed = driver.create_cq(CQN, 4)
    driver.arm_cq(armed, 1)
    driver.host.take_interrupts()
    return armed


def moderate(driver: Driver, period: int, count: int) -> None:
    """MODIFY_CQ as `mlx4_en_set_cq_moder` sends it."""
    context = bytes(CQC.pack(period=period, max_count=count))
    driver.command(Opcode.MODIFY_CQ, context, CQN, 1)


def post_at_once(driver: Driver, count: int) -> None:
    """Entries in one go."""
    queue = driver.completion_queue(CQN)
    queue.post_many([bytes(CQE.pack(qpn=5, wqe_index=index)) for index in range(count)])


def fired(driver: Driver) -> bool:
    """Whether an event came since the last look."""
    return bool(driver.host.take_interrupts())


def test_a_short_period_ends_with_the_work_at_hand(driver: Driver, armed: Ring) -> None:
    moderate(driver, 16, 44)
    post_at_once(driver, 3)
    assert not fired(driver)
    driver.host.run()
    assert fired(driver)
    driver.host.run(1.0)
    assert not fired(driver)
    assert len(driver.poll_cq(armed)) == 3


def test_a_long_period_is_waited_for(driver: Driver, armed: Ring) -> None:
    moderate(driver, 20000, 44)
    post_at_once(driver, 1)
    driver.host.run(0.019)
    assert not fired(driver)
    driver.host.run(0.002)
    assert fired(driver)


def test_enough_entries_are_reported_at_once(driver: Driver, armed: Ring) -> None:
    moderate(driver, 20000, 4)
    post_at_once(driver, 3)
    assert not fired(driver)
    post_at_once(driver, 1)
    assert fired(driver)
    driver.poll_eq(driver.comp_eq)
    driver.eq_doorbell(driver.comp_eq)
    driver.poll_cq(armed)
    driver.arm_cq(armed, 2)
    post_at_once(driver, 1)
    driver.host.run(0.5)
    assert fired(driver)


@pytest.mark.parametrize(("period", "count"), [(0, 44), (16, 0), (16, 1), (0, 0)])
def test_without_period_or_count_nothing_waits(
    driver: Driver, armed: Ring, period: int, count: int
) -> None:
    moderate(driver, period, count)
    post_at_once(driver, 1)
    assert fired(driver)


def test_entries_that_wait_at_arming_fire_at_once(driver: Driver, armed: Ring) -> None:
    moderate(driver, 20000, 44)
    post_at_once(driver, 1)
    driver.arm_cq(armed, 1)
    assert fired(driver)


def test_a_queue_that_goes_takes_its_timer_along(driver: Driver, armed: Ring) -> None:
    moderate(driver, 20000, 44)
    post_at_once(driver, 1)
    driver.command(Opcode.HW2SW_CQ, 0, CQN, 1)
    driver.host.run(1.0)
    assert not fired(driver)
    assert armed.consumer == 0


@pytest.mark.parametrize("offset", [0, 0xFC0])
def test_bursts_wrap_around_the_ring(driver: Driver, offset: int) -> None:
    """Also in one that begins within a page, so that it has a border of pages."""
    driver.page_offset = offset
    ring = driver.create_cq(CQN, 4)
    for _ in range(9):
        post_at_once(driver, 7)
        assert [CQE.get(raw, "wqe_index") for raw in driver.poll_cq(ring)] == list(range(7))
    post_at_once(driver, 16)
    post_at_once(driver, 1)  # one too many
    assert driver.adapter.cqs.get(CQN).broken  # type: ignore[union-attr]
    assert len(driver.poll_cq(ring)) == 16


@pytest.fixture
def ring(driver: Driver) -> Ring:
    """A CQ of 16 entries."""
    return driver.create_cq(CQN, 4)


def test_resize_leaves_a_marker_and_goes_on_in_the_new_ring(driver: Driver, ring: Ring) -> None:
    for number in range(3):
        post(driver, number)
    address, mtt = driver.buffer(CQE_SIZE << 6)
    driver.command(Opcode.MODIFY_CQ, bytes(CQC.pack(log_size=6, mtt_addr=mtt)), CQN)
    old = driver.poll_cq(ring)
    assert [CQE.get(entry, "opcode") for entry in old] == [0, 0, 0, OPCODE_RESIZE]
    bigger = Ring(CQN, address, 64, ring.consumer, ring.record)
    for number in range(40):
        post(driver, number)
    assert numbers(driver, bigger) == list(range(40))


def test_resize_of_a_full_ring_overwrites_nothing(driver: Driver, ring: Ring) -> None:
    """There is no slot for the marker: software has to poll first."""
    for number in range(16):
        post(driver, number)
    address, mtt = driver.buffer(CQE_SIZE << 6)
    context = bytes(CQC.pack(log_size=6, mtt_addr=mtt))
    assert driver.try_command(Opcode.MODIFY_CQ, context, CQN)[0] == Status.RESOURCE_BUSY
    assert numbers(driver, ring) == list(range(16))
    assert not any(driver.host.peek(address, CQE_SIZE << 6))
    driver.command(Opcode.MODIFY_CQ, context, CQN)
    post(driver, 16)
    assert [CQE.get(entry, "opcode") for entry in driver.poll_cq(ring)] == [OPCODE_RESIZE]
    assert numbers(driver, Ring(CQN, address, 64, ring.consumer, ring.record)) == [16]


def test_rings_over_no_memory_are_bad_parameters(driver: Driver, ring: Ring) -> None:
    """SW2HW_CQ, SW2HW_EQ and MODIFY_CQ; the queue that should move stays where it is."""
    nowhere = driver.mtt([0xDEAD0000])
    made = CQC.pack(log_size=4, eqn=COMP_EQN, mtt_addr=nowhere, doorbell_record=ring.record)
    assert driver.try_command(Opcode.SW2HW_CQ, bytes(made), 0x90)[0] == Status.BAD_PARAM
    assert driver.adapter.cqs.get(0x90) is None
    event = EQC.pack(state=9, log_size=4, vector=1, mtt_addr=nowhere)
    assert driver.try_command(Opcode.SW2HW_EQ, bytes(event), 9)[0] == Status.BAD_PARAM
    assert driver.adapter.eqs.get(9) is None
    moved = bytes(CQC.pack(log_size=4, mtt_addr=nowhere))
    assert driver.try_command(Opcode.MODIFY_CQ, moved, CQN)[0] == Status.BAD_PARAM
    post(driver, 5)
    assert numbers(driver, ring) == [5]


def test_resize_out_of_vanished_memory(driver: Driver) -> None:
    extra = 0x40000000
    driver.host.map(extra, 4096)
    context = CQC.pack(log_size=4, eqn=COMP_EQN, mtt_addr=driver.mtt([extra]))
    driver.command(Opcode.SW2HW_CQ, bytes(context), CQN)
    driver.host.unmap(extra)
    _, mtt = driver.buffer(CQE_SIZE << 6)
    moved = bytes(CQC.pack(log_size=6, mtt_addr=mtt))
    assert driver.try_command(Opcode.MODIFY_CQ, moved, CQN)[0] == Status.BAD_PARAM
    queue = driver.completion_queue(CQN)
    assert (queue.size, queue.producer) == (16, 0)
    post(driver)
    assert len(driver.events(EventType.CQ_ERROR)) == 1
    assert driver.try_command(Opcode.MODIFY_CQ, moved, CQN)[0] == Status.BAD_RES_STATE
