"""Two guests with a gen4 bridge and a DMA engine each, in the test process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bluebridge.device.dma.engine import DmaEngine
from bluebridge.device.layout.ntb import gen4
from bluebridge.device.ntb.gen4 import Gen4Bridge
from bluebridge.device.ntb.shape import HOLD_SECONDS, TRAINING_SECONDS, BridgeLink
from bluebridge.device.pci.host import Host
from tests.models.fake_bus import FakeFunction

WINDOW0 = 0xF7_8000_0000
WINDOW1 = 0xF7_8010_0000
REGISTERS = 0xF7_8020_0000
ENGINE = 0xFD00_0000
SIZE = 1 << 20
Bars = Mapping[int, tuple[int, int]]


class BridgeGuest:
    """One guest with its side of a bridge, whose BARs are placed by `bars`: base and size."""

    def __init__(self, name: str, make: Callable[[FakeFunction], Any], bars: Bars) -> None:
        self.host = Host(name.partition(".")[0])
        self.bus = FakeFunction(name, self.host)
        self.bridge = make(self.bus)
        self.bus.model = self.bus.bridge = self.bridge
        for index, (base, size) in bars.items():
            self.bus.place_bar(index, base, size)

    def write(self, offset: int, width: int, value: int) -> None:
        """A register of the bridge."""
        self.bridge.bar_write(0, offset, value.to_bytes(width, "little"))

    def read(self, offset: int, width: int) -> int:
        """A register of the bridge."""
        return int.from_bytes(self.bridge.bar_read(0, offset, width), "little")


class Guest(BridgeGuest):
    """One guest as its drivers see it: registers of the bridge, a DMA engine, memory."""

    def __init__(self, name: str, link: BridgeLink) -> None:
        bars = {0: (REGISTERS, gen4.BAR0_SIZE), 2: (WINDOW0, SIZE), 4: (WINDOW1, SIZE)}
        super().__init__(f"{name}.ntb4", lambda bus: Gen4Bridge(bus, link), bars)
        self.tick = 0.0
        self._time = 0.0
        self.dma_bus = FakeFunction(f"{name}.dma", self.host, beside=self.bus)
        self.engine = DmaEngine(self.dma_bus, clock=self._tick)
        self.dma_bus.model = self.engine
        self.dma_bus.place_bar(0, ENGINE, 0x4000)

    @property
    def now(self) -> float:
        """The engine's clock as it stands."""
        return self._time

    def _tick(self) -> float:
        """The engine's clock: each look at it takes `tick` seconds."""
        self._time += self.tick
        return self._time

    def probe(self) -> None:
        """Do what the driver does at its probe (gen4_init_ntb, ndev_init_isr)."""
        self.write(0x18, 8, 0x2000000000000000)
        self.write(0x28, 8, 0x4000000000000000)
        self.write(0x10, 8, 0)
        self.write(0x20, 8, 0)
        self.write(0x48, 8, 0xFFFFFFFF)
        self.write(0xB050, 2, self.read(0xB050, 2) | gen4.LINK_DISABLE)
        for vector in range(gen4.VECTORS):
            self.write(0x50 + vector, 1, vector)

    def enable_link(self) -> None:
        """intel_ntb4_link_enable."""
        self.write(0, 4, 0x154)
        self.write(0xB050, 2, self.read(0xB050, 2) & ~gen4.LINK_DISABLE)
        self.write(0xB0D4, 4, self.read(0xB0D4, 4) | gen4.TRAIN)
        assert self.read(0xB0D4, 4) & gen4.TRAIN

    def disable_link(self) -> None:
        """intel_ntb4_link_disable."""
        self.write(0xB050, 2, self.read(0xB050, 2) | gen4.LINK_DISABLE)

    def hear_link(self) -> int:
        """The handler of the link's interrupt (gen4_poll_link); the link status."""
        self.write(0xB05A, 2, gen4.LINK_CHANGED)
        self.write(0x40, 8, 1 << gen4.LINK_BIT)
        return self.read(0xB052, 2)

    def open_window(self, index: int, address: int, length: int) -> None:
        """intel_ntb4_mw_set_trans."""
        self.write(0x10 + 16 * index, 8, address)
        self.write(0x18 + 16 * index, 8, (WINDOW0, WINDOW1)[index] + length)


class Pair:
    """Guests `a` (upstream) and `b`; the clock is a's."""

    def __init__(self) -> None:
        self.link = BridgeLink(lambda seconds, action: self.a.bus.call_later(seconds, action))
        self.a = Guest("a", self.link)
        self.b = Guest("b", self.link)
        self.a.bridge.join(self.b.bridge)

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.a.bus.run(seconds)

    def bring_up(self) -> None:
        """Both drivers probe, enable the link and handle its event."""
        for guest in (self.a, self.b):
            guest.probe()
            guest.enable_link()
        self.wait(TRAINING_SECONDS)
        for guest in (self.a, self.b):
            assert guest.hear_link() == gen4.LINK_UP
        self.wait(HOLD_SECONDS)
        for guest in (self.a, self.b):
            assert guest.bus.take_interrupts() == [gen4.LINK_BIT]
