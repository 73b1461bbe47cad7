"""Event queues: ownership, arming, the races of re-arming, overflow, routing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.mlx4.commands import MODIFIER_UNMAP_EQ, Opcode, Status
from bluebridge.device.layout.mlx4.contexts import EQC
from bluebridge.device.layout.mlx4.eqe import EQE_SIZE, EventType
from tests.models.hca_driver import ASYNC_EQN, COMP_EQN, Driver


@pytest.fixture
def driver() -> Driver:
    """A started device, no interrupt pending."""
    started = Driver().start()
    started.host.take_interrupts()
    return started


def post(driver: Driver, number: int = 0) -> None:
    """A completion event on the completion EQ (vector 1)."""
    driver.adapter.eqs.post(COMP_EQN, bytes(4) + number.to_bytes(4, "big") + bytes(24))


def numbers(driver: Driver) -> list[int]:
    """The events in the completion EQ."""
    return [int.from_bytes(bytes(e["data"])[:4], "big") for e in driver.poll_eq(driver.comp_eq)]


def test_one_interrupt_until_armed_again(driver: Driver) -> None:
    post(driver, 1)
    post(driver, 2)
    assert driver.host.take_interrupts() == [1]
    assert numbers(driver) == [1, 2]
    driver.eq_doorbell(driver.comp_eq)
    assert driver.host.take_interrupts() == []
    post(driver, 3)
    assert driver.host.take_interrupts() == [1]


def test_an_event_between_the_last_look_and_the_arming_fires(driver: Driver) -> None:
    post(driver, 1)
    assert numbers(driver) == [1]
    post(driver, 2)
    driver.host.take_interrupts()
    driver.eq_doorbell(driver.comp_eq)
    assert driver.host.take_interrupts() == [1]
    post(driver, 3)
    assert driver.host.take_interrupts() == []


def test_a_full_ring_loses_nothing(driver: Driver) -> None:
    count = 3 * driver.comp_eq.size + 7
    for number in range(count):
        post(driver, number)
    seen: list[int] = []
    while fresh := numbers(driver):
        seen += fresh
        driver.eq_doorbell(driver.comp_eq)
    assert seen == list(range(count))


def test_the_backlog_of_all_rings_together_is_bounded(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bluebridge.device.rings.event_ring.MAX_BACKLOG", 10)
    other = driver.create_eq(7, 2, 4)
    for number in range(other.size + 8):
        driver.adapter.eqs.post(7, bytes(4) + number.to_bytes(4, "big") + bytes(24))
    for number in range(driver.comp_eq.size + 8):
        post(driver, number)
    assert numbers(driver) == list(range(driver.comp_eq.size))
    driver.eq_doorbell(driver.comp_eq)
    assert numbers(driver) == [driver.comp_eq.size, driver.comp_eq.size + 1]
    driver.command(Opcode.HW2SW_EQ, 0, 7, 1)  # what it held is free for others
    for number in range(driver.comp_eq.size + 9):
        post(driver, number)
    driver.eq_doorbell(driver.comp_eq)
    assert len(numbers(driver)) == driver.comp_eq.size


def test_a_queue_that_loses_events_is_named_once(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bluebridge.device.rings.event_ring.MAX_BACKLOG", 2)
    for number in range(driver.comp_eq.size + 5):
        post(driver, number)
    (event,) = driver.events(EventType.EQ_OVERFLOW)
    assert int.from_bytes(bytes(event["data"])[:4], "big") == COMP_EQN
    while numbers(driver):
        driver.eq_doorbell(driver.comp_eq)
    for number in range(driver.comp_eq.size + 3):
        post(driver, number)
    assert len(driver.events(EventType.EQ_OVERFLOW)) == 1


def test_the_queue_of_overflows_tells_of_its_own_when_it_has_room(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bluebridge.device.rings.event_ring.MAX_BACKLOG", 2)
    for number in range(driver.async_eq.size + 5):
        driver.adapter.eqs.post_numbered(EventType.COMM_EST, number)
    assert driver.events(EventType.EQ_OVERFLOW) == []
    told = [event for _ in range(3) for event in driver.events(EventType.EQ_OVERFLOW)]
    assert [int.from_bytes(bytes(event["data"])[:4], "big") for event in told] == [ASYNC_EQN]


@given(st.lists(st.sampled_from(["post", "poll", "arm", "ci"]), max_size=400))
def test_no_event_is_ever_lost_or_unannounced(steps: list[str]) -> None:
    driver = Driver().start()
    driver.host.take_interrupts()
    sent, seen, armed = 0, 0, True
    for step in steps:
        if step == "post":
            post(driver, sent)
            sent += 1
        elif step == "poll":
            fresh = numbers(driver)
            assert fresh == list(range(seen, seen + len(fresh)))
            seen += len(fresh)
        else:
            driver.eq_doorbell(driver.comp_eq, arm=step == "arm")
            armed = armed or step == "arm"
        fired = driver.host.take_interrupts()
        assert fired in ([], [1])
        if fired:
            assert armed
            armed = False
        assert not (armed and sent > seen and step != "poll" and step != "ci")


def test_the_owner_byte_is_written_with_the_entry_in_one_event(driver: Driver) -> None:
    driver.host.events.clear()
    post(driver, 9)
    (event,) = driver.host.events
    assert (event.what, event.obj, event.length) == (What.EQE, COMP_EQN, EQE_SIZE)


def test_65536_entries_are_filled_within_a_blink() -> None:
    driver = Driver(memory=16 << 20).start()
    ring = driver.create_eq(7, 2, 16)
    owners = driver.host.peek(ring.address, EQE_SIZE << 16)[31::32]
    assert owners == b"\x80" * 65536


def test_routing_of_asynchronous_events(driver: Driver) -> None:
    driver.command(Opcode.MAP_EQ, 1 << 0x14, COMP_EQN)
    driver.adapter.eqs.post_async(0x14, b"\0\0\0\5", 1)
    (event,) = driver.poll_eq(driver.comp_eq)
    assert (event["type"], event["subtype"], bytes(event["data"])[:4]) == (0x14, 1, b"\0\0\0\5")
    driver.command(Opcode.MAP_EQ, 1 << 0x14, COMP_EQN | MODIFIER_UNMAP_EQ)
    driver.adapter.eqs.post_async(0x14, b"")
    assert driver.poll_eq(driver.comp_eq) == [] == driver.poll_eq(driver.async_eq)
    assert driver.try_command(Opcode.MAP_EQ, 1, 99)[0] == Status.BAD_INDEX


def test_refusals(driver: Driver) -> None:
    address, mtt = driver.buffer(4096)
    good = {"state": 9, "log_size": 7, "vector": 1, "mtt_addr": mtt}
    for change, eqn, status in (
        ({}, 128, Status.BAD_INDEX),
        ({}, ASYNC_EQN, Status.BAD_RES_STATE),
        ({"vector": 200}, 9, Status.BAD_PARAM),
        ({"log_size": 31}, 9, Status.BAD_PARAM),
        ({"log_page_size": 31}, 9, Status.BAD_PARAM),
        ({"mtt_addr": 1 << 29}, 9, Status.ICM_ERROR),
        ({"mtt_addr": mtt + 8}, 9, Status.BAD_PARAM),
    ):
        context = bytes(EQC.pack(good | change))
        assert driver.try_command(Opcode.SW2HW_EQ, context, eqn)[0] == status, change
    assert not any(driver.host.peek(address, 4096))


def test_a_destroyed_ring_is_left_alone(driver: Driver) -> None:
    driver.command(Opcode.HW2SW_EQ, 0, COMP_EQN, 1)
    post(driver)
    assert driver.poll_eq(driver.comp_eq) == []
    assert driver.host.take_interrupts() == []


def test_indices_wrap_at_24_bits(driver: Driver) -> None:
    queue = driver.adapter.eqs.get(COMP_EQN)
    assert queue is not None
    queue.producer = queue.consumer = driver.comp_eq.consumer = (1 << 24) - 3
    for number in range(6):
        post(driver, number)
    assert numbers(driver) == list(range(6))
    driver.eq_doorbell(driver.comp_eq)
    assert queue.waiting == 0
