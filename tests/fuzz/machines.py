"""Machines whose software does step by step what an input says: HCAs, bridges with engines."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from bluebridge.device.dma.engine import DmaEngine
from bluebridge.device.fabric.addresses import LinkLayer
from bluebridge.device.fabric.interface import Fabric
from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.fabric.subnet.fabric import InfinibandFabric
from bluebridge.device.fabric.subnet.manager import SubnetManager, TrapSender
from bluebridge.device.layout.ioat import BAR0_SIZE as ENGINE_SIZE
from bluebridge.device.layout.mlx4 import bar0, uar
from bluebridge.device.layout.mlx5 import init_segment
from bluebridge.device.layout.ntb.models import GEN1, GEN4, SWITCHTEC, BarSizes
from bluebridge.device.mlx4.device import Hca
from bluebridge.device.mlx4.settings.config import Features, HcaConfig
from bluebridge.device.mlx5.device import Hca as Mlx5Hca
from bluebridge.device.mlx5.settings.config import Config as Mlx5Config
from bluebridge.device.ntb.gen1 import Gen1Bridge
from bluebridge.device.ntb.selection import shape_of
from bluebridge.device.ntb.shape import BridgeLink
from bluebridge.device.pci.host import Host, Place
from tests.fuzz import guests
from tests.fuzz.steps import Step
from tests.fuzz.timed_host import TimedFunction, TimedHost
from tests.models.hca_driver import mac_of
from tests.models.mlx5_node import mac_of as mlx5_mac_of

INFINIBAND, TWO_PORTS, BLUEFLAME, PRO, LARGE_CQES, UNMANAGED, LARGE_MEMORY, TRUSTING = (
    1 << bit for bit in range(8)
)
"""Bits of an input's first byte."""
THIRD = 1
"""Of its second byte: there is a third HCA."""
PLUG, FAULT = range(2)
"""Actions of an operator: the cable of a port in or out, an internal error."""
MOST_DRAINS = 5
"""Times `timed_host.CALLS` calls, after the last step: more than any queue has entries for."""
_SIZES = {0: bar0.BAR0_SIZE, 2: uar.BAR2_SIZE}


class Adapters(guests.Machine):
    """Hosts 0 and 1 have an HCA each, host 2 may; host 3 is the clock of the subnet."""

    def __init__(self, header: bytes) -> None:
        flags = header[0]
        size = 64 << 20 if flags & LARGE_MEMORY else 8 << 20
        self.hosts = [TimedHost(name, size=size) for name in "abc"]
        self.hosts.append(TimedHost("clock", size=4096))
        features = Features(
            ports=1 + bool(flags & TWO_PORTS),
            blueflame=bool(flags & BLUEFLAME),
            pro=bool(flags & PRO),
            large_cqes=bool(flags & LARGE_CQES),
        )
        fabrics = [self._fabric(flags) for _ in range(features.ports)]
        link = LinkLayer.INFINIBAND if flags & INFINIBAND else LinkLayer.ETHERNET
        macs = [mac_of(number) for number in (1, 2, 3)[: 3 if header[1] & THIRD else 2]]
        self.functions = [
            Hca(host, fabrics, HcaConfig(host.name, mac, link=link, features=features))
            for host, mac in zip(self.hosts, macs, strict=False)
        ]
        self.sizes = [_SIZES] * len(macs)

    def _fabric(self, flags: int) -> Fabric:
        if not flags & INFINIBAND:
            return LocalFabric(trusting=bool(flags & TRUSTING))
        fabric = InfinibandFabric()
        kind = TrapSender if flags & UNMANAGED else SubnetManager
        kind(fabric, self.hosts[3].call_later)
        return fabric

    def operate(self, function: int, what: int, number: int) -> None:
        """Pull a cable, or plug it in, of port `number`; an internal error."""
        hca = self.functions[function % len(self.functions)]
        if what & 1 == PLUG:
            ports = hca.adapter.ports
            ports[(number >> 1) % len(ports)].plug(bool(number & 1))
        else:
            hca.fail("as an operator says")

    def end(self) -> None:
        """Nothing that a driver posts makes an HCA work for ever: rings have an end."""
        _drain(self.hosts)
        super().end()


class Mlx5Adapters(guests.Machine):
    """Hosts 0 and 1 have a ConnectX-5 each, on one cable."""

    def __init__(self, header: bytes) -> None:
        size = 64 << 20 if header[0] & LARGE_MEMORY else 8 << 20
        self.hosts = [TimedHost(name, size=size) for name in "ab"]
        fabric, stores = LocalFabric(), bool(header[0] & BLUEFLAME)
        self.functions = [
            Mlx5Hca(host, [fabric], Mlx5Config(host.name, mlx5_mac_of(number), blueflame=stores))
            for number, host in enumerate(self.hosts, 1)
        ]
        self.sizes = [{0: init_segment.BAR0_SIZE}] * 2

    def operate(self, function: int, what: int, number: int) -> None:
        """Pull the cable, or plug it in; an internal error."""
        hca = self.functions[function % len(self.functions)]
        if what & 1 == PLUG:
            hca.ports[0].plug(bool(number & 1))
        else:
            hca.fail("as an operator says")

    def end(self) -> None:
        """Nothing that a driver posts makes an adapter work for ever: rings have an end."""
        _drain(self.hosts)
        super().end()


def _drain(hosts: Sequence[TimedHost]) -> None:
    for host in hosts:
        for _ in range(MOST_DRAINS):
            host.run()
        assert not host.busy, f"{host.name} has work without an end"


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

    def end(self) -> None:
        """A reset ends what an engine does."""
        super().end()
        for engine in self.functions[2:]:
            assert not any(channel.busy for channel in engine.channels)

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
