"""From an address to what answers there: BARs learned from config writes, aborts that end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bluebridge.device.pci.decoder import BarDecoder
from bluebridge.device.pci.host import Host
from bluebridge.device.pci.identity import Bar
from tests.models.fake_bus import FakeFunction

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
