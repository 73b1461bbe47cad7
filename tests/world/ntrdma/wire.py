"""A model of two machines' memory and of the bus between them: what PCIe permits, by a seed.

Each side has three sources of stores: its DMA engine (copies), its processor (all others), and
interrupts. Stores of one source land in order, those of two only across fences; an interrupt that
lands ahead of a store before it has announced what is not there. What is in flight when a side
dies is lost from some point on.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from bluebridge.guest.bus.dma_memory import Arena
from bluebridge.guest.bus.interface import DmaMemory
from bluebridge.guest.ntrdma.engine.transport import Message

SIZE = 1 << 19
MESSAGE_ADDRESS = 0xFEE00000


@dataclass
class Store:
    """A store in flight; `carry_out` makes it happen at the peer."""

    number: int
    carry_out: Callable[[], None]


@dataclass
class Epoch:
    """Stores between two fences, by source."""

    copies: deque[Store] = field(default_factory=deque)
    others: deque[Store] = field(default_factory=deque)
    signals: deque[Store] = field(default_factory=deque)

    def __bool__(self) -> bool:
        return any(self.sources)

    @property
    def sources(self) -> list[deque[Store]]:
        """Those that have something to store."""
        return [queue for queue in (self.copies, self.others, self.signals) if queue]


class Machine:
    """The memory of one side, its scratchpads, and whether its bridge lets the peer in."""

    def __init__(self, base: int, name: str) -> None:
        self.name = name
        self.base = base
        self.memory = bytearray(SIZE)
        self.spads = [0] * 16
        self.let_in = False
        self.interrupts = 0
        self.lost_stores = 0

    def offset(self, address: int, length: int) -> int:
        """Where bytes are in `memory`. AssertionError when there is no memory."""
        offset = address - self.base
        assert offset >= 0 and offset + length <= SIZE, f"{self.name}: {length} at {address:#x}"
        return offset

    def store(self, address: int, data: bytes) -> None:
        """A store of the peer arrives."""
        if not self.let_in:
            self.lost_stores += 1
            return
        offset = self.offset(address, len(data))
        self.memory[offset : offset + len(data)] = data


class ModelTransport:
    """`Transport` of one life of one side."""

    def __init__(self, own: Machine, peer: Machine) -> None:
        self.own, self.peer = own, peer
        self.posted = 0
        self.connected = False
        self.lost = 0
        """Stores lost since the link last changed."""
        self.message = Message(MESSAGE_ADDRESS, own.base >> 32)
        self.span = own.base, SIZE
        self.spad_accesses = 0
        self._epochs: deque[Epoch] = deque([Epoch()])
        self.arena = Arena()
        self.arena.add(own.base, memoryview(own.memory))

    @property
    def done(self) -> int:
        """Stores carried out, without gaps."""
        epoch = self._epochs[0]
        heads = [queue[0].number for queue in epoch.sources]
        return min(heads, default=self.posted)

    @property
    def available(self) -> int:
        """Free bytes of own memory."""
        return self.arena.available

    def map(self, length: int, align: int = 4096) -> DmaMemory:
        memory = self.arena.allocate(length, align)
        if memory is None:
            raise MemoryError
        return memory

    def reaches(self, address: int, length: int) -> bool:
        base = self.peer.base
        return base <= address <= address + length <= base + SIZE or address == MESSAGE_ADDRESS

    def write(self, target: int, data: bytes) -> None:
        self._post(False, lambda: self.peer.store(target, data))

    def copy(self, source: int, target: int, length: int) -> None:
        offset = self.own.offset(source, length)
        self.peer.offset(target, length)

        def carry_out() -> None:
            self.peer.store(target, bytes(self.own.memory[offset : offset + length]))

        self._post(True, carry_out)

    def imm32(self, target: int, value: int) -> None:
        assert not target & 3
        self.write(target, value.to_bytes(4, "little"))

    def word(self, target: int, value: int) -> None:
        self.imm32(target, value)

    def fence(self) -> None:
        if self._epochs[-1]:
            self._epochs.append(Epoch())

    def signal(self, message: Message) -> None:
        assert message == Message(MESSAGE_ADDRESS, self.peer.base >> 32)

        number = self.posted

        def carry_out() -> None:
            late = [queue[0] for queue in self._epochs[0].sources if queue[0].number < number]
            assert not late, "an interrupt has come ahead of a store before it"
            self.peer.interrupts += self.peer.let_in

        self._epochs[-1].signals.append(Store(number, carry_out))
        self.posted += 1

    def flush(self) -> None:
        pass

    def abandon(self) -> None:
        self._epochs = deque([Epoch()])

    def store_spad(self, index: int, value: int) -> None:
        self.spad_accesses += 1

        def carry_out() -> None:
            self.peer.spads[index] = value

        self.fence()
        self._post(False, carry_out)
        self.fence()

    def load_spad(self, index: int) -> int:
        self.spad_accesses += 1
        return self.own.spads[index]

    def open(self) -> None:
        self.own.let_in = True

    def shut(self) -> None:
        self.own.let_in = False

    def _post(self, copy: bool, carry_out: Callable[[], None]) -> None:
        store = Store(self.posted, carry_out)
        self.posted += 1
        epoch = self._epochs[-1]
        (epoch.copies if copy else epoch.others).append(store)

    @property
    def in_flight(self) -> bool:
        """Whether a store has yet to be carried out."""
        return bool(self._epochs[0])

    def deliver(self, chance: random.Random) -> None:
        """Carry out one store; while there is no link it is lost."""
        epoch = self._epochs[0]
        store = chance.choice(epoch.sources).popleft()
        if self.connected:
            store.carry_out()
        else:
            self.lost += 1
        if not epoch and len(self._epochs) > 1:
            self._epochs.popleft()

    def die(self, chance: random.Random) -> None:
        """Its machine dies: of what is in flight a part still lands."""
        while self.in_flight and chance.random() < 0.8:
            self.deliver(chance)
        self._epochs = deque([Epoch()])
        self.connected = False
