"""Memory regions: bounds, rights, keys, PDs, translation, fast registration, write-back."""

from __future__ import annotations

from array import array
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bluebridge.device.layout.mlx4.capabilities import RESERVED_LKEY
from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.contexts import MPT, MPT_SIZE
from bluebridge.device.rdma.memory.region import (
    AccessError,
    MemoryRegion,
    Rights,
    pages_of,
    pieces_of,
)
from tests.models.hca_driver import ALL_RIGHTS, DMPT_BASE, Driver

PD = 1
START = 0x7F0000000123
LENGTH = 0x2EDD
PAGES = [0x200000, 0x201000, 0x500000]  # the first two are neighbours


@pytest.fixture
def key(driver: Driver) -> int:
    """A region of three pages that starts within its first one."""
    return driver.create_mr(START, LENGTH, PAGES)


def resolve(
    driver: Driver, key: int, va: int, length: int, access: int = 0
) -> list[tuple[int, int]]:
    """Access by a queue pair of the right PD."""
    return list(driver.adapter.regions.resolve(key, va, length, access, PD))


def test_neighbouring_pages_become_one_run(driver: Driver, key: int) -> None:
    assert resolve(driver, key, START, LENGTH) == [(0x200123, 0x1EDD), (0x500000, 0x1000)]
    assert resolve(driver, key, START + 0x1EDC, 2) == [(0x201FFF, 1), (0x500000, 1)]
    assert resolve(driver, key, START + LENGTH - 1, 1) == [(0x500FFF, 1)]


@given(first=st.integers(-0x3000, 0x6000), length=st.integers(1, 0x6000))
def test_bounds(first: int, length: int) -> None:
    driver = _shared()
    inside = first >= 0 and first + length <= LENGTH
    if inside:
        runs = resolve(driver, _shared_key, START + first, length)
        assert sum(part for _, part in runs) == length
        page, within = divmod((START & 0xFFF) + first, 0x1000)
        assert runs[0][0] == PAGES[page] + within
    else:
        with pytest.raises(AccessError):
            resolve(driver, _shared_key, START + first, length)


def test_len64_is_all_of_memory_whatever_the_length_says(driver: Driver) -> None:
    """The words that iPXE's `hermon.c: hermon_setup_mpt` writes; its length is 0."""
    words = [0x00007F00, 0, 0x77000010, 0x00123456, *[0] * 6, 0x00400000, *[0] * 5]
    driver.command(Opcode.SW2HW_MPT, b"".join(word.to_bytes(4, "big") for word in words), 0x10)
    regions, pd = driver.adapter.regions, 0x123456
    assert regions.resolve(0x1077, 0x3FF49800, 0x5A, 0, pd) == [(0x3FF49800, 0x5A)]
    assert regions.is_everything(0x1077, int(Rights.LOCAL_WRITE), pd)


@given(va=st.integers(0, (1 << 64) - 1), length=st.integers(1, (1 << 64) - 1))
def test_nothing_wraps_around(va: int, length: int) -> None:
    driver = _shared()
    if va < START or va + length > START + LENGTH:
        with pytest.raises(AccessError):
            resolve(driver, _shared_key, va, length)
    if va + length > 1 << 64:
        for other in (_shared_dma_key, RESERVED_LKEY):
            with pytest.raises(AccessError):
                driver.adapter.regions.resolve(other, va, length, 0, PD, reserved_lkey_ok=True)


@given(st.integers(0, (1 << 32) - 1))
def test_only_the_whole_key_opens_a_region(wrong: int) -> None:
    driver = _shared()
    if wrong in (_shared_key, _shared_dma_key):
        return
    with pytest.raises(AccessError):
        resolve(driver, wrong, START, 1)


@pytest.mark.parametrize("bit", range(32))
def test_each_bit_of_the_key_counts(driver: Driver, key: int, bit: int) -> None:
    with pytest.raises(AccessError):
        resolve(driver, key ^ 1 << bit, START, 1)


@pytest.mark.parametrize("right", list(Rights))
def test_each_right_counts(driver: Driver, right: Rights) -> None:
    all_rights = ALL_RIGHTS | Rights.BIND_WINDOW
    some = driver.create_mr(START, LENGTH, PAGES, rights=all_rights & ~right)
    assert resolve(driver, some, START, 1, all_rights & ~right)
    with pytest.raises(AccessError):
        resolve(driver, some, START, 1, right)
    with pytest.raises(AccessError):
        resolve(driver, some, START, 1, right | Rights.LOCAL_WRITE | Rights.LOCAL_READ)


def test_the_protection_domain_counts(driver: Driver, key: int) -> None:
    for other in (0, 2, 3, 0x10001):
        with pytest.raises(AccessError):
            driver.adapter.regions.resolve(key, START, 1, 0, other)
    assert driver.adapter.regions.resolve(key, START, 1, 0, PD | 1 << 17)


def test_zero_bytes_need_no_key(driver: Driver) -> None:
    assert resolve(driver, 0xDEADBEEF, 0, 0) == []


def test_physical_regions_translate_to_themselves(driver: Driver) -> None:
    assert resolve(driver, _dma(driver), 0x123456789, 77) == [(0x123456789, 77)]


def test_the_reserved_lkey_is_for_those_who_may(driver: Driver) -> None:
    regions = driver.adapter.regions
    runs = regions.resolve(RESERVED_LKEY, 0x1000, 9, Rights.LOCAL_WRITE, 77, reserved_lkey_ok=True)
    assert runs == [(0x1000, 9)]
    with pytest.raises(AccessError):
        regions.resolve(RESERVED_LKEY, 0x1000, 9, 0, PD)


@given(
    pages=st.lists(st.integers(0, 12) | st.just((1 << 52) - 1), min_size=1, max_size=40),
    runs=st.integers(1, 5),
    shift=st.sampled_from([9, 12, 21]),
)
def test_pieces_of_many_pages_are_where_the_pages_are(
    pages: list[int], runs: int, shift: int
) -> None:
    size = 1 << shift
    pages = [page + n & (1 << 64 - shift) - 1 for page in pages for n in range(runs)]
    starts, addresses = pieces_of(array("Q", [page << shift | 7 for page in pages]), size)
    found = []
    for at, address, end in zip(starts, addresses, [*starts[1:], len(pages) * size], strict=True):
        found += [address + offset for offset in range(0, end - at, size)]
    assert found == [page << shift for page in pages]
    joins = sum(b == a + 1 for a, b in pairwise(pages))
    assert len(starts) == len(pages) - joins * (4 * joins >= len(pages))


@given(
    order=st.lists(st.integers(0, 12), min_size=1, max_size=12),
    shift=st.sampled_from([9, 12, 16, 21]),
    data=st.data(),
)
def test_translation_equals_a_walk_page_by_page(
    order: list[int], shift: int, data: st.DataObject
) -> None:
    size = 1 << shift
    head = data.draw(st.integers(0, size - 1))
    length = data.draw(st.integers(1, len(order) * size - head))
    start = 5 * size + head
    pages = [page * size for page in order]
    region = MemoryRegion(0, 0, 0, 0, start, length, shift, False, False, False, False, 0)
    region.set_pages([page | 7 for page in pages[: pages_of(start, length, shift)]], shift)
    offset = data.draw(st.integers(0, length - 1))
    wanted = data.draw(st.integers(1, length - offset))
    runs = region.translate(start + offset, wanted)
    assert sum(part for _, part in runs) == wanted
    position = start + offset
    for address, part in runs:
        for at in {0, part // 2, part - 1}:
            page, within = divmod(position + at - 5 * size, size)
            assert address + at == pages[page] + within
        position += part


def test_large_pages(driver: Driver) -> None:
    key = driver.create_mr(0x40000000, 4 << 20, [0x600000, 0x200000], shift=21)
    assert resolve(driver, key, 0x401FFFFF, 2) == [(0x7FFFFF, 1), (0x200000, 1)]


def test_the_entry_is_mirrored_and_given_back(driver: Driver, key: int) -> None:
    home = DMPT_BASE + (key >> 8) * MPT_SIZE
    (address, _), *_ = driver.adapter.icm.runs(home, MPT_SIZE)
    assert driver.host.peek(address, 1) == b"\0"
    assert MPT.get(driver.host.peek(address, MPT_SIZE), "start") == START
    driver.command(Opcode.HW2SW_MPT, 0, key >> 8, 1)
    assert driver.host.peek(address, 1) == b"\xf0"
    with pytest.raises(AccessError):
        resolve(driver, key, START, 1)


def test_re_registration_through_the_table(driver: Driver, key: int) -> None:
    home = DMPT_BASE + (key >> 8) * MPT_SIZE
    (address, _), *_ = driver.adapter.icm.runs(home, MPT_SIZE)
    driver.command(Opcode.HW2SW_MPT, 0, key >> 8, 1)
    driver.command(Opcode.SYNC_TPT)
    with pytest.raises(AccessError):
        resolve(driver, key, START, 1)
    entry = bytearray(driver.host.peek(address, MPT_SIZE))
    MPT.set(entry, "pd", 9)
    MPT.set(entry, "length", 0x100)
    entry[0] = 0
    driver.host.poke(address, entry)
    driver.command(Opcode.SYNC_TPT)
    regions = driver.adapter.regions
    assert regions.resolve(key, START, 0x100, 0, 9) == [(0x200123, 0x100)]
    with pytest.raises(AccessError):
        regions.resolve(key, START, 0x101, 0, 9)


def test_one_command_takes_a_bounded_number_of_entries_back(driver: Driver) -> None:
    """Each entry may have a million pages: what is given back beyond that is forgotten."""
    keys = [driver.create_mr(START, LENGTH, PAGES) for _ in range(40)]
    for key in keys:
        driver.command(Opcode.HW2SW_MPT, 0, key >> 8, 1)
        home = DMPT_BASE + (key >> 8) * MPT_SIZE
        (address, _), *_ = driver.adapter.icm.runs(home, MPT_SIZE)
        entry = bytearray(driver.host.peek(address, MPT_SIZE))
        entry[0] = 0
        if key is not keys[-1]:
            MPT.set(entry, "length", (1 << 33) - 1)  # more pages than are permitted
        driver.host.poke(address, entry)
    driver.post(Opcode.SYNC_TPT)
    driver.host.run()
    assert len(driver.adapter.regions) == 0


def test_the_table_may_be_gone_when_a_region_is_destroyed(driver: Driver, key: int) -> None:
    driver.command(Opcode.UNMAP_ICM, DMPT_BASE, 64)
    driver.command(Opcode.HW2SW_MPT, 0, key >> 8, 1)
    assert len(driver.adapter.regions) == 0


def test_query_mpt(driver: Driver, key: int) -> None:
    assert MPT.get(driver.query(Opcode.QUERY_MPT, key >> 8), "length") == LENGTH
    assert driver.try_command(Opcode.QUERY_MPT, 0, 0x7000, out=True)[0] == Status.BAD_INDEX


def test_refusals(driver: Driver, key: int) -> None:
    fresh = 0x30
    mtt = driver.mtt(PAGES)
    hole = driver.mtt([0x1000, 0], present=False)

    def entry(start: int = START, length: int = LENGTH, at: int = mtt, **more: int) -> bytes:
        shift = more.pop("entity_size", 12)
        return bytes(driver.mpt(fresh << 8, start, length, at, shift=shift, **more))

    for data, index, status in (
        (entry(), 1 << 19, Status.BAD_INDEX),
        (entry(), key >> 8, Status.BAD_RES_STATE),
        (entry(), fresh + 1, Status.BAD_PARAM),
        (entry(region=0, physical=1), fresh, Status.BAD_PARAM),
        (entry(entity_size=8), fresh, Status.BAD_PARAM),
        (entry(entity_size=32), fresh, Status.BAD_PARAM),
        (entry(start=(1 << 64) - 1), fresh, Status.BAD_PARAM),
        (entry(length=1 << 60), fresh, Status.EXCEED_LIM),
        (entry(length=1 << 30), fresh, Status.ICM_ERROR),
        (entry(at=hole), fresh, Status.BAD_PARAM),
        (entry(at=1 << 29), fresh, Status.ICM_ERROR),
    ):
        assert driver.try_command(Opcode.SW2HW_MPT, data, index)[0] == status, (index, status)
    assert len(driver.adapter.regions) == 1
    driver.command(Opcode.SW2HW_MPT, entry(), fresh)


# -- one device for the many examples of hypothesis ------------------------------------------------

_drivers: list[Driver] = []
_shared_key = 17 << 8
_shared_dma_key = 18 << 8


def _dma(driver: Driver) -> int:
    key = 18 << 8
    entry = driver.mpt(key, 0, (1 << 64) - 1, shift=0, physical=1)
    driver.command(Opcode.SW2HW_MPT, bytes(entry), key >> 8)
    return key


def _shared() -> Driver:
    if not _drivers:
        driver = Driver().start()
        assert driver.create_mr(START, LENGTH, PAGES) == _shared_key
        _dma(driver)
        _drivers.append(driver)
    return _drivers[0]
