"""Fields of contexts that Linux never sets, and the commands that read contexts back."""

from __future__ import annotations

import pytest

from bluebridge.device.layout.mlx4 import uar
from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.contexts import CQC, EQC, MPT, SRQC
from bluebridge.device.layout.mlx4.eqe import EventType
from tests.models.hca_driver import ALL_RIGHTS, UAR_PAGE, Driver, Ring

EQN, CQN, SRQN, VECTOR = 9, 0x90, 7, 3
FIRED, ALWAYS_ARMED = 0xA, 0xB


def _eq(driver: Driver, log_size: int = 4, **fields: int) -> Ring:
    """An event queue of its own, which the completion queues below use."""
    return driver.create_eq(EQN, VECTOR, log_size, **fields)


def _cq(driver: Driver, log_size: int = 4, **fields: int) -> Ring:
    return driver.create_cq(CQN, log_size, eqn=EQN, **fields)


def _complete(driver: Driver, count: int = 1) -> None:
    """Completions of nobody's work requests."""
    queue = driver.completion_queue(CQN)
    for _ in range(count):
        queue.post(bytes(32))


def _events(driver: Driver) -> int:
    return driver.host.interrupts.count(VECTOR)


def test_an_event_queue_that_begins_as_fired_interrupts_when_it_was_armed(driver: Driver) -> None:
    """As iPXE and Etherboot hand theirs over, which have no interrupt handler."""
    ring = _eq(driver, state=FIRED)
    cq = _cq(driver)
    driver.arm_cq(cq, 1)
    _complete(driver)
    assert len(driver.poll_eq(ring)) == 1 and not _events(driver)
    driver.eq_doorbell(ring)
    driver.arm_cq(cq, 2)
    _complete(driver)
    assert _events(driver) == 1


def test_an_event_queue_that_is_always_armed_is_asked_about(driver: Driver) -> None:
    ring = _eq(driver, state=ALWAYS_ARMED)
    cq = _cq(driver)
    for sn in (1, 2):
        driver.arm_cq(cq, sn)
        _complete(driver)
        cq.consumer += 1
    context = driver.query(Opcode.QUERY_EQ, EQN)
    assert (EQC.get(context, "state"), EQC.get(context, "producer_index")) == (ALWAYS_ARMED, 2)
    assert EQC.get(context, "vector") == VECTOR
    ring.consumer = 2
    driver.eq_doorbell(ring)
    assert EQC.get(driver.query(Opcode.QUERY_EQ, EQN), "consumer_index") == 2
    assert _events(driver) == 2


def test_queries_tell_the_state_of_queues_and_of_no_others(driver: Driver) -> None:
    _eq(driver, state=9)
    cq = _cq(driver, period=40, max_count=6)
    _complete(driver, 2)
    driver.arm_cq(cq, 1)
    assert EQC.get(driver.query(Opcode.QUERY_EQ, EQN), "state") == FIRED
    context = driver.query(Opcode.QUERY_CQ, CQN)
    told = [CQC.get(context, name) for name in ("producer_index", "last_notified", "period")]
    assert told == [2, 2, 40] and CQC.get(context, "uar") == UAR_PAGE
    for opcode, number in ((Opcode.QUERY_EQ, 10), (Opcode.QUERY_CQ, 0x91)):
        assert driver.try_command(opcode, 0, number, out=True)[0] == Status.BAD_INDEX


@pytest.mark.parametrize(
    ("opcode", "number", "table"), [(Opcode.HW2SW_EQ, EQN, EQC), (Opcode.HW2SW_CQ, CQN, CQC)]
)
def test_a_queue_that_is_taken_back_leaves_its_context(
    driver: Driver, opcode: Opcode, number: int, table: object
) -> None:
    _eq(driver)
    _cq(driver)
    assert driver.query(opcode, number)[0x0C] & 0x1F == 4  # log_size of both
    driver.host.poke(driver.mailbox_out, bytes(64))
    assert driver.try_command(opcode, 0, number, out=True)[0] == Status.OK  # there is none
    assert not any(driver.host.peek(driver.mailbox_out, 64))


def test_a_completion_queue_may_be_written_over(driver: Driver) -> None:
    """Software that counts by other means never tells its consumer index."""
    _eq(driver)
    cq = _cq(driver, log_size=2, overrun_ignore=1)
    _complete(driver, 11)
    queue = driver.completion_queue(CQN)
    assert not queue.broken
    queue.post_many([bytes(32)] * 9)
    assert not queue.broken and queue.producer == 20
    assert not driver.events(EventType.CQ_ERROR)
    owners = driver.host.peek(cq.address, 128)[31::32]
    assert owners == b"\0\0\0\0" and 20 & 4  # entries 16 to 19 stand there, on an even lap


def test_an_event_queue_may_be_written_over(driver: Driver) -> None:
    ring = _eq(driver, log_size=2, overrun_ignore=1)
    cq = _cq(driver)
    for sn in range(1, 8):
        driver.arm_cq(cq, sn)
        _complete(driver)
        cq.consumer += 1
    context = driver.query(Opcode.QUERY_EQ, EQN)
    assert EQC.get(context, "producer_index") == 7
    owners = driver.host.peek(ring.address, 128)[31::32]
    assert owners == b"\x80\x80\x80\0"  # the seventh took the place of the third


def test_a_new_completion_queue_moderates_as_its_context_says(driver: Driver) -> None:
    _eq(driver)
    cq = _cq(driver, period=1000, max_count=3)
    driver.arm_cq(cq, 1)
    _complete(driver, 2)
    assert not _events(driver)
    _complete(driver)
    assert _events(driver) == 1


def test_an_event_for_an_entry_that_is_yet_to_come(driver: Driver) -> None:
    """CQ doorbell command 3 (PRM: request notification for multiple completions)."""
    ring = _eq(driver)
    cq = _cq(driver)
    cq.consumer = 3  # the doorbell's index: that of the fourth entry
    driver.arm_cq(cq, 1, uar.CQ_ARM_COUNT)
    _complete(driver, 3)
    assert not driver.poll_eq(ring)
    _complete(driver)
    assert len(driver.poll_eq(ring)) == 1
    driver.arm_cq(cq, 2, uar.CQ_ARM_COUNT)  # it is there already
    assert len(driver.poll_eq(ring)) == 1
    cq.consumer = 6
    driver.arm_cq(cq, 3, uar.CQ_ARM_COUNT)
    queue = driver.completion_queue(CQN)
    queue.post_many([bytes(32)] * 5)
    assert len(driver.poll_eq(ring)) == 1


def test_a_shared_receive_queue_is_told_as_it_was_made(driver: Driver) -> None:
    _, mtt = driver.buffer(64 << 5)
    record = driver.host.allocate(64, 64)
    made = {"log_size": 5, "log_stride": 2, "pd": 3, "mtt_addr": mtt, "doorbell_record": record}
    driver.command(Opcode.SW2HW_SRQ, bytes(SRQC.pack(made, xrcd=1, cqn=0x80)), SRQN)
    context = driver.query(Opcode.QUERY_SRQ, SRQN)
    told = {name: SRQC.get(context, name) for name in (*made, "xrcd", "cqn", "srqn")}
    assert told == {**made, "xrcd": 1, "cqn": 0x80, "srqn": SRQN}


@pytest.mark.parametrize("field", ["first_byte_offset", "mtt_rep"])
def test_what_a_region_cannot_be_is_refused(driver: Driver, field: str) -> None:
    page = driver.host.allocate(4096)
    entry = driver.mpt(0x2000, page, 4096, driver.mtt([page]), rights=ALL_RIGHTS)
    MPT.set(entry, field, 1)
    assert driver.try_command(Opcode.SW2HW_MPT, bytes(entry), 0x20)[0] == Status.BAD_PARAM
    assert 0x20 not in driver.adapter.regions
