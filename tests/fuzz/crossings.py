"""Two bridges with DMA engines beside them, whose software does step by step what is said."""

from __future__ import annotations

import struct

from bluebridge.device.dma.engine import DmaEngine
from bluebridge.device.layout.ioat import BAR0_SIZE as ENGINE_SIZE
from bluebridge.device.layout.ntb.models import GEN1, GEN4, SWITCHTEC, BarSizes
from bluebridge.device.ntb.gen1 import Gen1Bridge
from bluebridge.device.ntb.link import BridgeLink
from bluebridge.device.ntb.selection import shape_of
from bluebridge.device.pci.host import Host, Place
from tests.fuzz import guests
from tests.fuzz.steps import Step
from tests.fuzz.timed_host import TimedFunction

MODELS = (GEN4, GEN1, SWITCHTEC)
"""By the first byte of an input."""
HANG, STRICT = 1, 2
"""Bits of the second byte: errata are played out, DMA engines refuse what no hardware permits."""
WINDOWS = {2: 0xF7_8000_0000, 4: 0xF7_8080_0000}
REGISTERS, ENGINE = 0xF7_8100_0000, 0xFD00_0000


class Crossings(guests.Machine):
    """Functions 0 and 1 are the bridges, 2 and 3 the engines beside them."""

    hosts: list[TimedFunction]

    def __init__(self, header: bytes) -> None:
        model = MODELS[header[0] % len(MODELS)]
        hang = model.errata if header[1] & HANG else ()
        form = shape_of(model, BarSizes.SMALL, hang=hang)
        buses = [Host("a"), Host("b")]
        self.hosts = [TimedFunction(host.name, host) for host in buses]
        link = BridgeLink(self.hosts[0].call_later)
        bars = {bar.index: bar.size for bar in form.bars}
        self.functions = []
        for bus, registers in zip(self.hosts, form.registers, strict=True):
            for register in registers:
                struct.pack_into(register.form, bus.config, register.offset, register.value)
            bridge = form.make(bus, link)
            bus.model = bus.bridge = bridge
            self.functions.append(bridge)
            if isinstance(bridge, Gen1Bridge):
                bridge.hazards.clock = lambda: self.hosts[0].now
        self.functions[0].join(self.functions[1])
        self.sizes = [bars, bars]
        for beside in list(self.hosts):
            self._add_engine(beside, bool(header[1] & STRICT))
        for index, base in ((0, REGISTERS), *WINDOWS.items()):
            for bus in self.hosts[:2]:
                bus.place_bar(index, base, bars[index])

    def _add_engine(self, beside: TimedFunction, strict: bool) -> None:
        bus = TimedFunction(f"{beside.name}.dma", beside.host, beside=beside)
        engine = DmaEngine(bus, strict=strict)
        bus.model = engine
        bus.place_bar(0, ENGINE, ENGINE_SIZE)
        self.hosts.append(bus)
        self.functions.append(engine)
        self.sizes = [*self.sizes, {0: ENGINE_SIZE}]

    def _bus(self, step: Step) -> TimedFunction:
        return self.hosts[step.function % len(self.hosts)]

    def place(self, step: Step) -> None:
        number = step.function % len(self.hosts)
        bar, base = step.numbers
        if bar in self.sizes[number]:
            self.hosts[number].place_bar(bar, base, self.sizes[number][bar])

    def config(self, step: Step) -> None:
        offset, width = step.numbers
        self._bus(step).read_config(offset % 4096, width or 1)

    def set_config(self, step: Step) -> None:
        offset = step.numbers[0] % 4096
        self._bus(step).set_config(offset, step.data[: 4096 - offset])

    def run_store(self, step: Step) -> None:
        """Stores that came together into a window."""
        number = step.function % 2
        bar, offset, width = step.numbers
        width = width or 1
        data = step.data[: len(step.data) - len(step.data) % width]
        inside = bar in WINDOWS and offset + len(data) <= self.sizes[number][bar]
        if inside and data:
            self.functions[number].store_run(bar, offset, data, width)

    def _target(self, step: Step, length: int) -> Place:
        bus = self._bus(step)
        place = bus.place(step.numbers[0], max(length, 1))
        assert place.length > 0
        return place

    def master_load(self, step: Step) -> None:
        place = self._target(step, step.numbers[1])
        if place.load is not None:
            assert len(place.load()) == place.length

    def master_store(self, step: Step) -> None:
        place = self._target(step, len(step.data))
        if place.view is not None:
            data = step.data[: len(place.view)]
            place.view[: len(data)] = data
        elif place.store is not None:
            place.store(step.data[: place.length].ljust(place.length, b"\0"))


TARGETS = {"ntb": guests.target("ntb", Crossings)}
