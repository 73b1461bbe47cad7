"""Guest memory as the device reaches it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bluebridge.device.pci.bus import DmaError
from bluebridge.device.pci.memory import GuestMemory

LOW, HIGH = 0x1000, 0x100000000


def _memory() -> tuple[GuestMemory, bytearray, bytearray, bytearray]:
    """Two neighbouring regions at LOW and one far away at HIGH."""
    parts = bytearray(0x1000), bytearray(0x2000), bytearray(0x1000)
    memory = GuestMemory()
    memory.add(HIGH, memoryview(parts[2]))
    memory.add(LOW, memoryview(parts[0]))
    memory.add(LOW + 0x1000, memoryview(parts[1]))
    return memory, *parts


@given(st.integers(0, 0x2FFF), st.binary(min_size=1, max_size=0x3000))
def test_what_is_written_is_read_across_regions(offset: int, data: bytes) -> None:
    memory, first, second, _ = _memory()
    data = data[: 0x3000 - offset]
    memory.write(LOW + offset, data)
    assert memory.read(LOW + offset, len(data)) == data
    assert bytes(first + second)[offset : offset + len(data)] == data


@pytest.mark.parametrize(
    ("address", "length"),
    [(0, 1), (LOW - 1, 1), (LOW - 1, 2), (LOW + 0x3000, 1), (LOW + 0x2FFF, 2), ((1 << 64) - 1, 8)],
)
def test_missing_memory_is_refused_before_a_byte_moves(address: int, length: int) -> None:
    memory, *parts = _memory()
    with pytest.raises(DmaError):
        memory.write(address, b"\xff" * length)
    with pytest.raises(DmaError):
        memory.read(address, length)
    with pytest.raises(DmaError):
        memory.views([(address, length)])
    assert not any(any(part) for part in parts)


def test_a_region_that_went_is_gone_also_after_it_was_used_last() -> None:
    memory, *_ = _memory()
    memory.view(HIGH, 1)[:] = b"x"
    memory.remove(HIGH)
    with pytest.raises(DmaError):
        memory.read(HIGH, 1)
    assert memory.read(LOW, 1) == b"\0"


def test_views_of_runs_are_writable_in_place() -> None:
    memory, first, second, third = _memory()
    views = memory.views([(LOW + 0xFFE, 4), (HIGH, 2)])
    assert [len(view) for view in views] == [2, 2, 2]
    for number, view in enumerate(views):
        view[:] = bytes((number + 1,)) * len(view)
    assert first[-2:] == b"\1\1"
    assert second[:2] == b"\2\2"
    assert third[:2] == b"\3\3"
