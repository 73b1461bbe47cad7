"""Guests whose every step is data: memory, a clock, functions, and what software does to them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import cache, partial
from pathlib import Path
from typing import Any

from bluebridge.device.pci.bus import DmaError
from tests.fuzz.steps import BytesLeft, Form, Forms, Step, decode
from tests.fuzz.timed_host import TimedHost, timed

FOLDER = Path(__file__).with_name("prologues")
MOST = 16
"""Numbers there are; one without a file, such as 0, is the cold start."""
HEADER = 2
NAMES: dict[str, dict[int, str]] = {
    "hca": {
        1: "roce_nodes",
        2: "roce_connected",
        3: "started",
        4: "infiniband",
        5: "ethernet_frames",
        6: "infiniband_unmanaged",
    },
    "mlx5": {
        1: "mlx5_rings",
        2: "mlx5_started",
        3: "mlx5_node",
        4: "mlx5_spread",
        5: "mlx5_roce",
        6: "mlx5_connected",
        7: "mlx5_registering",
        8: "mlx5_paged",
        9: "mlx5_user",
        10: "mlx5_alone",
    },
    "ntb": {1: "gen4_up", 2: "gen1_up", 3: "switchtec_up"},
}


@cache
def prologue(target: str, number: int) -> bytes:
    """Its steps, none for the cold start."""
    name = NAMES[target].get(number % MOST)
    return (FOLDER / target / name).read_bytes() if name else b""


def parts(target: str, data: bytes) -> tuple[bytes, bytes]:
    """Header and all steps of an input."""
    header = data[1 : 1 + HEADER].ljust(HEADER, b"\0")
    return header, (prologue(target, data[0]) if data else b"") + data[1 + HEADER :]


PAGE = 4096
TICK = 10e-6
"""Seconds of a step of time."""
LONGEST = 2.0
"""Seconds of the guest's clock that one step may take."""
MOST_MAPPED = 1 << 24
MOST_POKED = 1 << 20


class Kind(IntEnum):
    """The kinds of steps."""

    STORE = 0
    STORES = 1
    LOAD = 2
    POKE = 3
    TIME = 4
    RESET = 5
    MAP = 6
    UNMAP = 7
    OPERATE = 8
    PLACE = 9
    CONFIG = 10
    RUN_STORE = 11
    MASTER_LOAD = 12
    MASTER_STORE = 13
    SET_CONFIG = 14


FORMS: Forms = {
    Kind.STORE: Form((1, 4), data=True),
    Kind.STORES: Form((1, 4, 1), data=True),
    Kind.LOAD: Form((1, 4, 1)),
    Kind.POKE: Form((8, 3), data=True),
    Kind.TIME: Form((3,)),
    Kind.RESET: Form(),
    Kind.MAP: Form((8, 2)),
    Kind.UNMAP: Form((8,)),
    Kind.OPERATE: Form((1, 1)),
    Kind.PLACE: Form((1, 8)),
    Kind.CONFIG: Form((2, 1)),
    Kind.RUN_STORE: Form((1, 4, 1), data=True),
    Kind.MASTER_LOAD: Form((8, 1)),
    Kind.MASTER_STORE: Form((8,), data=True),
    Kind.SET_CONFIG: Form((2,), data=True),
}
"""Numbers of each: BAR, offset, width; address, length; ticks; offset and width."""


class Machine:
    """Functions by number and the hosts they are in; `sizes` are the bytes of their BARs."""

    hosts: Sequence[TimedHost]
    functions: list[Any]
    sizes: list[dict[int, int]]

    def operate(self, function: int, what: int, number: int) -> None:
        """Do as an operator does."""

    def end(self) -> None:
        """Time passes, then all guests go."""
        for host in self.hosts:
            host.run(0.05)
        for function in self.functions:
            function.reset()
        for host in self.hosts:
            host.run(0.5)

    # -- kinds of steps -------------------------------------------------------------------------

    def store(self, step: Step) -> None:
        """Data of any width to a register."""
        self._store(step, max(len(step.data), 1))

    def stores(self, step: Step) -> None:
        """One store after the other."""
        self._store(step, max(step.numbers[2], 1))

    def _store(self, step: Step, width: int) -> None:
        number = step.function % len(self.functions)
        bar, offset, *_ = step.numbers
        size = self.sizes[number].get(bar, 0)
        for at in range(0, len(step.data), width):
            data = step.data[at : at + width]
            if offset + at + len(data) <= size:
                self.functions[number].bar_write(bar, offset + at, data)

    def load(self, step: Step) -> None:
        """Bytes of a register: as many as were asked for."""
        number = step.function % len(self.functions)
        bar, offset, width = step.numbers
        width = width or 4
        if offset + width <= self.sizes[number].get(bar, 0):
            assert len(self.functions[number].bar_read(bar, offset, width)) == width

    def _host(self, step: Step) -> TimedHost:
        return self.hosts[step.function % len(self.hosts)]

    def poke(self, step: Step) -> None:
        """Other bytes in the guest's memory; zeros follow."""
        address, length = step.numbers
        with contextlib.suppress(DmaError):
            self._host(step).poke(address, step.data.ljust(min(length, MOST_POKED), b"\0"))

    def time(self, step: Step) -> None:
        """The clock moves."""
        self._host(step).run(min(step.numbers[0] * TICK, LONGEST))

    def reset(self, step: Step) -> None:
        """The function is reset."""
        self.functions[step.function % len(self.functions)].reset()

    def map(self, step: Step) -> None:
        """Map memory of a guest, unless it overlaps."""
        address, pages = step.numbers
        host = self._host(step)
        size = min(max(pages, 1) * PAGE, MOST_MAPPED)
        if address % PAGE == 0 and address + size <= 1 << 64 and not host.overlaps(address, size):
            host.give_memory(address, size)

    def unmap(self, step: Step) -> None:
        """Unmap memory of a guest from an address on."""
        self._host(step).unmap(step.numbers[0])

    def operator(self, step: Step) -> None:
        """Cables, faults: what is not software of a guest."""
        self.operate(step.function, *step.numbers)

    def place(self, step: Step) -> None:
        """The guest gives a BAR an address."""

    def config(self, step: Step) -> None:
        """The guest reads config space."""

    def set_config(self, step: Step) -> None:
        """The guest writes config space."""

    def run_store(self, step: Step) -> None:
        """Stores that came together."""

    def master_load(self, step: Step) -> None:
        """A function of the guest loads from an address of its bus."""

    def master_store(self, step: Step) -> None:
        """A function of the guest stores to an address of its bus."""


_ACTIONS: dict[int, Callable[[Machine, Step], None]] = {
    Kind.STORE: Machine.store,
    Kind.STORES: Machine.stores,
    Kind.LOAD: Machine.load,
    Kind.POKE: Machine.poke,
    Kind.TIME: Machine.time,
    Kind.RESET: Machine.reset,
    Kind.MAP: Machine.map,
    Kind.UNMAP: Machine.unmap,
    Kind.OPERATE: Machine.operator,
    Kind.PLACE: lambda machine, step: machine.place(step),
    Kind.CONFIG: lambda machine, step: machine.config(step),
    Kind.RUN_STORE: lambda machine, step: machine.run_store(step),
    Kind.MASTER_LOAD: lambda machine, step: machine.master_load(step),
    Kind.MASTER_STORE: lambda machine, step: machine.master_store(step),
    Kind.SET_CONFIG: lambda machine, step: machine.set_config(step),
}
_TIMED = {Kind.STORE, Kind.LOAD, Kind.RUN_STORE, Kind.RESET, Kind.CONFIG}
"""Those that are one call of a device."""


def target(name: str, make: Callable[[bytes], Machine]) -> Callable[[bytes], None]:
    """Return what fuzzes the machines that `make` makes of two bytes."""

    def run(data: bytes) -> None:
        header, steps = parts(name, data)
        machine = make(header)
        for step in decode(FORMS, BytesLeft(steps)):
            action = partial(_ACTIONS[step.kind], machine, step)
            (timed(action) if step.kind in _TIMED else action)()
        machine.end()

    return run
