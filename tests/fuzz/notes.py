"""How what is done to hosts and models is written down; part of `tests.fuzz.record`."""

from __future__ import annotations

from typing import Any

from bluebridge.device.dma.engine import DmaEngine
from bluebridge.device.fabric.addresses import LinkLayer
from bluebridge.device.mlx4.device import Hca
from bluebridge.device.ntb.gen1 import Gen1Bridge
from bluebridge.device.ntb.gen4 import Gen4Bridge
from bluebridge.device.ntb.switchtec import SwitchtecBridge
from bluebridge.device.rdma.ports.port import Port
from tests.fuzz import adapters, crossings
from tests.fuzz.guests import PAGE, TICK, Kind
from tests.fuzz.tape import Tape
from tests.models.fake_bus import FakeFunction
from tests.models.fake_host import FakeHost

BRIDGES = (Gen4Bridge, Gen1Bridge, SwitchtecBridge)
"""In the order of `crossings.MODELS`."""


def poke(tape: Tape, host: FakeHost, address: int, data: bytes) -> None:
    raw = bytes(data)
    number = tape.hosts.get(id(host))
    tape.add(Kind.POKE, number, address, len(raw), data=raw.rstrip(b"\0"))


def run(tape: Tape, host: FakeHost, seconds: float = 0.0) -> None:
    number = tape.hosts.get(id(host))
    if number is None and tape.target == "hca":
        number = 3
    while True:
        tape.add(Kind.TIME, number, round(min(seconds, 1.0) / TICK))
        seconds -= 1.0
        if seconds <= 0:
            return


def map(tape: Tape, host: FakeHost, base: int, size: int) -> None:
    number = tape.hosts.get(id(host))
    if number is not None:
        tape.add(Kind.MAP, number, base, -(-size // PAGE))


def unmap(tape: Tape, host: FakeHost, base: int) -> None:
    tape.add(Kind.UNMAP, tape.hosts.get(id(host)), base)


def fail(tape: Tape, hca: Hca, *_: object) -> None:
    tape.add(Kind.OPERATE, tape.functions.get(id(hca)), adapters.FAULT, 0)


def reset(tape: Tape, model: object) -> None:
    tape.add(Kind.RESET, tape.functions.get(id(model)))


def store(tape: Tape, model: object, bar: int, offset: int, data: bytes) -> None:
    tape.add(Kind.STORE, tape.functions.get(id(model)), bar, offset, data=bytes(data))


def load(tape: Tape, model: object, bar: int, offset: int, width: int) -> None:
    tape.add(Kind.LOAD, tape.functions.get(id(model)), bar, offset, width)


def run_store(tape: Tape, model: object, bar: int, offset: int, data: bytes, width: int) -> None:
    number = tape.functions.get(id(model))
    tape.add(Kind.RUN_STORE, number, bar, offset, width, data=bytes(data))


def place(tape: Tape, bus: FakeFunction, index: int, base: int, size: int) -> None:
    tape.add(Kind.PLACE, tape.hosts.get(id(bus)), index, base)


def config(tape: Tape, bus: FakeFunction, offset: int, length: int) -> None:
    tape.add(Kind.CONFIG, tape.hosts.get(id(bus)), offset, length)


def set_config(tape: Tape, bus: FakeFunction, offset: int, data: bytes) -> None:
    tape.add(Kind.SET_CONFIG, tape.hosts.get(id(bus)), offset, data=bytes(data))


def master(tape: Tape, bus: FakeFunction, address: int, length: int) -> None:
    tape.add(Kind.MASTER_STORE, tape.hosts.get(id(bus)), address, data=b"\1" * min(length, 64))
    tape.add(Kind.MASTER_LOAD, tape.hosts.get(id(bus)), address, min(length, 255))


def plug(tape: Tape, port: Port, cable: bool) -> None:
    for model in tape.kept:
        if isinstance(model, Hca) and port in model.adapter.ports:
            number = model.adapter.ports.index(port)
            hca = tape.functions.get(id(model))
            tape.add(Kind.OPERATE, hca, adapters.PLUG, number << 1 | cable)


# -- what functions are made of -----------------------------------------------------------------


def hca(tape: Tape, hca: Hca, bus: object, fabrics: object, config: Any) -> None:
    number = len(tape.functions)
    tape.target = tape.target or "hca"
    if tape.target != "hca" or number > 2 or not isinstance(bus, FakeHost):
        tape.clean = False
        return
    features = config.features
    bits = {
        adapters.INFINIBAND: config.link is LinkLayer.INFINIBAND,
        adapters.TWO_PORTS: features.ports == 2,
        adapters.BLUEFLAME: features.blueflame,
        adapters.PRO: features.pro,
        adapters.LARGE_CQES: features.large_cqes,
        adapters.TRUSTING: features.trusting,
        adapters.LARGE_MEMORY: _size(bus) > 8 << 20,
    }
    tape.header[0] |= sum(bit for bit, wanted in bits.items() if wanted)
    tape.header[1] |= adapters.THIRD if number > 1 else 0
    if config.mac != adapters.mac_of(number + 1):
        tape.clean = False
    tape.functions[id(hca)] = tape.hosts[id(bus)] = number
    tape.kept += [hca, bus]


def unmanaged(tape: Tape, *_: object) -> None:
    tape.header[0] |= adapters.UNMANAGED


def _size(host: FakeHost) -> int:
    low = 0x100000
    view = host._memory.stretch(low, 1 << 40)
    return 0 if view is None else len(view)


def bridge(
    tape: Tape, bridge: object, bus: FakeFunction, link: object, hang: object = (), *_: object
) -> None:
    tape.target = tape.target or "ntb"
    number = sum(isinstance(each, BRIDGES) for each in tape.kept)
    if tape.target != "ntb" or number > 1:
        tape.clean = False
        return
    tape.header[0] = next(i for i, cls in enumerate(BRIDGES) if isinstance(bridge, cls))
    tape.header[1] |= crossings.HANG if hang else 0
    tape.functions[id(bridge)] = tape.hosts[id(bus)] = number
    tape.kept += [bridge, bus]


def engine(tape: Tape, engine: object, bus: FakeFunction, **more: Any) -> None:
    tape.target = tape.target or "ntb"
    number = 2 + sum(isinstance(each, DmaEngine) for each in tape.kept)
    if tape.target != "ntb" or number > 3:
        tape.clean = False
        return
    tape.header[1] |= crossings.STRICT if more.get("strict") else 0
    tape.functions[id(engine)] = tape.hosts[id(bus)] = number
    tape.kept += [engine, bus]
