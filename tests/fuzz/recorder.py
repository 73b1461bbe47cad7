"""Listens to what is done to hosts and models, from outside of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from bluebridge.device.dma.engine import DmaEngine
from bluebridge.device.fabric.addresses import LinkLayer
from bluebridge.device.fabric.subnet.manager import TrapSender
from bluebridge.device.mlx4.device import Hca
from bluebridge.device.mlx5.device import Hca as Mlx5Hca
from bluebridge.device.ntb.gen1 import Gen1Bridge
from bluebridge.device.ntb.gen4 import Gen4Bridge
from bluebridge.device.ntb.switchtec import SwitchtecBridge
from bluebridge.device.rdma.ports.port import Port
from tests.fuzz import machines
from tests.fuzz.guests import FORMS, PAGE, TICK, Kind
from tests.fuzz.steps import Step, encode
from tests.models.fake_bus import FakeFunction
from tests.models.fake_host import FakeHost
from tests.models.hca_driver import mac_of
from tests.models.mlx5_node import mac_of as mlx5_mac_of


class Tape:
    """The steps that one test took; `clean` while all of it could be written down."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.hosts: dict[int, int] = {}
        """Numbers of hosts by identity."""
        self.functions: dict[int, int] = {}
        self.kept: list[object] = []
        self.header = [0, 0]
        self.target = ""
        self.clean = True
        self._loaded: set[Step] = set()

    def content(self) -> bytes:
        """Return all steps, encoded as an input."""
        return b"".join(encode(FORMS, step) for step in self.steps)

    def add(self, kind: Kind, number: int | None, *numbers: int, data: bytes = b"") -> None:
        """One step; stores and pokes that go on where the last ended become one."""
        if number is None:
            return
        step = Step(kind, number, numbers, data)
        if kind is Kind.LOAD and self.target in ("hca", "mlx5"):
            if step in self._loaded:
                return
            self._loaded.add(step)
        last = self.steps[-1] if self.steps else None
        joined = _joined(last, step) if last is not None else None
        if joined is not None:
            self.steps[-1] = joined
        else:
            self.steps.append(step)


def _joined(last: Step, step: Step) -> Step | None:
    """Both as one step, None when they are two."""
    if last.function != step.function:
        return None
    if last.kind == step.kind == Kind.TIME:
        total = last.numbers[0] + step.numbers[0]
        return Step(Kind.TIME, step.function, (total,)) if total * TICK < 1 else None
    if last.kind == step.kind == Kind.POKE:
        start, length = last.numbers
        if step.numbers[0] != start + length or length > PAGE or step.numbers[1] > 64:
            return None
        data = last.data.ljust(length, b"\0") + step.data
        return Step(Kind.POKE, step.function, (start, length + step.numbers[1]), data)
    if step.kind != Kind.STORE or len(step.data) != 4 or last.numbers[:1] != step.numbers[:1]:
        return None
    if (last.kind == Kind.STORE and len(last.data) == 4) or last.kind == Kind.STORES:
        bar, offset = last.numbers[:2]
        if offset + len(last.data) == step.numbers[1]:
            return Step(Kind.STORES, step.function, (bar, offset, 4), last.data + step.data)
    return None


BRIDGES = (Gen4Bridge, Gen1Bridge, SwitchtecBridge)
"""In the order of `machines.MODELS`."""


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


def fail(tape: Tape, hca: Hca | Mlx5Hca, *_: object) -> None:
    tape.add(Kind.OPERATE, tape.functions.get(id(hca)), machines.FAULT, 0)


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
        if isinstance(model, (Hca, Mlx5Hca)) and port in model.adapter.ports:
            number = model.adapter.ports.index(port)
            hca = tape.functions.get(id(model))
            tape.add(Kind.OPERATE, hca, machines.PLUG, number << 1 | cable)


# -- what functions are made of -----------------------------------------------------------------


def hca(tape: Tape, hca: Hca, bus: object, fabrics: object, config: Any) -> None:
    number = len(tape.functions)
    tape.target = tape.target or "hca"
    if tape.target != "hca" or number > 2 or not isinstance(bus, FakeHost):
        tape.clean = False
        return
    features = config.features
    bits = {
        machines.INFINIBAND: config.link is LinkLayer.INFINIBAND,
        machines.TWO_PORTS: features.ports == 2,
        machines.BLUEFLAME: features.blueflame,
        machines.PRO: features.pro,
        machines.LARGE_CQES: features.large_cqes,
        machines.TRUSTING: config.network.trusting,
        machines.LARGE_MEMORY: _size(bus) > 8 << 20,
    }
    tape.header[0] |= sum(bit for bit, wanted in bits.items() if wanted)
    tape.header[1] |= machines.THIRD if number > 1 else 0
    if config.mac != mac_of(number + 1):
        tape.clean = False
    tape.functions[id(hca)] = tape.hosts[id(bus)] = number
    tape.kept += [hca, bus]


def mlx5(tape: Tape, hca: Mlx5Hca, bus: object, fabrics: object, config: Any) -> None:
    number = len(tape.functions)
    tape.target = tape.target or "mlx5"
    if tape.target != "mlx5" or number > 1 or not isinstance(bus, FakeHost):
        tape.clean = False
        return
    tape.header[0] |= machines.LARGE_MEMORY if _size(bus) > 8 << 20 else 0
    tape.header[0] |= machines.BLUEFLAME if config.blueflame else 0
    if config.mac != mlx5_mac_of(number + 1):
        tape.clean = False
    tape.functions[id(hca)] = tape.hosts[id(bus)] = number
    tape.kept += [hca, bus]


def unmanaged(tape: Tape, *_: object) -> None:
    tape.header[0] |= machines.UNMANAGED


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
    tape.header[1] |= machines.HANG if hang else 0
    tape.functions[id(bridge)] = tape.hosts[id(bus)] = number
    tape.kept += [bridge, bus]


def engine(tape: Tape, engine: object, bus: FakeFunction, **more: Any) -> None:
    tape.target = tape.target or "ntb"
    number = 2 + sum(isinstance(each, DmaEngine) for each in tape.kept)
    if tape.target != "ntb" or number > 3:
        tape.clean = False
        return
    tape.header[1] |= machines.STRICT if more.get("strict") else 0
    tape.functions[id(engine)] = tape.hosts[id(bus)] = number
    tape.kept += [engine, bus]


class Recorder:
    """Wraps methods of hosts and models; those called from inside of others do not count."""

    def __init__(self) -> None:
        self.tape: Tape | None = None
        self._depth = 0

    @contextmanager
    def taping(self) -> Iterator[Tape]:
        """Yield what is done meanwhile."""
        self.tape = Tape()
        try:
            yield self.tape
        finally:
            self.tape = None

    def wrap(self, cls: type, name: str, note: Callable[..., None], after: bool = False) -> None:
        """Call `note(tape, instance, arguments)` with outer calls of a method."""
        original = getattr(cls, name)

        @wraps(original)
        def method(self_: Any, *words: Any, **more: Any) -> Any:
            tape = self.tape
            outer = tape is not None and not self._depth
            if outer and not after:
                note(tape, self_, *words, **more)
            self._depth += 1
            try:
                return original(self_, *words, **more)
            finally:
                self._depth -= 1
                if outer and after:
                    note(tape, self_, *words, **more)

        setattr(cls, name, method)

    def listen(self) -> None:
        """Wrap all that is written down."""
        self.wrap(FakeHost, "poke", poke)
        self.wrap(FakeHost, "run", run)
        self.wrap(FakeHost, "turn", run)
        self.wrap(FakeHost, "map", map)
        self.wrap(FakeHost, "unmap", unmap)
        self.wrap(FakeFunction, "place_bar", place)
        self.wrap(FakeFunction, "read_config", config)
        self.wrap(FakeFunction, "set_config", set_config)
        self.wrap(FakeFunction, "place", master)
        self.wrap(Hca, "__init__", hca, after=True)
        self.wrap(Hca, "fail", fail)
        self.wrap(Mlx5Hca, "__init__", mlx5, after=True)
        self.wrap(Mlx5Hca, "fail", fail)
        self.wrap(Port, "plug", plug)
        self.wrap(TrapSender, "__init__", unmanaged)
        for each in BRIDGES:
            self.wrap(each, "__init__", bridge, after=True)
            self.wrap(each, "store_run", run_store)
        self.wrap(DmaEngine, "__init__", engine, after=True)
        for model in (Hca, Mlx5Hca, DmaEngine, *BRIDGES):
            self.wrap(model, "bar_write", store)
            self.wrap(model, "bar_read", load)
            self.wrap(model, "reset", reset)
