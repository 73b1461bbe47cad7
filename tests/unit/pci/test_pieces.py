"""Pieces of memory in Python and in C: the same bytes at the same places, in the same order."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from struct import Struct
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.native_pieces import native, plain

Run = tuple[int, int]
FORMS = pytest.mark.parametrize("form", [plain, native])
STARTS = [0x1000, 0x1040, 0x2000]
SIZES = [0x40, 0x50, 0x30]
"""Of the regions of memory: the first two are neighbours."""
HEAD = Struct("<QII")
INSIDE = st.one_of(
    st.tuples(st.integers(0x1000, 0x108F), st.integers(0, 100)).map(
        lambda run: (run[0], min(run[1], 0x1090 - run[0]))
    ),
    st.tuples(st.integers(0x2000, 0x202F), st.integers(0, 100)).map(
        lambda run: (run[0], min(run[1], 0x2030 - run[0]))
    ),
)
RUNS = st.lists(INSIDE, max_size=12)


class Memory:
    """Guest memory of known bytes, and what a byte-by-byte reader sees of it."""

    def __init__(self) -> None:
        content = bytes(range(1, 1 + sum(SIZES) % 256)) + bytes(sum(SIZES))
        self._bytes = [bytearray(content[7 * n : 7 * n + size]) for n, size in enumerate(SIZES)]
        self.regions = [memoryview(each) for each in self._bytes]

    def views(self, form: ModuleType, runs: Sequence[Run]) -> Sequence[memoryview]:
        """The module's views."""
        found: Sequence[memoryview] = form.views(STARTS, self.regions, runs)
        return found

    def at(self, address: int) -> tuple[bytearray, int]:
        """The region that holds an address, and where in it."""
        for start, region in zip(STARTS, self._bytes, strict=True):
            if start <= address < start + len(region):
                return region, address - start
        raise LookupError(address)

    def read(self, runs: Sequence[Run]) -> bytes:
        """The bytes of runs."""
        found = bytearray()
        for address, length in runs:
            for number in range(length):
                region, at = self.at(address + number)
                found.append(region[at])
        return bytes(found)

    def content(self) -> bytes:
        """All bytes."""
        return b"".join(self._bytes)


@FORMS
@given(runs=RUNS)
def test_views_are_the_bytes_of_their_runs(form: Callable[[], ModuleType], runs: list[Run]) -> None:
    memory = Memory()
    views = memory.views(form(), runs)
    assert b"".join(views) == memory.read(runs)
    assert [bytes(views[number]) for number in range(len(views))] == [bytes(v) for v in views]
    assert form().size(views) == sum(length for _, length in runs)
    borders = sum(address < 0x1040 < address + length for address, length in runs)
    assert len(views) == sum(length > 0 for _, length in runs) + borders


@FORMS
@pytest.mark.parametrize(
    ("run", "missing"),
    [
        ((0xFFF, 1), (0xFFF, 1)),
        ((0x1090, 1), (0x1090, 1)),
        ((0x108F, 3), (0x1090, 2)),
        ((0x1030, 0x1000), (0x1090, 0xFA0)),
        ((0x2030, 1 << 63), (0x2030, 1 << 63)),
        ((2**64 - 1, 1), (2**64 - 1, 1)),
        ((2**64 - 8, 16), (2**64 - 8, 16)),
    ],
)
@pytest.mark.parametrize("before", [[], [(0x1000, 8), (0x2000, 4)]])
def test_what_is_no_memory_is_named(
    form: Callable[[], ModuleType], run: Run, missing: Run, before: list[Run]
) -> None:
    with pytest.raises(LookupError) as caught:
        Memory().views(form(), [*before, run])
    assert caught.value.args == missing


@FORMS
@given(target=RUNS, source=RUNS)
def test_copies_are_those_of_byte_after_byte(
    form: Callable[[], ModuleType], target: list[Run], source: list[Run]
) -> None:
    """Also where runs overlap each other: pieces ascend, the last eight bytes come last."""
    memory, model = Memory(), Memory()
    module = form()
    total = sum(length for _, length in source)
    views = memory.views(module, target), memory.views(module, source)
    if total > sum(length for _, length in target):
        with pytest.raises(ValueError, match="do not fit"):
            module.copy(*views)
    else:
        assert module.copy(*views) == total
        _copy(model, target, source)
    assert memory.content() == model.content()


def _copy(memory: Memory, target: list[Run], source: list[Run]) -> None:
    """Return each stretch of a copy that is whole on both sides at once, in their order."""
    targets, sources = _bytes_of(target), _bytes_of(source)
    left, at = len(sources), 0
    while at < left:
        end = at + 1
        while end < left and _goes_on(sources, end) and _goes_on(targets, end):
            end += 1
        if end == left and end - at > 8:
            _move(memory, targets[at : end - 8], sources[at : end - 8])
            at = end - 8
        _move(memory, targets[at:end], sources[at:end])
        at = end


def _bytes_of(runs: list[Run]) -> list[tuple[int, int]]:
    """Each byte: the number of its run, its address."""
    return [
        (number, address + offset)
        for number, (address, length) in enumerate(runs)
        for offset in range(length)
    ]


def _goes_on(places: list[tuple[int, int]], index: int) -> bool:
    return places[index][0] == places[index - 1][0] and places[index][1] != STARTS[1]


def _move(memory: Memory, targets: list[tuple[int, int]], sources: list[tuple[int, int]]) -> None:
    data = memory.read([(address, 1) for _, address in sources])
    for (_, address), byte in zip(targets, data, strict=False):
        region, at = memory.at(address)
        region[at] = byte


@FORMS
def test_the_last_bytes_go_last(form: Callable[[], ModuleType]) -> None:
    """The first bytes overwrite the source of the last ones, which shows it."""
    memory = bytearray(range(32))
    view = memoryview(memory)
    form().copy([view[8:32]], [view[0:24]])
    assert memory[24:] == bytes(range(8, 16))
    assert memory[:24] == bytes([*range(8), *range(16)])


@FORMS
def test_frames_are_copied_from_bytes(form: Callable[[], ModuleType]) -> None:
    memory = Memory()
    views = memory.views(form(), [(0x1000, 3), (0x2000, 5), (0x1010, 1)])
    assert form().copy(views, [b"abcd", b"", bytearray(b"efgh"), b"i"]) == 9
    assert memory.read([(0x1000, 3), (0x2000, 5), (0x1010, 1)]) == b"abcdefghi"


@FORMS
@given(runs=RUNS, most=st.integers(0, 70), count=st.integers(0, 13))
def test_packed_runs_have_their_first_bytes(
    form: Callable[[], ModuleType], runs: list[Run], most: int, count: int
) -> None:
    memory = Memory()
    packed = form().pack(runs, memory.views(form(), runs), count, most, b"before", b"after")
    expected = b""
    for address, length in runs[:count]:
        data = memory.read([(address, min(length, most))])
        expected += b"before" + HEAD.pack(address, length, len(data)) + b"after" + data
    assert packed == expected


@st.composite
def regions(draw: st.DrawFn) -> tuple[list[int], list[int], int, int, int]:
    """Pieces of a region, and a range inside."""
    sizes = draw(st.lists(st.integers(1, 50), min_size=1, max_size=20))
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    addresses = draw(st.lists(st.integers(0, 2**63), min_size=len(sizes), max_size=len(sizes)))
    offset = draw(st.integers(0, sum(sizes) - 1))
    return starts, addresses, sum(sizes), offset, draw(st.integers(1, sum(sizes) - offset))


@FORMS
@given(region=regions())
def test_ranges_are_translated(
    form: Callable[[], ModuleType], region: tuple[list[int], list[int], int, int, int]
) -> None:
    starts, addresses, mapped, offset, length = region
    runs = form().translate(array("Q", starts), array("Q", addresses), mapped, offset, length)
    ends = [*starts[1:], mapped]
    assert list(runs) == [
        (address + max(offset - start, 0), min(end, offset + length) - max(start, offset))
        for start, address, end in zip(starts, addresses, ends, strict=True)
        if start < offset + length and offset < end
    ]
    assert len(runs) == len(list(runs))


@FORMS
@pytest.mark.parametrize(
    ("starts", "mapped", "offset", "length"),
    [
        ([], 0, 0, 1),
        ([0, 8], 16, 0, 0),
        ([0, 8], 16, 15, 2),
        ([0, 8], 16, 16, 1),
        ([0, 8], 16, 2**64 - 1, 2),
        ([0, 8], 16, 0, 2**64 - 1),
        ([4, 8], 16, 0, 8),
    ],
)
def test_a_range_outside_of_a_region_is_refused(
    form: Callable[[], ModuleType], starts: list[int], mapped: int, offset: int, length: int
) -> None:
    with pytest.raises(IndexError):
        form().translate(array("Q", starts), array("Q", starts), mapped, offset, length)


def test_views_end_with_the_memory_they_were_found_in() -> None:
    """A guest that takes its memory back leaves nothing that native code would still touch."""
    module, memory = native(), Memory()
    runs = [(0x1000, 8), (0x2000, 8)]
    views = memory.views(module, runs)
    memory.regions[2].release()
    target = bytearray(16)
    for use in (
        lambda: module.copy([target], views),
        lambda: module.copy(views, [target]),
        lambda: module.pack(runs, views, 2, 64, b"", b""),
        lambda: module.size(views),
        lambda: bytes(views[1]),
    ):
        with pytest.raises(ValueError, match="released"):
            use()
    assert not any(target)
    assert memory.content()[:8] == bytes(range(1, 9))


def test_memory_can_be_released_after_each_use() -> None:
    """No buffer is held from one call to the next."""
    module, memory = native(), Memory()
    views = memory.views(module, [(0x1000, 0x60), (0x2000, 8)])
    module.copy(views, [bytes(0x60)])
    module.pack([(0x1000, 0x60)], views, 1, 8, b"", b"")
    with pytest.raises(ValueError, match="do not fit"):
        module.copy(views, [bytes(200)])
    for region in memory.regions:
        region.release()


@pytest.mark.parametrize(
    "arguments",
    [
        ("translate", array("Q", [0]), array("Q", [0, 1]), 8, 0, 8),
        ("translate", array("Q", [0]), array("Q", [0]), -1, 0, 8),
        ("translate", 1, 2, 3, 4, 5),
        ("translate",),
        ("views", [0], [memoryview(bytearray(8))], [(0, -1)]),
        ("views", [0], [memoryview(bytearray(8))], [(0, 1, 2)]),
        ("views", [0], [memoryview(bytearray(8))], [7]),
        ("views", [0], [None], [(0, 1)]),
        ("views", ["0"], [memoryview(bytearray(8))], [(0, 1)]),
        ("views", (), (), ()),
        ("copy", [b"abc"], [b"abc"]),
        ("copy", [1], [b"abc"]),
        ("copy", [bytearray(3)], 1),
        ("copy",),
        ("pack", [], [], -1, 0, b"", b""),
        ("pack", [], [], 0, -1, b"", b""),
        ("pack", [], [], 0, 0, "", b""),
        ("pack", [(1, 2), 3], [], 0, 0, b"", b""),
        ("size", [1]),
        ("size", 1),
    ],
)
def test_wrong_arguments_are_exceptions(arguments: tuple[object, ...]) -> None:
    name, *values = arguments
    with pytest.raises((TypeError, ValueError, OverflowError, BufferError)):
        getattr(native(), str(name))(*values)


def test_a_region_that_is_missing_is_no_memory() -> None:
    with pytest.raises(LookupError):
        native().views([0, 8], [memoryview(bytearray(8))], [(8, 1)])
