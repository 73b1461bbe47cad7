"""The guest driver's allocators: ranges, DMA memory, numbers, hugepages."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bluebridge.guest.bus.dma_memory import (
    GRANULE,
    HUGE,
    Arena,
    RangeAllocator,
    contiguous,
    parse_maps,
)
from bluebridge.guest.drivers.hca.resources.icm import Numbers
from bluebridge.guest.verbs import VerbsError

steps = st.lists(
    st.tuples(st.integers(1, 3000), st.sampled_from([1, 64, 256, 4096]), st.booleans()), max_size=60
)


@given(steps)
def test_ranges_never_overlap(requests: list[tuple[int, int, bool]]) -> None:
    start, size = 12345, 40000
    ranges = RangeAllocator(start, size, 8)
    held: dict[int, int] = {}
    for length, align, release in requests:
        found = ranges.allocate(length, align)
        if found is not None:
            assert found % align == 0
            assert start <= found and found + length <= start + size
            assert all(found >= low + n or low >= found + length for low, n in held.items())
            held[found] = length
        if release and held:
            low = next(iter(held))
            ranges.free(low, held.pop(low))
    for low, length in held.items():
        ranges.free(low, length)
    assert ranges.available == size
    assert ranges.allocate(size) == start


def test_ranges_say_when_they_are_full() -> None:
    ranges = RangeAllocator(0, 100)
    assert ranges.allocate(60) == 0
    assert ranges.allocate(50) is None
    assert ranges.allocate(40) == 60
    assert ranges.available == 0


def test_memory_is_zeroed_and_comes_back() -> None:
    arena = Arena()
    arena.add(0x10000, memoryview(bytearray(b"\xaa" * 8192)))
    first = arena.allocate(100, 4)
    second = arena.allocate(4096, 4096)
    assert first is not None
    assert second is not None
    assert (first.address, len(first.view), bytes(first.view)) == (0x10000, 100, bytes(100))
    assert second.address % 4096 == 0
    second.view[:] = b"\xbb" * 4096
    assert arena.allocate(4096, 4096) is None
    second.free()
    second.free()
    again = arena.allocate(4096, 4096)
    assert again is not None
    assert bytes(again.view) == bytes(4096)
    again.free()
    first.free()
    assert arena.available == 8192


def test_no_two_pieces_share_a_cache_line() -> None:
    arena = Arena()
    arena.add(0, memoryview(bytearray(1024)))
    addresses = [piece.address for piece in (arena.allocate(4, 4) for _ in range(16)) if piece]
    assert addresses == list(range(0, 1024, GRANULE))


def test_several_blocks() -> None:
    arena = Arena()
    arena.add(0x1000, memoryview(bytearray(1024)))
    arena.add(0x9000, memoryview(bytearray(4096)))
    piece = arena.allocate(2048, 64)
    assert piece is not None
    assert piece.address == 0x9000


def test_numbers_come_back_last_and_with_a_generation() -> None:
    numbers = Numbers("thing", 3, 3, 5)
    assert [numbers.allocate() for _ in range(5)] == [3, 4, 5, 6, 7]
    with pytest.raises(VerbsError, match="no more thing numbers"):
        numbers.allocate()
    numbers.free(5)
    numbers.free(3)
    assert [numbers.allocate(), numbers.allocate()] == [13, 11]
    for expected in (21, 29, 5):
        numbers.free((expected - 8) & 31)
        assert numbers.allocate() == expected


@pytest.mark.parametrize("seed", range(20))
def test_numbers_that_begin_anywhere_are_the_same_ones(seed: int) -> None:
    """Each index once, all of one generation, none of those that the device reserves."""
    numbers = Numbers("thing", 3, 3, 5, Random(seed))
    found = [numbers.allocate() for _ in range(5)]
    assert sorted(number & 7 for number in found) == [3, 4, 5, 6, 7]
    assert len({number >> 3 for number in found}) == 1 and max(found) < 32
    numbers.free(found[0])
    assert numbers.allocate() == found[0] + 8 & 31


def test_numbers_begin_elsewhere_each_time() -> None:
    firsts = {Numbers("thing", 3, 3, 5, Random(seed)).allocate() for seed in range(100)}
    assert len(firsts) == 20


def test_numbers_without_generations() -> None:
    numbers = Numbers("thing", 1, 1)
    for _ in range(3):
        assert numbers.allocate() == 1
        numbers.free(1)


@given(st.lists(st.integers(0, 30), unique=True, min_size=1))
def test_contiguous_hugepages(frames: list[int]) -> None:
    addresses = [frame * HUGE for frame in frames]
    pieces = list(contiguous(addresses))
    assert [index for first, last in pieces for index in range(first, last)] == list(
        range(len(frames))
    )
    for first, last in pieces:
        assert frames[first:last] == list(range(frames[first], frames[first] + last - first))


def test_the_address_of_a_mapping() -> None:
    maps = [
        "55d0-55d1 r--p 00000000 08:01 1 /usr/bin/python3\n",
        "7f1200000000-7f1200400000 rw-s 00000000 00:0f 25 /memfd:bluebridge-1-2 (deleted)\n",
    ]
    assert parse_maps(maps, "bluebridge-1-2") == 0x7F1200000000
    with pytest.raises(OSError, match="not to be found"):
        parse_maps(maps, "bluebridge-3")
