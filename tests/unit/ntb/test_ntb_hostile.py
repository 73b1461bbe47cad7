"""Whatever a guest does to bridge and engine, no access fails and none lasts."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bluebridge.device.dma.engine import DmaEngine
from bluebridge.device.layout.ioat import BAR0_SIZE as ENGINE_SIZE
from bluebridge.device.layout.ntb.models import GEN1, GEN4, MODELS, SWITCHTEC, BridgeModel
from bluebridge.device.ntb.selection import shape_of
from bluebridge.device.ntb.shape import BridgeLink
from bluebridge.device.pci.host import Host
from tests.models.fake_bus import FakeFunction

ENGINE = 0xFD00_0000
RAM = 0x100000
BASES = {0: 0xF7_8100_0000, 2: 0xF7_8000_0000, 4: 0xF7_8080_0000}
_INTERESTING = st.sampled_from(
    [0, 1, RAM, RAM + 0xFFC, *BASES.values(), ENGINE, ENGINE + 0x86, 0xFEE00000, (1 << 64) - 1]
)
_VALUES = st.one_of(_INTERESTING, st.integers(0, (1 << 64) - 1))
_OFFSETS = st.one_of(
    st.integers(0, 0x200),
    st.integers(0xB000, 0xB500),
    st.integers(0x14000, 0x14200),
    st.integers(0x75000, 0x750B0),
    st.integers(0, 1 << 22),
)
_ACCESSES = st.lists(
    st.tuples(
        st.booleans(),
        st.booleans(),
        st.sampled_from([0, 0, 0, 2, 4]),
        _OFFSETS,
        st.sampled_from([1, 2, 4, 8]),
        _VALUES,
    ),
    max_size=40,
)
_ENGINE_ACCESSES = st.lists(
    st.tuples(st.integers(0, ENGINE_SIZE - 8), st.sampled_from([1, 2, 4, 8]), _VALUES), max_size=40
)


class _Pair:
    """Both bridges of a model and an engine in guest a, each BAR placed."""

    def __init__(self, model: BridgeModel) -> None:
        form = shape_of(model)
        self.sizes = {bar.index: bar.size for bar in form.bars}
        hosts = [Host("a"), Host("b")]
        self.buses = [FakeFunction(host.name, host) for host in hosts]
        link = BridgeLink(self.buses[0].call_later)
        self.bridges = [form.make(bus, link) for bus in self.buses]
        self.bridges[0].join(self.bridges[1])
        for bus, bridge in zip(self.buses, self.bridges, strict=True):
            bus.model = bus.bridge = bridge
            for index, base in BASES.items():
                bus.place_bar(index, base, self.sizes[index])
        self.engine_bus = FakeFunction("a.dma", hosts[0], beside=self.buses[0])
        self.engine = DmaEngine(self.engine_bus)
        self.engine_bus.model = self.engine
        self.engine_bus.place_bar(0, ENGINE, ENGINE_SIZE)

    def run(self) -> None:
        """Let all that waits happen, for a bounded time."""
        for bus in (*self.buses, self.engine_bus):
            bus.run(0.5)


@pytest.mark.parametrize("model", MODELS)
@settings(max_examples=60)
@example([(False, True, 0, 0x5F, 8, 0)])  # registers of many kinds in one store
@given(_ACCESSES)
def test_any_accesses_of_both_guests(
    model: BridgeModel, accesses: list[tuple[bool, bool, int, int, int, int]]
) -> None:
    pair = _Pair(model)
    for second, write, bar, offset, width, value in accesses:
        bridge = pair.bridges[second]
        offset %= pair.sizes[bar] - width + 1
        if write:
            data = (value & ((1 << 8 * width) - 1)).to_bytes(width, "little")
            bridge.bar_write(bar, offset, data)
        else:
            assert len(bridge.bar_read(bar, offset, width)) == width
    pair.run()
    for bridge in pair.bridges:
        bridge.reset()
    pair.run()


@settings(max_examples=60)
@given(_ENGINE_ACCESSES, st.binary(min_size=64, max_size=512))
def test_any_accesses_of_the_engine(accesses: list[tuple[int, int, int]], memory: bytes) -> None:
    pair = _Pair(GEN4)
    pair.buses[0].poke(RAM, memory)
    for offset, width, value in accesses:
        data = (value & ((1 << 8 * width) - 1)).to_bytes(width, "little")
        pair.engine.bar_write(0, offset, data)
        assert len(pair.engine.bar_read(0, offset, width)) == width
    pair.run()
    pair.engine.reset()
    assert not any(channel.busy for channel in pair.engine.channels)


_BRING_UPS = {
    GEN4: [
        *((0x48, 8, 0xFFFFFFFF), (0x18, 8, 1 << 61), (0x28, 8, 1 << 62), (0, 4, 0x154)),
        *((0xB050, 2, 0), (0xB0D4, 4, 8), (0x10, 8, RAM), (0x18, 8, BASES[2] + 0x1000)),
        *((0x100, 4, 1), (0x8080, 4, 5)),
    ],
    GEN1: [
        *((0x40, 8, BASES[4]), (0x48, 8, 1 << 61), (0x20, 8, 1 << 61), (0x30, 8, 0)),
        *((0x10, 8, 1 << 61), (0x144, 4, 0), (0x148, 4, 0x20), (0x504, 2, 6), (0x62, 2, 0x7FFF)),
        *((0x58, 4, 0x154), (0x30, 8, RAM), (0x20, 8, 0), (0x64, 2, 1), (0x140, 2, 1)),
    ],
    SWITCHTEC: [
        *((0x14004, 4, 1), (0x14060, 4, 0x31), (0x14064, 4, 0x100014), (0x14068, 8, RAM | 1)),
        *((0x17000, 8, RAM | 1), (0x14004, 4, 2), (0x16004, 4, 2), (0x75018, 8, 0xF << 28)),
        *((0x75060, 4, 0x07060504), (0x75068, 4, 1), (0x75000, 8, 1 << 32)),
    ],
}
"""Stores of each driver on its way up: registers, a window, a doorbell."""


@pytest.mark.parametrize("driver", MODELS)
@pytest.mark.parametrize("model", MODELS)
def test_a_peer_whose_driver_takes_its_bridge_for_another(
    model: BridgeModel, driver: BridgeModel
) -> None:
    """A pair has one kind of bridge; drivers of any kind may be in the guests."""
    pair = _Pair(model)
    other = pair.bridges[1]
    for bridge, stores in zip(pair.bridges, (_BRING_UPS[model], _BRING_UPS[driver]), strict=True):
        for offset, width, value in stores:
            if offset + width <= pair.sizes[0]:
                bridge.bar_write(0, offset, value.to_bytes(width, "little"))
    pair.run()
    for bar in (2, 4):
        pair.bridges[0].bar_write(bar, 0, bytes(8))
        assert len(other.bar_read(bar, 0, 8)) == 8
