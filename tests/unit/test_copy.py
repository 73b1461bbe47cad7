"""Copies between lists of views equal the join of their bytes, whatever the boundaries."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bluebridge.device.hca.memory.transfer import NOTED_RUNS, copy_views, note_runs
from bluebridge.device.layout.buslog import Kind, What
from tests.unit.fake_host import FakeHost


def cut(data: bytearray, places: list[int]) -> list[memoryview]:
    """Views of consecutive stretches of `data`."""
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [memoryview(data)[low:high] for low, high in pairwise(edges)]


CUTS = st.lists(st.integers(0, 1 << 16), max_size=6)


@given(st.binary(max_size=300), CUTS, CUTS, st.integers(0, 20))
def test_scatter_equals_join(
    payload: bytes, source: list[int], target: list[int], more: int
) -> None:
    memory = bytearray(len(payload) + more)
    moved = copy_views(cut(memory, target), cut(bytearray(payload), source))
    assert moved == len(payload)
    assert memory == payload + bytes(more)


@given(st.binary(min_size=1, max_size=100), CUTS, CUTS)
def test_too_little_room_moves_nothing(
    payload: bytes, source: list[int], target: list[int]
) -> None:
    memory = bytearray(len(payload) - 1)
    with pytest.raises(ValueError, match="do not fit"):
        copy_views(cut(memory, target), cut(bytearray(payload), source))
    assert not any(memory)


@pytest.mark.parametrize("count", [1, NOTED_RUNS, NOTED_RUNS + 1, 4 * NOTED_RUNS])
def test_the_log_of_a_message_is_bounded(count: int) -> None:
    host = FakeHost()
    runs = [(0x100000 + 32 * number, 16) for number in range(count)]
    for number, (address, length) in enumerate(runs):
        host.poke(address, number.to_bytes(length, "big"))
    note_runs(host, Kind.DMA_READ, runs, host.views(runs), What.PAYLOAD, 7)
    singles, rest = runs[:NOTED_RUNS], runs[NOTED_RUNS:]
    assert [(event.address, event.length) for event in host.events[:NOTED_RUNS]] == singles
    assert sum(event.length for event in host.events) == 16 * count
    assert all(host.peek(event.address, 16) == event.data[:16] for event in host.events)
    if rest:
        (last,) = host.events[NOTED_RUNS:]
        assert (last.address, last.length, last.obj) == (rest[0][0], 16 * len(rest), 7)
        ((_, text, _),) = host.notes
        assert f"{count} pieces of memory" in text
        assert f"the last {len(rest)}, {last.length} bytes" in text
    else:
        assert host.notes == []
