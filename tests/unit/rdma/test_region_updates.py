"""Changes of regions in use, indirect regions, and pages that are absent: no card asks for it yet.

ConnectX-3 registers whole regions only; what is here is what another card's updates of keys need.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import process_time

import pytest

from bluebridge.device.rdma.memory import regions as regions_module
from bluebridge.device.rdma.memory.region import (
    ALL_RIGHTS,
    NOWHERE,
    READ_ONLY,
    AbsentError,
    AccessError,
    MemoryRegion,
    Part,
    Rights,
)
from bluebridge.device.rdma.memory.regions import (
    MAX_DEPTH,
    MAX_RUNS,
    Entries,
    Field,
    MemoryRegions,
    Values,
)

PD, PAGE = 3, 4096
ABSENT_KEY = 0xFFFFFE00
START = 0x7F0000000800
READ = int(Rights.LOCAL_READ)


@pytest.fixture
def regions() -> MemoryRegions:
    return MemoryRegions(
        reserved_lkey=0, pd_bits=24, page_shifts=range(12, 31), most_pages=64, absent_key=ABSENT_KEY
    )


def free_key(regions: MemoryRegions, index: int, room: int = 16) -> int:
    """A region that nothing was said about yet, with room for so many entries."""
    region = MemoryRegion(
        index, index << 8, PD, 0, 0, 0, 12,
        physical=False, fast=True, may_invalidate=True, free=True, max_pages=room,
    )  # fmt: skip
    regions.add(region)
    return index << 8


def pages(*addresses: int) -> Entries:
    return Entries(12, lambda count: addresses[:count], len(addresses))


def registered(regions: MemoryRegions, index: int, *addresses: int) -> int:
    """A region over these pages, from the middle of the first one on."""
    key = free_key(regions, index)
    values = Values(key, rights=ALL_RIGHTS, start=START, length=PAGE * len(addresses) - 0x800)
    regions.update(key, regions_module.REGISTERED, values, pages(*addresses))
    return key


def indirect(regions: MemoryRegions, index: int, *parts: Part, start: int = 0) -> int:
    key = free_key(regions, index)
    length = sum(part.length for part in parts)
    values = Values(key, rights=ALL_RIGHTS, start=start, length=length)
    regions.update(key, regions_module.REGISTERED, values, Entries(parts=parts))
    return key


def where(regions: MemoryRegions, key: int, va: int, length: int) -> Sequence[tuple[int, int]]:
    return list(regions.resolve(key, va, length, READ, PD))


def test_a_mask_names_what_of_a_region_in_use_changes(regions: MemoryRegions) -> None:
    key = registered(regions, 1, 0x10000, 0x30000)
    before = where(regions, key, START, 0x1000)
    regions.update(key, Field.RIGHTS, Values(key=9, rights=READ, start=1, length=1))
    assert where(regions, key, START, 0x1000) == before == [(0x10800, 0x800), (0x30000, 0x800)]
    with pytest.raises(AccessError, match="lacks LOCAL_WRITE"):
        regions.resolve(key, START, 1, int(Rights.LOCAL_WRITE), PD)
    regions.update(key, Field.KEY | Field.DOMAIN, Values(key=key | 7, pd=PD + 1))
    with pytest.raises(AccessError, match="not valid"):
        where(regions, key, START, 1)
    assert regions.resolve(key | 7, START, 1, READ, PD + 1) == [(0x10800, 1)]
    regions.update(key, Field.START, Values(start=0x800))
    assert regions.resolve(key | 7, 0x800, 1, READ, PD + 1) == [(0x10800, 1)]


def test_a_region_grows_no_further_than_its_pages(regions: MemoryRegions) -> None:
    """Memory behind its last page is not its own."""
    key = registered(regions, 1, 0x10000, 0x30000)
    regions.update(key, Field.LENGTH, Values(length=PAGE))
    for mask in (Field.LENGTH, Field.START | Field.LENGTH):
        with pytest.raises(AccessError, match="no region"):
            regions.update(key, mask, Values(start=START + 1, length=2 * PAGE - 0x800 + 1))
    regions.update(key, Field.LENGTH, Values(length=2 * PAGE - 0x800))
    assert where(regions, key, START + 2 * PAGE - 0x801, 1) == [(0x30FFF, 1)]
    free = free_key(regions, 2)
    regions.update(free, Field.LENGTH, Values(length=8))
    with pytest.raises(AccessError, match="no region"):
        regions.update(free, Field.FREE, Values(free=False))


def test_a_translation_is_changed_from_an_entry_on(regions: MemoryRegions) -> None:
    key = registered(regions, 1, 0x10000, 0x11000, 0x12000)
    regions.update(key, 0, Values(), pages(0x50000), 1)
    found = where(regions, key, START, 3 * PAGE - 0x800)
    assert found == [(0x10800, 0x800), (0x50000, PAGE), (0x12000, PAGE)]
    for at in (3, 4):
        with pytest.raises(AccessError, match="1 entries from"):
            regions.update(key, 0, Values(), pages(0x60000), at)
    assert where(regions, key, START, 3 * PAGE - 0x800) == found


def test_pages_that_are_absent_are_told_apart(regions: MemoryRegions) -> None:
    key = registered(regions, 1, 0x10000, NOWHERE, 0x12000)
    assert where(regions, key, START, 0x800) == [(0x10800, 0x800)]
    with pytest.raises(AbsentError) as told:
        where(regions, key, START, 0x801)
    assert (told.value.key, told.value.address) == (key, START + 0x800)
    regions.update(key, 0, Values(), pages(0x11000), 1)
    assert where(regions, key, START, 3 * PAGE - 0x800) == [(0x10800, 3 * PAGE - 0x800)]
    regions.update(key, 0, Values(), pages(NOWHERE), 2)
    assert where(regions, key, START, PAGE) == [(0x10800, PAGE)]
    with pytest.raises(AbsentError):
        where(regions, key, START + 3 * PAGE - 0x801, 1)


def test_a_page_may_be_lent_for_reading_only(regions: MemoryRegions) -> None:
    """A process has not written to it yet: it may get another one when it does."""
    key = free_key(regions, 1)
    values = Values(key, rights=ALL_RIGHTS, start=START, length=PAGE)
    lent = pages(0x10000 | READ_ONLY, 0x30000)._replace(lent=True)
    regions.update(key, regions_module.REGISTERED, values, lent)
    assert where(regions, key, START, PAGE) == [(0x10800, 0x800), (0x30000, 0x800)]
    for right in (Rights.LOCAL_WRITE, Rights.REMOTE_WRITE, Rights.REMOTE_ATOMIC):
        with pytest.raises(AbsentError):
            regions.resolve(key, START, 8, int(right), PD)
        assert regions.resolve(key, START + 0x800, 8, int(right), PD) == [(0x30000, 8)]


def test_one_page_of_a_large_region_is_brought_in_at_the_cost_of_one(
    regions: MemoryRegions,
) -> None:
    """And the list keeps its room: invalidation gives all of it back."""
    regions.most_pages = 1 << 18
    key = free_key(regions, 1, 1 << 18)
    values = Values(key, rights=ALL_RIGHTS, start=0, length=PAGE << 18)
    nothing = Entries(12, lambda count: [NOWHERE] * count, 1 << 18)
    regions.update(key, regions_module.REGISTERED, values, nothing)
    began = process_time()
    for page in range(1000):
        regions.update(key, 0, Values(), pages(0x10000), page)
    assert process_time() - began < 0.5
    assert where(regions, key, 999 * PAGE, 8) == [(0x10000, 8)]
    regions.update(key, Field.FREE, Values(free=True))
    assert regions.get(1).pieces == 0  # type: ignore[union-attr]
    with pytest.raises(AccessError, match="not registered"):
        where(regions, key, 0, 8)


def test_parts_of_other_regions_follow_each_other(regions: MemoryRegions) -> None:
    first = registered(regions, 1, 0x10000, 0x30000)
    second = registered(regions, 2, 0x50000)
    key = indirect(
        regions, 3, Part(first, START + 0x700, 0x200), Part(second, START, 0x100), start=5
    )
    assert where(regions, key, 5, 0x300) == [(0x10F00, 0x100), (0x30000, 0x100), (0x50800, 0x100)]
    assert where(regions, key, 5 + 0x1FF, 2) == [(0x300FF, 1), (0x50800, 1)]
    regions.update(key, 0, Values(), Entries(parts=[Part(second, START + 4, 0x100)]), 1)
    assert where(regions, key, 5 + 0x200, 1) == [(0x50804, 1)]
    regions.update(key, Field.START, Values(start=0x1007))
    assert where(regions, key, 0x1007, 1) == [(0x10F00, 1)]


def interleaved(regions: MemoryRegions, index: int, repeats: int, *parts: Part) -> int:
    key = free_key(regions, index)
    length = sum(part.length for part in parts) * repeats
    values = Values(key, rights=ALL_RIGHTS, start=START, length=length)
    entries = Entries(parts=parts, repeats=repeats)
    regions.update(key, regions_module.REGISTERED, values, entries)
    return key


def test_parts_that_repeat_are_further_each_time(regions: MemoryRegions) -> None:
    inner = registered(regions, 1, 0x10000)
    parts = Part(inner, START, 8, 10), Part(inner, START + 0x100, 4, 0)
    key = interleaved(regions, 2, 3, *parts)
    whole = [(0x10800, 8), (0x10900, 4), (0x1080A, 8), (0x10900, 4), (0x10814, 8), (0x10900, 4)]
    assert where(regions, key, START, 36) == whole
    assert where(regions, key, START + 19, 6) == [(0x10811, 1), (0x10900, 4), (0x10814, 1)]
    with pytest.raises(AccessError, match="outside"):
        where(regions, key, START + 35, 2)
    around = interleaved(regions, 3, 2, Part(key, START + 12, 2, 12))
    assert where(regions, around, START, 4) == [(0x1080A, 2), (0x10814, 2)]
    regions.update(key, 0, Values(), Entries(parts=[Part(inner, START + 4, 36)]))
    assert where(regions, key, START, 36) == [(0x10804, 36)]
    regions.update(key, Field.FREE, Values(free=True))
    with pytest.raises(AccessError, match="not registered"):
        where(regions, around, START, 4)


def test_parts_that_repeat_for_ever_cost_what_an_access_may(regions: MemoryRegions) -> None:
    most = (1 << 32) - 1
    inner = registered(regions, 1, 0x10000)
    key = interleaved(regions, 2, most, Part(inner, START, 1), Part(inner, START, 0xFFFE, 0xFFFF))
    last = START + most * 0xFFFF - 0xFFFF
    began = process_time()
    assert where(regions, key, last, 1) == [(0x10800, 1)]
    with pytest.raises(AccessError, match="outside"):
        where(regions, key, last + 1, 1)
    key = interleaved(regions, 3, most, Part(inner, START, 1))
    with pytest.raises(AccessError, match=f"more than {MAX_RUNS} runs"):
        where(regions, key, START, most)
    assert process_time() - began < 2


def test_a_list_that_repeats_changes_as_a_whole_and_has_a_head(regions: MemoryRegions) -> None:
    part = Part(registered(regions, 1, 0x10000), START, 8, 8)
    key = interleaved(regions, 2, 2, part, part)
    with pytest.raises(AccessError, match="a list that repeats"):
        regions.update(key, 0, Values(), Entries(parts=[part]), 1)
    plain = indirect(regions, 3, part, part)
    with pytest.raises(AccessError, match="a list that repeats"):
        regions.update(plain, 0, Values(), Entries(parts=[part], repeats=2), 1)
    full = free_key(regions, 4, room=2)
    with pytest.raises(AccessError, match="2 entries"):
        regions.update(full, 0, Values(), Entries(parts=[part, part], repeats=2))


def test_each_key_on_the_way_has_to_permit_the_access(regions: MemoryRegions) -> None:
    inner = registered(regions, 1, 0x10000)
    key = indirect(regions, 2, Part(inner, START, 0x100))
    regions.update(inner, Field.RIGHTS, Values(rights=int(Rights.LOCAL_WRITE)))
    with pytest.raises(AccessError, match=f"key {inner:#x} lacks LOCAL_READ"):
        where(regions, key, 0, 1)
    regions.invalidate(inner, PD)
    with pytest.raises(AccessError, match="not registered"):
        where(regions, key, 0, 1)
    beyond = indirect(regions, 3, Part(registered(regions, 4, 0x20000), START, PAGE))
    with pytest.raises(AccessError, match="outside"):
        where(regions, beyond, 0, PAGE)


def test_indirect_regions_are_followed_to_a_depth_only(regions: MemoryRegions) -> None:
    key = registered(regions, 1, 0x10000)
    part = Part(key, START, 8)
    for depth in range(MAX_DEPTH):
        key = indirect(regions, 2 + depth, part)
        part = Part(key, 0, 8)
    assert where(regions, key, 0, 8) == [(0x10800, 8)]
    deeper = indirect(regions, 9, part)
    with pytest.raises(AccessError, match="is behind"):
        where(regions, deeper, 0, 8)
    loop = indirect(regions, 10, Part(10 << 8, 0, 8))
    with pytest.raises(AccessError, match="is behind"):
        where(regions, loop, 0, 8)


def test_an_access_has_a_bounded_number_of_pieces(regions: MemoryRegions) -> None:
    key = registered(regions, 1, 0x10000)
    part = Part(key, START, 1)
    for index, count in enumerate((16, 16, 16, 5), 2):
        key = indirect(regions, index, *[part] * count)
        part = Part(key, 0, part.length * count)
    assert len(where(regions, key, 0, MAX_RUNS)) == MAX_RUNS
    with pytest.raises(AccessError, match=f"more than {MAX_RUNS} runs"):
        where(regions, key, 0, MAX_RUNS + 1)


def test_parts_behind_those_that_are_too_many_cost_nothing(regions: MemoryRegions) -> None:
    key = registered(regions, 1, 0x10000)
    indirect(regions, 2, *[Part(key, START + at, 1) for at in range(3)])
    region = regions.get(2)
    assert region is not None
    found = region.parts_at(0, 3)
    assert next(found) == Part(key, START, 1)
    assert len(list(found)) == 2


def test_parts_of_no_length_and_too_many_are_refused(regions: MemoryRegions) -> None:
    key = free_key(regions, 1, room=2)
    for parts in ([Part(1, 0, 0)], [Part(1, 0, 8)] * 3):
        with pytest.raises(AccessError):
            regions.update(key, regions_module.REGISTERED, Values(key), Entries(parts=parts))
    region = regions.get(1)
    assert region is not None and region.free and not region.part_keys


def test_a_region_that_becomes_free_gives_its_room_back(
    regions: MemoryRegions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regions_module, "MAX_PIECES", 4)
    key = registered(regions, 1, 0x10000, 0x30000)
    for _ in range(3):
        regions.update(key, 0, Values(), pages(0x10000, 0x50000))
        regions.update(key, Field.FREE, Values(free=True))
        values = Values(key, rights=ALL_RIGHTS, start=START, length=2 * PAGE - 0x800)
        regions.update(key, regions_module.REGISTERED, values, pages(0x10000, 0x30000))
    with pytest.raises(AccessError, match="pieces"):
        registered(regions, 2, 0x10000, 0x30000, 0x50000)


def test_parts_behind_a_longer_one_move(regions: MemoryRegions) -> None:
    inner = registered(regions, 1, 0x10000, 0x30000)
    parts = [Part(inner, START + at, 0x10) for at in (0, 0x100, 0x200)]
    key = indirect(regions, 2, *parts)
    regions.update(key, Field.LENGTH, Values(length=0x40))
    regions.update(key, 0, Values(), Entries(parts=[Part(inner, START + 0x300, 0x20)]), 1)
    assert where(regions, key, 0x2F, 2) == [(0x10B1F, 1), (0x10A00, 1)]
    with pytest.raises(AccessError, match="becomes free"):
        regions.update(key, Field.FREE, Values(free=True), Entries(parts=parts), 1)
    assert where(regions, key, 0x3F, 1) == [(0x10A0F, 1)]


def test_one_part_of_many_is_replaced_at_the_cost_of_one(regions: MemoryRegions) -> None:
    """A key to a whole address space has parts of a gigabyte, most of them absent."""
    count, gib = 1 << 17, 1 << 30
    regions.most_pages = count
    inner = registered(regions, 1, 0x10000)
    key = free_key(regions, 2, count)
    values = Values(key, rights=ALL_RIGHTS, length=count * gib)
    nobody = Entries(parts=[Part(ABSENT_KEY, 0, gib)] * count)
    regions.update(key, regions_module.REGISTERED, values, nobody)
    with pytest.raises(AbsentError) as told:
        where(regions, key, 77 * gib + 5, 8)
    assert (told.value.key, told.value.address) == (key, 77 * gib + 5)
    began = process_time()
    for _ in range(1000):
        regions.update(key, 0, Values(), Entries(parts=[Part(inner, START, gib)]), 77)
    assert process_time() - began < 0.5
    assert where(regions, key, 77 * gib, 8) == [(0x10800, 8)]
    regions.update(key, Field.FREE, Values(free=True))
    region = regions.get(2)
    assert region is not None and not region.pieces
