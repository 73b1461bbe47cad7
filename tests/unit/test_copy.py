"""Copies between lists of views equal the join of their bytes, whatever the boundaries."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device.hca.copy import copy_views


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
