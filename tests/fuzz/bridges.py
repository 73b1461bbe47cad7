"""Bridges of every model and the DMA engine, whose guests do what the fuzzer says."""

from __future__ import annotations

from collections.abc import Callable

from bluebridge.device.dma.engine import DmaEngine
from bluebridge.device.layout.ioat import BAR0_SIZE as ENGINE_SIZE
from bluebridge.device.layout.ioat import DESCRIPTOR
from bluebridge.device.layout.ntb.models import MODELS, BridgeModel
from bluebridge.device.ntb.link import BridgeLink
from bluebridge.device.ntb.selection import shape_of
from bluebridge.device.pci.host import Host
from tests.fuzz.bytes_left import BytesLeft
from tests.models.fake_bus import FakeFunction

ENGINE = 0xFD00_0000
RAM = 0x100000
BASES = {0: 0xF7_8100_0000, 2: 0xF7_8000_0000, 4: 0xF7_8080_0000}
ADDRESSES = (RAM, RAM + 0xFFC, *BASES.values(), ENGINE, ENGINE + 0x86, 0xFEE00000, 0)
REGIONS = (0, 0xB000, 0x14000, 0x75000, 0x10000, 0x134000)
"""Where the models have registers."""
STEPS = 60


class _Guests:
    """Both bridges of a model, each with a DMA engine beside it."""

    def __init__(self, model: BridgeModel) -> None:
        form = shape_of(model)
        self.sizes = {bar.index: bar.size for bar in form.bars}
        hosts = [Host("a"), Host("b")]
        self.buses = [FakeFunction(host.name, host) for host in hosts]
        self._link = BridgeLink(self.buses[0].call_later)
        self.bridges = [form.make(bus, self._link) for bus in self.buses]
        self.bridges[0].join(self.bridges[1])
        for bus, bridge in zip(self.buses, self.bridges, strict=True):
            bus.model = bus.bridge = bridge
            for index, base in BASES.items():
                bus.place_bar(index, base, self.sizes[index])
        self.engines = [self._engine(bus) for bus in list(self.buses)]

    def _engine(self, beside: FakeFunction) -> DmaEngine:
        bus = FakeFunction(f"{beside.name}.dma", beside.host, beside=beside)
        engine = DmaEngine(bus)
        bus.model = engine
        bus.place_bar(0, ENGINE, ENGINE_SIZE)
        self.buses.append(bus)
        return engine

    def run(self, seconds: float) -> None:
        """Let happen what waits: a few turns of what never ends."""
        for bus in self.buses:
            for _ in range(20):
                bus.turn()
        for bus in self.buses[:2]:
            bus.run(seconds)

    def reset(self) -> None:
        """Both guests go."""
        for engine in self.engines:
            engine.reset()
        for bridge in self.bridges:
            bridge.reset()
        for bus in self.buses:
            bus.run(0.5)


def _value(left: BytesLeft, width: int) -> bytes:
    value = left.choice(ADDRESSES) if left.number(1) & 1 else left.number(width)
    return (value & ((1 << 8 * width) - 1)).to_bytes(width, "little")


def _step(guests: _Guests, left: BytesLeft) -> None:
    side, kind = left.number(1) & 1, left.number(1) % 5
    width = left.choice((4, 8, 2, 1))
    if kind < 2:
        bar = left.choice((0, 0, 0, 2, 4))
        offset = (left.choice(REGIONS) + left.number(2)) % (guests.sizes[bar] - width + 1)
        guests.bridges[side].bar_write(bar, offset, _value(left, width))
        assert len(guests.bridges[side].bar_read(bar, offset, width)) == width
    elif kind == 2:
        offset = left.number(2) % (0x300 - width)
        guests.engines[side].bar_write(0, offset, _value(left, width))
        assert len(guests.engines[side].bar_read(0, offset, width)) == width
    elif kind == 3:
        guests.buses[side].poke(RAM + left.number(2) % 0x8000, left.block(192))
    else:
        guests.run(left.number(1) / 256)


def _bridge(model: BridgeModel) -> Callable[[bytes], None]:
    def run(data: bytes) -> None:
        left = BytesLeft(data)
        guests = _Guests(model)
        for _ in range(STEPS):
            if not left:
                break
            _step(guests, left)
        guests.run(0.1)
        guests.reset()

    return run


def _descriptor(left: BytesLeft) -> bytes:
    """One whose fields are plausible, or 64 bytes of the fuzzer's."""
    if not left.number(1) & 7:
        return left.block(64)
    address = [left.choice(ADDRESSES) + left.number(2) for _ in range(2)]
    return bytes(
        DESCRIPTOR.pack(
            size=left.choice((8, 64, left.number(2), left.number(4))),
            operation=left.choice((0, 0, 0, left.number(1))),
            null=left.number(1) & 1,
            completion_write=left.number(1) & 1,
            interrupt=left.number(1) & 1,
            source=address[0],
            destination=address[1],
            next=RAM + 64 * (left.number(1) & 31),
        )
    )


def chains(data: bytes) -> None:
    """Descriptors of the fuzzer's bytes on all channels of an engine."""
    left = BytesLeft(data)
    guests = _Guests(MODELS[0])
    engine, bus = guests.engines[0], guests.buses[0]
    for slot in range(16):
        bus.poke(RAM + 64 * slot, _descriptor(left))
    for channel in range(4):
        base = 0x80 * (channel + 1)
        for offset, width, value in (
            (0x18, 4, left.choice(ADDRESSES) & 0xFFFFFFFF),
            (0x10, 4, RAM + 64 * (left.number(1) & 15)),
            (6, 2, left.number(2)),
            (4, 1, left.choice((0, 0, 0, left.number(1)))),
        ):
            engine.bar_write(0, base + offset, value.to_bytes(width, "little"))
    guests.run(0.1)
    guests.reset()


TARGETS: dict[str, Callable[[bytes], None]] = {
    **{model.name: _bridge(model) for model in MODELS},
    "chains": chains,
}
