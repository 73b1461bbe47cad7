"""Write combining: real processors' store patterns become the lines they put on the bus."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bluebridge.device.layout.mlx4.uar import BLUEFLAME_BUFFER, BLUEFLAME_LINE
from bluebridge.device.mlx4.registers.blueflame import FULL, Line, OpenLine

ENTRY = bytes(range(256))
Stores = list[tuple[int, bytes]]


def copied(step: int, length: int, start: int = 0) -> Stores:
    """Ascending stores of `step` bytes: 8 is x86-64, 4 a 32-bit guest."""
    return [(start + at, ENTRY[at : at + step]) for at in range(0, length, step)]


def store_blocks(length: int) -> Stores:
    """System z: blocks of at most 128 bytes; 192 bytes are one of 128 and one of 64."""
    return [(at, ENTRY[at : min(at + 128, length)]) for at in range(0, length, 128)]


def lines(stores: Stores) -> list[Line]:
    """What leaves the processor."""
    gathered = OpenLine()
    return [line for place, data in stores for line in gathered.store(place, data)]


@pytest.mark.parametrize("length", [64, 128, 192, 256])
@pytest.mark.parametrize(
    "pattern",
    [lambda n: copied(8, n), lambda n: copied(4, n), store_blocks],
    ids=["x86-64", "32-bit", "store block"],
)
def test_whole_entries_leave_as_whole_lines(pattern: object, length: int) -> None:
    assert callable(pattern)
    assert lines(pattern(length)) == [
        Line(at, ENTRY[at : at + 64], FULL) for at in range(0, length, BLUEFLAME_LINE)
    ]


def test_a_store_block_of_128_bytes_is_two_lines() -> None:
    assert [len(line.data) for line in lines([(BLUEFLAME_BUFFER, ENTRY[:128])])] == [64, 64]


def test_another_line_closes_the_open_one() -> None:
    first, *rest = lines([*copied(8, 24), *copied(8, 64, start=256)])
    assert first == Line(0, ENTRY[:24], "a store at 0x100 does not follow")
    assert rest == [Line(256, ENTRY[:64], FULL)]


def test_a_store_out_of_order_closes_the_line() -> None:
    assert lines([(0, ENTRY[:8]), (16, ENTRY[16:24])]) == [
        Line(0, ENTRY[:8], "a store at 0x10 does not follow")
    ]


def test_the_rest_comes_when_it_is_asked_for() -> None:
    gathered = OpenLine()
    assert list(gathered.store(8, b"12345678")) == []
    assert gathered.close("a read") == Line(8, b"12345678", "a read")
    assert gathered.close("a read").data == b""


@given(st.lists(st.tuples(st.integers(0, 511), st.binary(min_size=1, max_size=130)), max_size=30))
def test_no_byte_is_lost_or_made_up(stores: Stores) -> None:
    """Whatever is stored leaves in its order, in lines that do not cross a border."""
    gathered = OpenLine()
    found = [line for place, data in stores for line in gathered.store(place, data)]
    found.append(gathered.close("the end"))
    sent = [(line.place + at, byte) for line in found for at, byte in enumerate(line.data)]
    assert sent == [(place + at, byte) for place, data in stores for at, byte in enumerate(data)]
    for line in found:
        assert (line.place & 63) + len(line.data) <= BLUEFLAME_LINE
