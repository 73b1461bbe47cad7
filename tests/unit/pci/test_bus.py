"""Configuration space, BARs learned from writes to it, and guest memory as a device reaches it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bluebridge.device.layout import pci as layout
from bluebridge.device.layout.mlx4 import bar0
from bluebridge.device.pci.bus import DmaError
from bluebridge.device.pci.config_space import (
    Bar,
    BarDecoder,
    EndpointConfig,
    capabilities,
    compose,
)
from bluebridge.device.pci.host import Host
from bluebridge.device.pci.memory import GuestMemory
from bluebridge.device.server.adapters import CONNECTX3
from bluebridge.device.server.adapters import CONNECTX3_BARS as HCA_BARS
from tests.models.fake_bus import FakeFunction


@pytest.fixture
def config() -> EndpointConfig:
    chain = capabilities(32, bar0.MSIX_TABLE_OFFSET, bar0.MSIX_PBA_OFFSET)
    return compose(CONNECTX3, HCA_BARS, chain)


def _capabilities(config: EndpointConfig) -> dict[int, int]:
    """Identifier → offset, by walking the chain."""
    found = {}
    offset = layout.HEADER.get(config.data, "capabilities")
    while offset:
        assert offset % 4 == 0
        assert config.data[offset] not in found
        found[config.data[offset]] = offset
        offset = config.data[offset + 1]
    return found


def test_identity(config: EndpointConfig) -> None:
    header = layout.HEADER.unpack(config.data)
    assert (header["vendor"], header["device"]) == (0x15B3, 0x1003)
    assert header["class_code"] == bytes((0, 0, 2))
    assert int(header["status"]) & 0x10


def test_the_chain_of_capabilities(config: EndpointConfig) -> None:
    found = _capabilities(config)
    assert set(found) == {layout.CAP_ID_PM, layout.CAP_ID_MSIX, layout.CAP_ID_EXPRESS}
    msix = config.data[found[layout.CAP_ID_MSIX] :]
    assert layout.MSIX_CAPABILITY.get(msix, "table_size") == 31
    assert layout.MSIX_CAPABILITY.get(msix, "table") == bar0.MSIX_TABLE_OFFSET
    express = config.data[found[layout.CAP_ID_EXPRESS] :]
    assert layout.EXPRESS_CAPABILITY.get(express, "link_speed") == 3
    assert layout.EXPRESS_CAPABILITY.get(express, "link_width") == 8


@pytest.mark.parametrize(("offset", "size", "low"), [(0x10, 1 << 20, 0x4), (0x18, 16 << 20, 0xC)])
def test_a_bar_tells_its_size(config: EndpointConfig, offset: int, size: int, low: int) -> None:
    config.write(offset, b"\xff" * 8)
    value = int.from_bytes(config.read(offset, 8), "little")
    assert value & 0xF == low
    assert (~(value & ~0xF) & (1 << 64) - 1) + 1 == size


def test_read_only_registers_take_writes_and_stay(config: EndpointConfig) -> None:
    before = config.read(0, 4)
    config.write(0, b"\0\0\0\0")
    assert config.read(0, 4) == before


def test_reset_restores_what_software_changed(config: EndpointConfig) -> None:
    before = bytes(config.data)
    config.write(0x04, b"\x06\x00")
    assert bytes(config.data) != before
    config.reset()
    assert bytes(config.data) == before


BARS = (Bar(0, 0x10000), Bar(2, 4 << 30, prefetchable=True), Bar(5, 0x1000, wide=False))
ON, OFF = 0x0002, 0


def _place(decoder: BarDecoder, offset: int, value: int, command: int) -> None:
    decoder.write(offset, value.to_bytes(4, "little"), command)


def test_bars_count_while_memory_decoding_is_on() -> None:
    decoder = BarDecoder(BARS)
    _place(decoder, 0x10, 0xFEB0000C, OFF)
    _place(decoder, 0x14, 0, OFF)
    assert decoder.base(0) is None
    decoder.write(4, b"\2\0", ON)
    assert decoder.ranges == ((0xFEB00000, 0xFEB10000, 0),)
    decoder.write(4, b"\0\0", OFF)
    assert not decoder.ranges


def test_a_sizing_probe_places_nothing() -> None:
    decoder = BarDecoder(BARS)
    for offset in range(0x10, 0x28, 4):
        _place(decoder, offset, 0xFFFFFFFF, ON)
    assert not decoder.ranges


def test_both_halves_of_a_wide_bar() -> None:
    decoder = BarDecoder(BARS)
    _place(decoder, 0x18, 0x0000000C, ON)
    assert decoder.base(2) is None
    _place(decoder, 0x1C, 0xFE, ON)
    assert decoder.base(2) == 0xFE00000000
    _place(decoder, 0x24, 0x80001000, ON)
    assert decoder.base(5) == 0x80001000
    decoder.power_off()
    assert not decoder.ranges


@given(st.lists(st.tuples(st.integers(0, 0x3F), st.binary(min_size=1, max_size=4), st.booleans())))
def test_any_config_writes_leave_aligned_ranges(writes: list[tuple[int, bytes, bool]]) -> None:
    decoder = BarDecoder(BARS)
    for offset, data, on in writes:
        decoder.write(offset, data, ON if on else OFF)
        for start, end, index in decoder.ranges:
            (bar,) = (bar for bar in BARS if bar.index == index)
            assert end - start == bar.size and start % bar.size == 0 and start > 0


class Relay:
    """A model whose register, when written, makes its function write to `target`."""

    def __init__(self, bus: FakeFunction) -> None:
        self.bus = bus
        self.target = 0
        self.writes = 0

    def bar_read(self, bar: int, offset: int, length: int) -> bytes:
        """Nothing of interest."""
        return bytes(length)

    def bar_write(self, bar: int, offset: int, data: bytes) -> None:
        """Passes it on."""
        self.writes += 1
        place = self.bus.place(self.target, len(data))
        if place.store is not None:
            place.store(data)

    def reset(self) -> None:
        """Nothing."""


def _relay(host: Host, name: str, base: int) -> Relay:
    function = FakeFunction(name, host)
    function.model = relay = Relay(function)
    function.place_bar(0, base, 0x1000)
    return relay


def test_registers_that_set_off_registers_end_in_a_counted_abort() -> None:
    host = Host()
    first, second = _relay(host, "first", 0xF0000000), _relay(host, "second", 0xF0001000)
    first.target, second.target = 0xF0001000, 0xF0000000
    place = first.bus.place(0xF0001000, 8)
    assert place.length == 8 and place.store is not None
    place.store(bytes(8))
    assert (first.writes, second.writes) == (0, 1)
    assert host.aborts["a register access caused another"] == 1


def test_accesses_are_clipped_to_memory_registers_and_pages() -> None:
    host = Host()
    relay = _relay(host, "one", 0xF0000000)
    bus = relay.bus
    assert bus.place(0x100000, 1 << 40).length == 8 << 20
    assert [bus.place(0xF0000000 + n, 100).length for n in (0, 1, 2, 4, 8)] == [8, 1, 2, 4, 8]
    nowhere = bus.place(0x40000010, 1 << 30)
    assert nowhere.length == 4096 - 0x10 and nowhere.fault
    assert bus.place(0xFEE00000, 4).store is not None
    assert bus.place(0xFEE00000, 8).fault


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
