"""Firmware commands that take long move on in turns of the loop, with others in between."""

from __future__ import annotations

import pytest

from bluebridge.device.hca.memory.regions import PORTION_PAGES
from bluebridge.device.hca.memory.transfer import NOTED_RUNS
from bluebridge.device.hca.rings.ring_buffer import PORTION_BYTES
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.mlx4 import bar0
from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.contexts import CQC, MAP_ENTRY
from bluebridge.device.layout.mlx4.cqe import CQE_SIZE
from tests.unit.hca_driver import COMP_EQN, MTT_BASE, Driver

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


def post_region(driver: Driver, pages: int) -> None:
    """SW2HW_MPT of so many pages, which lie the other way round; the command may go on."""
    fill_mtt(driver, [PAGE * page for page in reversed(range(pages))])
    entry = driver.mpt(0x100, 0, pages * PAGE)
    driver.host.poke(driver.mailbox_in, bytes(entry).ljust(PAGE, b"\0"))
    driver.post(Opcode.SW2HW_MPT, driver.mailbox_in, 1)


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
    assert first == [((pages - 1) * PAGE, 1)]
    page = (pages - PORTION_PAGES) * PAGE
    assert border == [(page + PAGE - 1, 1), (page - PAGE, 1)]


def test_neighbours_are_joined_across_turns(driver: Driver) -> None:
    pages = 2 * PORTION_PAGES
    fill_mtt(driver, [PAGE * page for page in range(pages)])
    entry = driver.mpt(0x100, 0, pages * PAGE)
    driver.host.poke(driver.mailbox_in, bytes(entry).ljust(PAGE, b"\0"))
    driver.post(Opcode.SW2HW_MPT, driver.mailbox_in, 1)
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
    assert driver.host.notes[-1][1].startswith("SW2HW_MPT")


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
