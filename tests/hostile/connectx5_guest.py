"""A hostile guest with a ConnectX-5.

It makes its objects with the node of the unit tests, whose memory and registers are those of a
running server here.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any, Final

from bluebridge.device.layout.mlx5.commands import (
    BLOCK_BYTES,
    ENTRY,
    INLINE_BYTES,
    INPUT,
    MAILBOX,
    PCI_TRANSPORT,
    Opcode,
)
from bluebridge.device.layout.mlx5.contexts import MKC
from bluebridge.device.layout.mlx5.objects import ENTRY as CONTEXT_AT
from bluebridge.device.layout.mlx5.objects import LIST
from bluebridge.device.pyvfio_user.constants import VfioUserCommand
from bluebridge.host_tools.vfio_user.bus import RAM_BASE, Ram, SocketBus
from tests.hostile.guest import HOSTILE
from tests.models.mlx5_driver import Answer, Mlx5Driver
from tests.models.mlx5_node import LOG_RQ, Queue
from tests.models.mlx5_pair import RoceNode
from tests.models.mlx5_queue_node import QueueNode
from tests.models.mlx5_user import UserNode

RAM_SIZE: Final = 96 << 20
COMMAND_SECONDS: Final = 20.0
"""A command without an end for so long is a wrong one."""
LIST_BYTES: Final = 4 << 20
OVERLAPPING: Final = 4 << 20


class NoEnd(Exception):
    """A command of the adapter did not end."""


class WireHost:
    """The memory of a guest of a running server, in the words of the unit tests' host."""

    def __init__(self, bus: SocketBus, ram: Ram) -> None:
        self.name = HOSTILE
        self._bus = bus
        self._view = ram.view
        self._stretch, self._used = 0, -1

    def allocate(self, length: int, align: int = 4096) -> int:
        """Address of zeroed memory."""
        if self._used < 0:
            return self._bus.allocate(length, align).address
        length = -(-length // align) * align
        if self._used + length > OVERLAPPING:
            self._used = 0
        self._used += length
        address = self._stretch + self._used - length
        self.poke(address, bytes(length))
        return address

    @contextmanager
    def overlapping(self) -> Iterator[None]:
        """Allocate from one stretch, again and again: what has it has it no longer alone."""
        self._stretch = self._stretch or self.allocate(OVERLAPPING)
        self._used = 0
        try:
            yield
        finally:
            self._used = -1

    def peek(self, address: int, length: int) -> bytes:
        """Return the bytes at an address as they are now."""
        return bytes(self._view[address - RAM_BASE : address - RAM_BASE + length])

    def poke(self, address: int, data: bytes | bytearray) -> None:
        """Replace the bytes at an address."""
        self._view[address - RAM_BASE : address - RAM_BASE + len(data)] = data

    def run(self, seconds: float = 0.0) -> None:
        """Wait until the server has seen every store."""
        self._bus.settle()


class WireHca:
    """The registers of an adapter of a running server."""

    def __init__(self, bus: SocketBus) -> None:
        self._bus = bus

    def bar_write(self, bar: int, offset: int, data: bytes) -> None:
        """A posted store."""
        self._bus.store_bytes(bar, offset, data)


class WireDriver(Mlx5Driver):
    """Sends commands to a running server and waits for their end."""

    def __init__(self, host: Any, hca: Any) -> None:
        self.host, self.hca = host, hca
        self.queue = host.allocate(4096)
        self.token = 1
        self.uar = 0
        self._places: list[int] = []
        self.used = 0
        """Mailboxes that the present command has."""

    def chain(self, blocks: int) -> list[int]:
        """As for the unit tests, out of mailboxes that are used again by the next command."""
        while len(self._places) < self.used + blocks:
            self._places.append(self.host.allocate(MAILBOX.size, 1024))
        places = self._places[self.used : self.used + blocks]
        self.used += blocks
        for number, place in enumerate(places):
            following = places[number + 1] if number + 1 < blocks else 0
            self.host.poke(place, MAILBOX.pack(next=following, number=number, token=self.token))
        return places

    def run(self, data: bytes, output: int = INLINE_BYTES, slot: int = 0) -> Answer:
        _, taken = self.write_entry(slot, data, output)
        self.ring(1 << slot)
        self.wait(slot)
        self.used = 0
        self.token = self.token % 255 + 1
        return self.answer(slot, taken, output)

    def wait(self, slot: int) -> None:
        """Return when the entry is software's again; raises `NoEnd` when it never is."""
        until = time.monotonic() + COMMAND_SECONDS
        while ENTRY.get(self.entry(slot), "owner"):
            self.host.run()
            if time.monotonic() > until:
                raise NoEnd(f"a command has not ended after {COMMAND_SECONDS} s")


class WireNode(UserNode, QueueNode):
    """The node of the unit tests on a running server.

    While there are `dice`, they change a few bytes of the input of some commands, not of those that
    end objects: it needs its own.
    """

    driver: WireDriver
    host: Any

    def __init__(self, bus: SocketBus, ram: Ram, number: int = 9) -> None:
        self.bus = bus
        self.dice: Random | None = None
        self.made: deque[int] = deque(maxlen=64)
        """Numbers of the last objects."""
        host: Any = WireHost(bus, ram)
        fabric: Any = bus  # nothing is asked of it
        RoceNode.__init__(self, number, fabric, host)

    def make(self, opcode: Opcode, data: bytes = b"") -> int:
        number = super().make(opcode, data)
        self.made.append(number)
        return number

    def carry_out(self, data: bytes) -> bytes:
        ends = Opcode(INPUT.get(data, "opcode")).name.startswith("DE")
        if self.dice is not None and not ends and self.dice.getrandbits(1):
            spoilt = bytearray(data)
            for _ in range(self.dice.choice((1, 1, 2, 8))):
                spoilt[self.dice.randrange(8, len(data))] = self.dice.getrandbits(8)
            data = bytes(spoilt)
        return super().carry_out(data)

    def make_adapter(self, host: Any, fabric: Any) -> Any:
        hca: Any = WireHca(self.bus)
        self.driver = WireDriver(host, hca)
        self.hca = hca
        self.driver.set_queue()
        for opcode in (Opcode.ENABLE_HCA, Opcode.INIT_HCA):
            self.command(opcode)
        return None


class Connectx5Guest:
    """A guest just started, whose adapter has rings, steering, and a second page of doorbells."""

    def __init__(self, folder: Path, chance: Random) -> None:
        self.chance = chance
        self.ram = Ram(RAM_SIZE)
        self.bus = SocketBus(folder / f"hca-{HOSTILE}", self.ram)
        self.node = node = WireNode(self.bus, self.ram)
        node.open()
        self.other_uar = node.make(Opcode.ALLOC_UAR)
        self.sqs = [node.make_sq() for _ in range(4)]
        self.rqs = [node.make_rq() for _ in range(4)]
        self.tirs = [node.make_tir(rq) for rq in self.rqs]
        self.buffer = node.memory(65536)
        self.receives = node.memory(4096)
        node.steer(self.tirs[0])
        for rq in self.rqs:
            for _ in range(1 << LOG_RQ):
                node.post_receive(rq, address=self.receives)
        self.tables: list[tuple[int, int, bool]] = []
        self.keys: list[int] = []
        self._long: list[int] = []
        self.rdma: object = None
        """The objects of attacks on RDMA, once there was one."""

    @property
    def cqs(self) -> list[Queue]:
        """The completion queues of all rings."""
        return [ring.cq for ring in (*self.sqs, *self.rqs) if ring.cq is not None]

    def long_list(self) -> int:
        """Run the longest CREATE_MKEY there can be: a list of nearly 4 MiB."""
        driver, chance = self.node.driver, self.chance
        blocks = LIST_BYTES // BLOCK_BYTES - 2
        if not self._long:
            memory = self.bus.allocate(blocks * 1024, 4096)
            self._long = [memory.address + 1024 * number for number in range(blocks)]
            page = self.buffer.to_bytes(8, "big") * (BLOCK_BYTES // 8)
            for number, place in enumerate(self._long):
                following = self._long[number + 1] if number + 1 < blocks else 0
                block = bytearray(MAILBOX.pack(next=following, number=number, token=77))
                block[:BLOCK_BYTES] = page
                self.node.host.poke(place, block)
        pages = (blocks * BLOCK_BYTES + INLINE_BYTES - LIST) // 8 & -2
        context = MKC.pack(
            access_mode=1, local_read=1, local_write=1, pd=self.node.pd, log_page_size=12,
            length=4096 * (pages - chance.randrange(64)), key=chance.getrandbits(8),
        )  # fmt: skip
        data = (bytes(CONTEXT_AT) + bytes(context)).ljust(0x60, b"\0")
        data = (data + (pages // 2).to_bytes(4, "big")).ljust(LIST, b"\0")
        whole = bytearray(data)
        INPUT.set(whole, "opcode", Opcode.CREATE_MKEY)
        for at in range(INLINE_BYTES, LIST, BLOCK_BYTES):
            part = whole[at : at + BLOCK_BYTES]
            self.node.host.poke(self._long[(at - INLINE_BYTES) // BLOCK_BYTES], part)
        length = LIST + 8 * pages
        entry = ENTRY.pack(
            type=PCI_TRANSPORT, input_length=length, output_length=16, token=77, owner=1,
            input=bytes(whole[:INLINE_BYTES]), input_mailbox=self._long[0],
        )  # fmt: skip
        self.node.host.poke(driver.entry_address(1), entry)
        driver.ring(2)
        driver.wait(1)
        return driver.answer(1, [], INLINE_BYTES).number

    def leave(self) -> None:
        """Vanish with everything under way; sometimes in the middle of a message."""
        client = self.bus.client
        if self.chance.random() < 0.3:
            with suppress(OSError):
                client.send(client.pack(VfioUserCommand.REGION_READ, bytes(16))[:20])
        self.bus.close()
        self.ram.close()
