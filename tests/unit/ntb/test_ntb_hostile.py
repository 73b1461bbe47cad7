"""A guest whose driver is wrong about the bridge: no access fails.

Any accesses are the fuzzer's (`ntb` in `tests/fuzz`).
"""

from __future__ import annotations

import pytest

from bluebridge.device.layout.ntb.models import GEN1, GEN4, MODELS, SWITCHTEC, BridgeModel
from bluebridge.device.ntb.selection import shape_of
from bluebridge.device.ntb.shape import BridgeLink
from bluebridge.device.pci.host import Host
from tests.models.fake_bus import FakeFunction

ENGINE = 0xFD00_0000
RAM = 0x100000
BASES = {0: 0xF7_8100_0000, 2: 0xF7_8000_0000, 4: 0xF7_8080_0000}


class _Pair:
    """Both bridges of a model, each BAR placed."""

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

    def run(self) -> None:
        """Let all that waits happen, for a bounded time."""
        for bus in self.buses:
            bus.run(0.5)


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


@pytest.mark.parametrize("model", MODELS)
def test_registers_of_many_kinds_in_one_store(model: BridgeModel) -> None:
    pair = _Pair(model)
    pair.bridges[0].bar_write(0, 0x5F, bytes(8))
    pair.run()
    assert len(pair.bridges[0].bar_read(0, 0x5F, 8)) == 8
