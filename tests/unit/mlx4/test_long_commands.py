"""Firmware commands that take long move on in turns of the loop, with others in between."""

from __future__ import annotations

from collections.abc import Callable
from time import sleep

import pytest
from pytest import MonkeyPatch

from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.mlx4 import bar0
from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.contexts import CQC, MAP_ENTRY, MPT, MPT_SIZE
from bluebridge.device.layout.mlx4.cqe import CQE_SIZE
from bluebridge.device.mlx4.memory.protection_table import ENTRY_PAGES, PORTION_PAGES
from bluebridge.device.mlx4.rings.ring_buffer import PORTION_BYTES
from bluebridge.device.pci.loop import SOON_SECONDS, EventLoop
from bluebridge.device.rdma.memory.scatter_gather import NOTED_RUNS
from tests.models.hca_driver import COMP_EQN, DMPT_BASE, MTT_BASE, Driver, Ring

PAGE = 4096
CONTROL = bar0.HCR_BASE + 0x18
PORTIONS = 3
CQN = 0x85
LOG_CQES = (PORTIONS * PORTION_BYTES // CQE_SIZE - 1).bit_length()


@pytest.fixture
def driver() -> Driver:
    """With memory for translations of so many portions."""
    driver = Driver(memory=64 << 20).start()
    table = 1 << 20
    entry = MAP_ENTRY.pack(
        virtual=MTT_BASE, page=driver.host.allocate(table, table) >> 12, log_pages=8
    )
    driver.command(Opcode.MAP_ICM, bytes(entry), 1)
    return driver


def fill_mtt(driver: Driver, pages: list[int]) -> None:
    """The first entries of the table name these pages."""
    (address, _), *_ = driver.adapter.icm.runs(MTT_BASE, 8 * len(pages))
    driver.host.poke(address, b"".join((page | 1).to_bytes(8, "big") for page in pages))


def post_region(driver: Driver, pages: int, *, step: int = -1, out_param: int = 0) -> None:
    """SW2HW_MPT of so many pages, by default the other way round; the command may go on."""
    fill_mtt(driver, [PAGE * page for page in range(pages)[::step]])
    entry = driver.mpt(0x100, 0, pages * PAGE)
    driver.host.poke(driver.mailbox_in, bytes(entry).ljust(PAGE, b"\0"))
    driver.post(Opcode.SW2HW_MPT, driver.mailbox_in, 1, out_param=out_param)


def give_back(driver: Driver, count: int, pages: int, **changes: int) -> None:
    """Regions of the same pages that were given back and edited in the table of entries."""
    fill_mtt(driver, [PAGE * page for page in range(pages)])
    for index in range(1, count + 1):
        driver.command(Opcode.SW2HW_MPT, bytes(driver.mpt(index << 8, 0, pages * PAGE)), index)
        driver.command(Opcode.HW2SW_MPT, 0, index, 1)
        (address, _), *_ = driver.adapter.icm.runs(DMPT_BASE + index * MPT_SIZE, MPT_SIZE)
        entry = bytearray(driver.host.peek(address, MPT_SIZE))
        MPT.set(entry, "status", 0)
        for name, value in changes.items():
            MPT.set(entry, name, value)
        driver.host.poke(address, entry)


def running(driver: Driver) -> bool:
    """Whether the driver sees a command under way."""
    return bool(driver.read32(CONTROL) & bar0.HCR_GO)


def status(driver: Driver) -> Status:
    """How the last command ended."""
    assert not running(driver)
    return Status(driver.read32(CONTROL) >> 24)


def turns(driver: Driver) -> int:
    """Turns of the loop until the command is done."""
    count = 0
    while running(driver):
        driver.host.turn()
        count += 1
    return count


def test_a_region_of_many_pages_takes_turns(driver: Driver) -> None:
    pages = PORTIONS * PORTION_PAGES
    post_region(driver, pages)
    assert 1 not in driver.adapter.regions
    assert turns(driver) == PORTIONS - 1
    assert status(driver) == Status.OK
    first = driver.adapter.regions.resolve(0x100, 0, 1, 0, 1)
    border = driver.adapter.regions.resolve(0x100, PORTION_PAGES * PAGE - 1, 2, 0, 1)
    assert list(first) == [((pages - 1) * PAGE, 1)]
    page = (pages - PORTION_PAGES) * PAGE
    assert list(border) == [(page + PAGE - 1, 1), (page - PAGE, 1)]


def test_neighbours_are_joined_across_turns(driver: Driver) -> None:
    pages = 2 * PORTION_PAGES
    post_region(driver, pages, step=1)
    assert turns(driver) == 1
    resolved = driver.adapter.regions.resolve(0x100, 5, pages * PAGE - 5, 0, 1)
    assert resolved == [(5, pages * PAGE - 5)]


def test_few_pages_are_done_at_once(driver: Driver) -> None:
    post_region(driver, PORTION_PAGES)
    assert status(driver) == Status.OK


def test_a_page_that_is_not_present_is_found_late(driver: Driver) -> None:
    pages = 2 * PORTION_PAGES
    post_region(driver, pages)
    (address, _), *_ = driver.adapter.icm.runs(MTT_BASE, 8 * pages)
    driver.host.poke(address + 8 * (pages - 1), bytes(8))
    turns(driver)
    assert status(driver) == Status.BAD_PARAM
    assert 1 not in driver.adapter.regions


def test_nothing_is_taken_while_a_command_runs(driver: Driver) -> None:
    post_region(driver, 2 * PORTION_PAGES)
    driver.post(Opcode.NOP)
    assert running(driver)
    assert turns(driver) == 1
    assert driver.host.told[-1].values["name"] == "SW2HW_MPT"


def test_a_reset_ends_the_command(driver: Driver) -> None:
    post_region(driver, 2 * PORTION_PAGES)
    driver.write32(bar0.RESET_OFFSET, bar0.RESET_VALUE)
    assert not running(driver)
    driver.host.turn()
    assert not len(driver.adapter.regions)
    assert driver.read32(CONTROL) == 0


def test_an_internal_error_keeps_the_command_waiting_for_ever(driver: Driver) -> None:
    post_region(driver, 2 * PORTION_PAGES)
    driver.hca.fail("gone")
    driver.host.turn()
    assert running(driver)
    assert not len(driver.adapter.regions)


def test_many_middling_regions_take_turns_to_become_valid(driver: Driver) -> None:
    """SYNC_TPT of regions each of which is done at once."""
    give_back(driver, 16, PORTION_PAGES // 4)
    driver.post(Opcode.SYNC_TPT)
    assert 0 < len(driver.adapter.regions) <= 4
    assert turns(driver) >= 3
    assert status(driver) == Status.OK
    assert len(driver.adapter.regions) == 16


def test_regions_that_cannot_become_valid_take_turns_too(driver: Driver) -> None:
    """Which is known after the last of their pages."""
    give_back(driver, 4, PORTION_PAGES)
    (address, _), *_ = driver.adapter.icm.runs(MTT_BASE, 8 * PORTION_PAGES)
    driver.host.poke(address + 8 * (PORTION_PAGES - 1), bytes(8))
    driver.post(Opcode.SYNC_TPT)
    assert turns(driver) == 3
    assert status(driver) == Status.OK
    assert len(driver.adapter.regions) == 0


def test_many_entries_that_software_keeps_take_turns(driver: Driver) -> None:
    give_back(driver, 3 * PORTION_PAGES // ENTRY_PAGES, 1, status=0xF)
    driver.post(Opcode.SYNC_TPT)
    assert turns(driver) == 2
    assert status(driver) == Status.OK
    assert len(driver.adapter.regions) == 0


def test_a_large_ring_takes_turns_and_few_lines(driver: Driver) -> None:
    """Of pages that are no neighbours: all of them belong to hardware in the end."""
    length = CQE_SIZE << LOG_CQES
    base = driver.host.allocate(length)
    fill_mtt(driver, [base + PAGE * (page ^ 1) for page in range(length // PAGE)])
    context = CQC.pack(log_size=LOG_CQES, eqn=COMP_EQN, mtt_addr=0)
    driver.host.poke(driver.mailbox_in, bytes(context).ljust(PAGE, b"\0"))
    before = len(driver.host.events)
    driver.post(Opcode.SW2HW_CQ, driver.mailbox_in, CQN)
    assert turns(driver) >= PORTIONS
    assert status(driver) == Status.OK
    owners = driver.host.peek(base, length)[CQE_SIZE - 1 :: CQE_SIZE]
    assert owners == b"\x80" * (1 << LOG_CQES)
    fills = [
        event
        for event in driver.host.events[before:]
        if event.kind == Kind.DMA_WRITE and event.what == What.OWNERSHIP
    ]
    assert len(fills) == NOTED_RUNS + 1
    assert sum(event.length for event in fills) == length


def test_entries_that_come_while_a_large_ring_is_prepared_are_counted(driver: Driver) -> None:
    """Each moves the lap of a place in the new ring on: none there is software's too soon."""
    length = CQE_SIZE << LOG_CQES
    base, first = driver.host.allocate(length), driver.host.allocate(PAGE)
    fill_mtt(driver, [first, *range(base, base + length, PAGE)])
    ring = Ring(CQN, first, 16, record=driver.host.allocate(64, 64))
    context = CQC.pack(log_size=4, eqn=COMP_EQN, doorbell_record=ring.record)
    driver.command(Opcode.SW2HW_CQ, bytes(context), CQN)
    context = CQC.pack(log_size=LOG_CQES, mtt_addr=8)
    driver.host.poke(driver.mailbox_in, bytes(context).ljust(PAGE, b"\0"))
    driver.post(Opcode.MODIFY_CQ, driver.mailbox_in, CQN)
    while running(driver):
        driver.completion_queue(CQN).post_many([bytes(CQE_SIZE)] * 9)
        assert len(driver.poll_cq(ring)) == 9
        driver.host.turn()
    assert status(driver) == Status.OK
    assert len(driver.poll_cq(ring)) == 1  # the marker
    assert ring.consumer > 9 * PORTIONS
    owners = driver.host.peek(base, length)[CQE_SIZE - 1 :: CQE_SIZE]
    assert owners == bytes(ring.consumer) + b"\x80" * ((1 << LOG_CQES) - ring.consumer)


def test_the_output_is_the_same_for_few_portions_and_for_many(driver: Driver) -> None:
    """There is none."""
    outputs = []
    for pages in (1, PORTIONS * PORTION_PAGES):
        post_region(driver, pages, out_param=driver.mailbox_out)
        turns(driver)
        assert status(driver) == Status.OK
        outputs.append([driver.read32(bar0.HCR_BASE + word) for word in (0x0C, 0x10)])
        driver.command(Opcode.HW2SW_MPT, 0, 1, 1)
    assert outputs == [[0, 0], [0, 0]]


def test_portions_belong_to_no_work_request(driver: Driver, monkeypatch: MonkeyPatch) -> None:
    """Whatever another guest's queue pair did before them in the loop."""
    works = [0]
    writes: list[int] = []
    write = driver.host.write

    def noted(address: int, data: bytes, what: What, obj: int = 0) -> None:
        writes.append(works[-1])
        write(address, data, what, obj)

    monkeypatch.setattr(driver.host, "resume", works.append)
    monkeypatch.setattr(driver.host, "write", noted)
    post_region(driver, PORTIONS * PORTION_PAGES)
    while running(driver):
        works.append(0x123)
        driver.host.turn()
    assert status(driver) == Status.OK
    assert writes and not any(writes)


def test_thousands_of_busy_queue_pairs_of_another_guest_cost_one_of_them_per_portion(
    driver: Driver, monkeypatch: MonkeyPatch
) -> None:
    """Each takes its share of the loop, at once or by a timer, time and again."""
    loop = EventLoop()
    shares = 0

    def share(schedule: Callable[[Callable[[], None]], object]) -> Callable[[], None]:
        def run() -> None:
            nonlocal shares
            shares += 1
            sleep(SOON_SECONDS)
            schedule(run)

        return run

    def later(action: Callable[[], None]) -> None:
        loop.call_later(0, action)

    for _ in range(4096):
        loop.call_soon(share(loop.call_soon))
        later(share(later))
    for name in ("call_soon", "call_later", "call_next_turn"):
        monkeypatch.setattr(driver.host, name, getattr(loop, name))
    post_region(driver, PORTIONS * PORTION_PAGES)
    while running(driver) and shares < 100:
        loop.step(0)
    loop.close()
    assert status(driver) == Status.OK
    assert shares <= 2 * PORTIONS
