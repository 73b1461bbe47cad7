"""Two guests at a gen1 bridge, as ntb_hw_intel drives it."""

from __future__ import annotations

import struct
from collections.abc import Collection

from bluebridge.device.layout.ntb import gen1
from bluebridge.device.ntb.gen1 import Gen1Bridge, config_registers
from bluebridge.device.ntb.shape import HOLD_SECONDS, TRAINING_SECONDS, BridgeLink
from tests.models.fake_bus import FakeFunction
from tests.models.ntb_pair import BridgeGuest

SIZE = 1 << 20
BAR2, BAR4 = 0xF7_8000_0000, 0xF7_8010_0000
MIDDLE2, MIDDLE4 = 0x2000000000000000, 0x4000000000000000


def _bridge(
    bus: FakeFunction, link: BridgeLink, downstream: bool, hang: Collection[str]
) -> Gen1Bridge:
    for register in config_registers((SIZE, SIZE), downstream):
        struct.pack_into(register.form, bus.config, register.offset, register.value)
    return Gen1Bridge(bus, link, hang)


class Guest(BridgeGuest):
    """One guest as ntb_hw_intel drives the bridge, with the default work-around: BAR4 shows the
    peer's registers, BAR2 is the window."""

    def __init__(
        self, name: str, link: BridgeLink, downstream: bool, hang: Collection[str] = ()
    ) -> None:
        bars = {2: (BAR2, SIZE), 4: (BAR4, SIZE)}
        super().__init__(f"{name}.ntb1", lambda bus: _bridge(bus, link, downstream, hang), bars)

    def setup(self) -> None:
        """xeon_setup_b2b_mw with BAR4 as the register window, then the interrupt masks."""
        self.bus.set_config(0xD3, b"\0")
        for offset, value in (
            (0x40, MIDDLE4),
            (0x48, MIDDLE2),
            (0x50, MIDDLE4 + gen1.REGISTERS_SHOWN),
            (0x20, MIDDLE2),
            (0x28, MIDDLE4),
            (0x30, 0),
            (0x38, 0),
            (0x00, 0),
            (0x08, 0),
            (0x10, MIDDLE2),
            (0x18, MIDDLE4),
        ):
            self.write(offset, 8, value)
        self.write(0x504, 2, 6)
        self.write(0x62, 2, 0x7FFF)

    def enable_link(self) -> None:
        """intel_ntb_link_enable."""
        self.write(0x58, 4, 0x154)

    def hear_link(self) -> int:
        """xeon_poll_link."""
        self.write(0x60, 2, 1 << gen1.LINK_BIT)
        return self.bus.read_config(gen1.LINK_STATUS, 2)


class Pair:
    """Both guests, set up, the link up."""

    def __init__(self, hang: Collection[str] = ()) -> None:
        """`hang` are errata that are played out in a; time stands still for both."""
        self.link = BridgeLink(lambda seconds, action: self.a.bus.call_later(seconds, action))
        self.a = Guest("a", self.link, downstream=False, hang=hang)
        self.b = Guest("b", self.link, downstream=True)
        self.a.bridge.join(self.b.bridge)
        for guest in (self.a, self.b):
            guest.bridge.hazards.clock = lambda: 0.0
        for guest in (self.a, self.b):
            guest.setup()
            guest.enable_link()
        self.a.bus.run(TRAINING_SECONDS)
        for guest in (self.a, self.b):
            assert guest.bus.take_interrupts() == [3]
            assert guest.hear_link() == gen1.LINK_UP
        self.a.bus.run(HOLD_SECONDS)
