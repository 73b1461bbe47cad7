"""Interrupt moderation: events that stand for many entries, and none that is forgotten."""

from __future__ import annotations

import pytest

from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.contexts import CQC
from bluebridge.device.layout.mlx4.cqe import CQE
from tests.models.hca_driver import Driver, Ring

CQN = 0x81


@pytest.fixture
def ring(driver: Driver) -> Ring:
    """A completion queue of sixteen entries, armed."""
    ring = driver.create_cq(CQN, 4)
    driver.arm_cq(ring, 1)
    driver.host.take_interrupts()
    return ring


def moderate(driver: Driver, period: int, count: int) -> None:
    """MODIFY_CQ as `mlx4_en_set_cq_moder` sends it."""
    context = bytes(CQC.pack(period=period, max_count=count))
    driver.command(Opcode.MODIFY_CQ, context, CQN, 1)


def post(driver: Driver, count: int) -> None:
    """Entries in one go."""
    queue = driver.adapter.cqs.get(CQN)
    assert queue is not None
    queue.post_many([bytes(CQE.pack(qpn=5, wqe_index=index)) for index in range(count)])


def fired(driver: Driver) -> bool:
    """Whether an event came since the last look."""
    return bool(driver.host.take_interrupts())


def test_a_short_period_ends_with_the_work_at_hand(driver: Driver, ring: Ring) -> None:
    moderate(driver, 16, 44)
    post(driver, 3)
    assert not fired(driver)
    driver.host.run()
    assert fired(driver)
    driver.host.run(1.0)
    assert not fired(driver)
    assert len(driver.poll_cq(ring)) == 3


def test_a_long_period_is_waited_for(driver: Driver, ring: Ring) -> None:
    moderate(driver, 20000, 44)
    post(driver, 1)
    driver.host.run(0.019)
    assert not fired(driver)
    driver.host.run(0.002)
    assert fired(driver)


def test_enough_entries_are_reported_at_once(driver: Driver, ring: Ring) -> None:
    moderate(driver, 20000, 4)
    post(driver, 3)
    assert not fired(driver)
    post(driver, 1)
    assert fired(driver)
    driver.poll_eq(driver.comp_eq)
    driver.eq_doorbell(driver.comp_eq)
    driver.poll_cq(ring)
    driver.arm_cq(ring, 2)
    post(driver, 1)
    driver.host.run(0.5)
    assert fired(driver)


@pytest.mark.parametrize(("period", "count"), [(0, 44), (16, 0), (16, 1), (0, 0)])
def test_without_period_or_count_nothing_waits(
    driver: Driver, ring: Ring, period: int, count: int
) -> None:
    moderate(driver, period, count)
    post(driver, 1)
    assert fired(driver)


def test_entries_that_wait_at_arming_fire_at_once(driver: Driver, ring: Ring) -> None:
    moderate(driver, 20000, 44)
    post(driver, 1)
    driver.arm_cq(ring, 1)
    assert fired(driver)


def test_a_queue_that_goes_takes_its_timer_along(driver: Driver, ring: Ring) -> None:
    moderate(driver, 20000, 44)
    post(driver, 1)
    driver.command(Opcode.HW2SW_CQ, 0, CQN, 1)
    driver.host.run(1.0)
    assert not fired(driver)
    assert ring.consumer == 0


def test_bursts_wrap_around_the_ring(driver: Driver, ring: Ring) -> None:
    for _ in range(9):
        post(driver, 7)
        assert [CQE.get(raw, "wqe_index") for raw in driver.poll_cq(ring)] == list(range(7))
    post(driver, 16)
    post(driver, 1)  # one too many
    assert driver.adapter.cqs.get(CQN).broken  # type: ignore[union-attr]
    assert len(driver.poll_cq(ring)) == 16
