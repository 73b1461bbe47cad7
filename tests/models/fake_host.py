"""A host for device models that lives in the test process: memory, a clock, a record of events.

It is a complete implementation of `HostBus`, only without QEMU: the server's own `GuestMemory`,
interrupts as a list, timers that run when the test moves the clock.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from mmap import mmap
from struct import Struct
from typing import Final

from bluebridge.device import pieces
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.events import Fact, Told, Value, Values
from bluebridge.device.pci.bus import Presence, Run
from bluebridge.device.pci.memory import GuestMemory

_HEAD: Final = Struct("<QII")
"""Of a packed transfer: address, length, how many bytes of it follow."""


@dataclass(slots=True)
class Event:
    """One thing the device did."""

    kind: Kind
    address: int
    length: int
    data: bytes
    what: What
    obj: int


@dataclass(order=True, slots=True)
class FakeTimer:
    """A call that waits for the clock."""

    due: float
    number: int
    action: Callable[[], None] = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        """Forget the call."""
        self.cancelled = True


class FakeHost:
    """Guest memory of `size` bytes at `base`; `map` adds more, `unmap` takes away."""

    def __init__(self, name: str = "a", *, base: int = 0x100000, size: int = 8 << 20) -> None:
        self._name = name
        self._memory = GuestMemory()
        self._timers: list[FakeTimer] = []
        self._soon: deque[Callable[[], None]] = deque()
        self._number = 0
        self._next = base
        self.now = 0.0
        self.interrupts: list[int] = []
        self.presence = Presence.HERE
        self.told: list[Told] = []
        self.events: list[Event] = []
        self.give_memory(base, size)

    @property
    def name(self) -> str:
        return self._name

    def facts(self, fact: Fact) -> list[Values]:
        """The values of all facts of a kind, in order."""
        return [each.values for each in self.told if each.fact is fact]

    # -- the guest's side ---------------------------------------------------------------------

    def give_memory(self, base: int, size: int) -> None:
        """Add what the guest starts with."""
        self.map(base, size)

    def map(self, base: int, size: int) -> memoryview:
        """Add zeroed memory."""
        memory = memoryview(mmap(-1, size))  # the kernel zeroes only the pages that are used
        self._memory.add(base, memory)
        return memory

    def unmap(self, base: int) -> None:
        """Take the memory at `base` away."""
        self._memory.remove(base)

    def allocate(self, length: int, align: int = 4096) -> int:
        """Address of unused, zeroed memory; never given back."""
        address = -(-self._next // align) * align
        self.view(address, length)
        self._next = address + length
        return address

    def store(self, bar: int, offset: int, data: bytes) -> None:
        """Take a store of the guest to the device; the records have no place for it."""

    def view(self, address: int, length: int) -> memoryview:
        """A stretch of guest memory within one region; raises `DmaError`."""
        return self._memory.view(address, length)

    def peek(self, address: int, length: int) -> bytes:
        """Return what the guest sees, without an event."""
        return self._memory.read(address, length)

    def poke(self, address: int, data: bytes | bytearray) -> None:
        """Write as the guest does, without an event."""
        self._memory.write(address, data)

    def run(self, seconds: float = 0.0) -> None:
        """Move the clock, running what becomes due in order."""
        end = self.now + seconds
        self._drain()
        while self._timers and self._timers[0].due <= end:
            timer = heapq.heappop(self._timers)
            self.now = max(self.now, timer.due)
            if not timer.cancelled:
                timer.action()
            self._drain()
        self.now = end

    def turn(self) -> None:
        """Run what is due before the loop looks at its sockets again."""
        for _ in range(len(self._soon)):
            self._soon.popleft()()

    def _drain(self) -> None:
        while self._soon:
            self._soon.popleft()()

    @property
    def next_due(self) -> float:
        """When the next call is due; infinite without one."""
        while self._timers and self._timers[0].cancelled:
            heapq.heappop(self._timers)
        return self._timers[0].due if self._timers else inf

    @property
    def timers(self) -> int:
        """How many calls wait for the clock."""
        return sum(not timer.cancelled for timer in self._timers)

    def take_interrupts(self) -> list[int]:
        """Vectors asserted since the last call."""
        taken, self.interrupts = self.interrupts, []
        return taken

    # -- HostBus ------------------------------------------------------------------------------

    def read(self, address: int, length: int, what: What, obj: int = 0) -> bytes:
        data = self.peek(address, length)
        self.events.append(Event(Kind.DMA_READ, address, length, data[:64], what, obj))
        return data

    def write(
        self, address: int, data: bytes | bytearray | memoryview, what: What, obj: int = 0
    ) -> None:
        self._memory.write(address, data)
        self.note_dma(Kind.DMA_WRITE, address, len(data), bytes(data[:64]), what, obj)

    def views(self, runs: Sequence[Run]) -> Sequence[memoryview]:
        return self._memory.views(runs)

    def note_dma(
        self,
        kind: Kind,
        address: int,
        length: int,
        data: bytes | memoryview,
        what: What,
        obj: int = 0,
    ) -> None:
        self.events.append(Event(kind, address, length, bytes(data[:64]), what, obj))

    def note_transfers(
        self,
        kind: Kind,
        runs: Sequence[Run],
        views: Sequence[memoryview],
        count: int,
        most: int,
        what: What,
        obj: int,
    ) -> None:
        packed = pieces.pack(runs, views, count, most, b"", b"")
        while packed:
            address, length, kept = _HEAD.unpack_from(packed)
            end = _HEAD.size + kept
            self.note_dma(kind, address, length, packed[_HEAD.size : end], what, obj)
            packed = packed[end:]

    def tell(self, fact: Fact, **values: Value) -> None:
        self.told.append(Told(fact, fact.unpack(fact.pack(values))))

    def concern(self, qpn: int, index: int) -> None:
        """The records have no place for it."""

    def resume(self, work: int) -> None:
        """The records have no place for it."""

    def interrupt(self, vector: int) -> None:
        self.interrupts.append(vector)

    def refuse(self, page: int, *, refused: bool) -> None:
        self._memory.refuse(page, refused=refused)

    def set_presence(self, presence: Presence) -> None:
        self.presence = presence

    def reset_function(self) -> None:
        self.tell(Fact.RESET, cause="function level")

    def call_later(self, seconds: float, action: Callable[[], None]) -> FakeTimer:
        self._number += 1
        timer = FakeTimer(self.now + seconds, self._number, action)
        heapq.heappush(self._timers, timer)
        return timer

    def call_soon(self, action: Callable[[], None]) -> None:
        self._soon.append(action)

    def call_next_turn(self, action: Callable[[], None]) -> None:
        self._soon.append(action)
