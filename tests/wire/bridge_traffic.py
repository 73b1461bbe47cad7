"""Two guests that use a bridge of any model, so that its log can be looked at."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from bluebridge.device.layout.ntb import switchtec
from bluebridge.device.layout.ntb.models import SWITCHTEC, BridgeModel
from bluebridge.device.layout.ntb.switchtec import LinkMessage, Operation
from bluebridge.guest.drivers.dma import Engine
from bluebridge.guest.drivers.ntb import Bridge, bridge_of
from bluebridge.host_tools.vfio_user.bus import Ram
from tests.models.function import WireFunction
from tests.models.until import until

BARS = {0: 0xF7_8040_0000, 2: 0xF7_8000_0000, 4: 0xF7_8020_0000}
ENGINE_BARS = {0: 0xF7_9000_0000}
SECONDS = 20.0
MESSAGES = 0xFEE0_0000
STORED, RUN, COPIED = b"stored!!", bytes(range(32)), bytes(range(256))
MASKED, HEARD = 1 << 4, 1 << 3


class Side(Protocol):
    """One guest's bridge. Window `bar` is at offset 0 of its BAR."""

    function: WireFunction
    bar: int

    def show(self, address: int, length: int) -> None:
        """Let the peer's window show a stretch of this guest's bus; nothing for 0 bytes."""

    def ring(self, bits: int) -> None:
        """Ring the peer."""

    def rung(self) -> int:
        """Return what the peer has rung."""

    def clear(self, bits: int) -> None:
        """Forget it."""

    def unmask(self, bits: int) -> None:
        """Let it interrupt."""


class Intel:
    """A bridge that `guest.drivers.ntb` has a driver for."""

    bar = 2

    def __init__(self, function: WireFunction) -> None:
        self.function = function
        self.bridge: Bridge = bridge_of(function)
        self.ring = self.bridge.ring
        self.rung = self.bridge.rung
        self.clear = self.bridge.clear
        self.unmask = self.bridge.unmask

    def show(self, address: int, length: int) -> None:
        """Let the peer's window show a stretch of this guest's bus; nothing for 0 bytes."""
        window = self.bridge.windows[0]
        if length:
            window.set_translation(address, length)
        else:
            window.clear_translation()


class Switchtec:
    """One partition, by the registers that ntb_hw_switchtec writes."""

    bar = 4

    def __init__(self, function: WireFunction, partition: int) -> None:
        self.function = function
        self.partition = partition
        self.masked = 0
        function.enable_interrupts(switchtec.VECTORS)
        for index in range(64):
            at = (switchtec.VECTOR0, switchtec.VECTOR1)[partition].at("vector", index)
            function.store(0, at, 1, 1 if index < switchtec.DOORBELLS else 2)
        self.put("outbound_mask", 8, (1 << switchtec.DOORBELLS) - 1)
        wanted = sum((n | (1 - partition) << 2) << 8 * n for n in range(4))
        self.put("message_map", 4, wanted)
        self.put("inbound0_enable", 1, 1)

    def at(self, name: str) -> int:
        """Offset of a register of the own messaging block."""
        return switchtec.MESSAGING.at(name, self.partition)

    def put(self, name: str, width: int, value: int) -> None:
        """Write a register of it."""
        self.function.store(0, self.at(name), width, value)

    def show(self, address: int, length: int) -> None:
        """Let the peer's window show a stretch of this guest's bus; nothing for 0 bytes."""
        block = 1 - self.partition
        for name, width, value in (
            ("operation", 4, Operation.LOCK),
            ("bar4_control", 4, switchtec.BAR_VALID | (switchtec.DIRECT_ENABLE if length else 0)),
            ("bar4_size", 4, length),
            ("bar4_translation", 8, address | self.partition),
            ("operation", 4, Operation.CONFIGURE),
        ):
            self.function.store(0, switchtec.CONTROL.at(name, block), width, value)

    def ring(self, bits: int) -> None:
        """Ring the peer."""
        self.put("outbound_doorbell", 8, bits)

    def rung(self) -> int:
        """Return what the peer has rung."""
        return self.function.load(0, self.at("inbound_doorbell"), 8)

    def clear(self, bits: int) -> None:
        """Forget it."""
        self.put("inbound_doorbell", 8, bits)

    def unmask(self, bits: int) -> None:
        """Let it interrupt."""
        self.masked |= bits
        self.put("inbound_mask", 8, self.masked)


def play(model: BridgeModel, folder: Path) -> None:
    """Everything that the tests look for in the log of the server with its sockets in `folder`."""
    with ExitStack() as stack:
        rams, functions = [Ram(), Ram()], []
        for name, ram in zip("ab", rams, strict=True):
            stack.callback(ram.close)
            functions.append(WireFunction(folder / name, ram, BARS))
        engine = Engine(WireFunction(folder / "dma", rams[0], ENGINE_BARS), entries=8)
        stack.enter_context(engine)
        _traffic(connected(model, functions, stack), engine)


def connected(
    model: BridgeModel, functions: Sequence[WireFunction], stack: ExitStack
) -> tuple[Side, Side]:
    """Return both sides as drivers have them, with the link up; `stack` closes them."""
    if model is SWITCHTEC:
        for function in functions:
            stack.callback(function.close)
        return Switchtec(functions[0], 0), Switchtec(functions[1], 1)
    a, b = (Intel(function) for function in functions)
    for side in (a, b):
        stack.enter_context(side.bridge)
        side.bridge.enable_link()
    for side in (a, b):
        assert side.bridge.wait_link(timeout=SECONDS).up
    return a, b


def _traffic(sides: tuple[Side, Side], engine: Engine) -> None:
    a, b = sides
    memory = b.function.allocate(1 << 20, 1 << 20)
    b.unmask(HEARD)
    b.rung()  # answered, so what was stored before is done when the other socket is served
    a.ring(HEARD)  # held until b's driver can know of the link
    until(lambda: b.rung() == HEARD)
    b.clear(HEARD)
    b.show(memory.address, 0x2000)
    b.rung()
    _stores(a)
    _copies(a, engine)
    _doorbells(a, b)
    _scratchpads_and_messages(a, b)
    b.show(MESSAGES, 0x100000)
    b.rung()
    a.function.store(a.bar, 0x3000, 4, 0x2A)
    b.function.client.receive()
    b.show(0, 0)
    b.rung()
    a.function.store(a.bar, 0x40, 4, 1)
    assert a.function.load_bytes(a.bar, 0x48, 8) == b"\xff" * 8


def _stores(a: Side) -> None:
    a.function.store_bytes(a.bar, 0x10, STORED)
    assert a.function.load_bytes(a.bar, 0x10, 8) == STORED
    for at in range(0, len(RUN), 8):
        a.function.store_bytes(a.bar, 0x100 + at, RUN[at : at + 8])
    found = [a.function.load_bytes(a.bar, 0x100 + at, 8) for at in range(0, len(RUN), 8)]
    assert b"".join(found) == RUN


def _copies(a: Side, engine: Engine) -> None:
    source = engine.allocate(0x1000)
    source.view[:256] = COPIED
    channel = engine.channels[1]
    outward = BARS[a.bar] + 0x800
    for here, there, wanted in (
        (source.address, outward, True),
        (outward, source.address + 0x800, False),
    ):
        channel.wait(channel.copy(here, there, 256, interrupt=wanted), SECONDS)
    assert bytes(source.view[0x800:0x900]) == COPIED


def _doorbells(a: Side, b: Side) -> None:
    a.ring(HEARD)
    until(lambda: b.rung() == HEARD)
    b.clear(HEARD)
    a.ring(MASKED)
    until(lambda: b.rung() == MASKED)
    b.unmask(HEARD | MASKED)
    b.clear(MASKED)
    assert b.rung() == 0


def _scratchpads_and_messages(a: Side, b: Side) -> None:
    if isinstance(a, Intel) and isinstance(b, Intel):
        a.bridge.set_peer_spad(5, 0x1234)
        until(lambda: b.bridge.spad(5) == 0x1234)
    elif isinstance(a, Switchtec) and isinstance(b, Switchtec):
        a.put("outbound0", 4, LinkMessage.CHECK)
        until(lambda: bool(b.function.load(0, b.at("inbound0_status"), 1) & 1))
        assert b.function.load(0, b.at("inbound0"), 4) == LinkMessage.CHECK
        b.put("inbound0_status", 1, 1)
        b.rung()
