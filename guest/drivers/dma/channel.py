"""One channel of the DMA engine: ordered copies, completion and errors (drivers/dma/ioat/dma.c)."""

from __future__ import annotations

import struct
import threading
import time

from bluebridge.device.layout import ioat as layout
from bluebridge.device.layout.ioat import (
    COMPLETION,
    DESCRIPTOR,
    DESCRIPTOR_SIZE,
    ChannelCommand,
    ChannelError,
    State,
)
from bluebridge.guest.bus.interface import RESET_SECONDS, DmaMemory, Function
from bluebridge.guest.bus.vectors import Deadline, Vectors
from bluebridge.guest.drivers.dma.errors import ChannelHalted, DmaError, DmaTimeout

_ENTRY = struct.Struct("<IIQQ")
"""The fields of a descriptor that differ from copy to copy: size, flags, source, destination."""


_COMPLETION_WRITE = 1 << DESCRIPTOR.field("completion_write").low
_INTERRUPT = 1 << DESCRIPTOR.field("interrupt").low
_FENCE = 1 << DESCRIPTOR.field("fence").low

ENTRIES = 256
PUT_SECONDS = 10.0
"""The time in seconds that `put` waits for room in the ring."""
CONTROL = 0x1D
"""The control register: interrupts re-armed; an error stops the channel and is reported by
completion word and interrupt.
"""
_COMPLETION = struct.Struct("<Q")
_COUNT_MASK = 0xFFFF
_STATE_MASK = COMPLETION.field("state").mask
_GONE = 0xFFFFFFFF


class Ring:
    """`entries` descriptors, a power of two; tickets count all that were ever put there.

    One entry stays free, so that the address of a completion tells how many are done.
    """

    def __init__(self, memory: DmaMemory, entries: int) -> None:
        self.entries = entries
        self.posted = 0
        self.done = 0
        self.address = memory.address
        """The bus address of the first descriptor."""
        self.memory = memory
        self._view = memory.view
        for slot in range(entries):
            following = memory.address + (slot + 1) % entries * DESCRIPTOR_SIZE
            DESCRIPTOR.set(memory.view, "next", following, slot * DESCRIPTOR_SIZE)

    @property
    def room(self) -> int:
        """The number of descriptors that may be put now."""
        return self.entries - 1 - (self.posted - self.done)

    def put(
        self, source: int, target: int, size: int, *, interrupt: bool, fence: bool = False
    ) -> int:
        """Put one copy into the ring, which must have room, and return its ticket.

        With `fence` the copy begins after all those before it.
        """
        slot = self.posted % self.entries * DESCRIPTOR_SIZE
        flags = _COMPLETION_WRITE
        if interrupt:
            flags |= _INTERRUPT
        if fence:
            flags |= _FENCE
        _ENTRY.pack_into(self._view, slot, size, flags, source, target)
        self.posted += 1
        return self.posted

    def complete(self, address: int) -> None:
        """Note that the descriptor at `address` and all before it are done."""
        slot = (address - self.address) // DESCRIPTOR_SIZE
        self.done += (slot + 1 - self.done) % self.entries

    def describe(self, ticket: int) -> str:
        """Return the copy of a ticket that is still in the ring as text for messages."""
        slot = (ticket - 1) % self.entries * DESCRIPTOR_SIZE
        entry = self.memory.view[slot : slot + DESCRIPTOR_SIZE]
        source, target, size = (
            DESCRIPTOR.get(entry, name) for name in ("source", "destination", "size")
        )
        return f"{size} bytes from {source:#x} to {target:#x}"


class Channel:
    """Channel `number` of an engine; its methods may be called from any thread.

    `copy` returns a ticket; tickets grow, and copies end in their order. When a descriptor cannot
    be executed the channel halts: everything that is not done then fails with `ChannelHalted`
    until `reset`.
    """

    def __init__(
        self, function: Function, number: int, longest: int, vectors: Vectors, entries: int
    ) -> None:
        self.number = number
        self.entries = entries
        """The number of descriptors in the ring, one more than may be under way."""
        self.longest = longest
        """The most bytes that one descriptor moves; longer copies take several descriptors."""
        self._function = function
        self._vectors = vectors
        self._ring = Ring(function.allocate(entries * DESCRIPTOR_SIZE, 4096), entries)
        self._completion = function.allocate(64, 64)
        self._doorbell = layout.CHANNEL.at("dma_count", number)
        self._interrupting = 0
        self._lock = threading.Lock()
        self.reset()

    # -- registers ----------------------------------------------------------------------------

    def _store(self, register: str, width: int, value: int) -> None:
        self._function.store(0, layout.CHANNEL.at(register, self.number), width, value)

    def _load(self, register: str, width: int) -> int:
        return self._function.load(0, layout.CHANNEL.at(register, self.number), width)

    def _store_address(self, register: str, address: int) -> None:
        self._store(f"{register}_low", 4, address & 0xFFFFFFFF)
        self._store(f"{register}_high", 4, address >> 32)

    def reset(self) -> None:
        """Forget errors and unfinished copies, and restart the channel; raises `DmaError`."""
        with self._lock:
            self._reset_hardware()
            self._completion.view[:8] = bytes(8)
            self._ring.posted = self._ring.done = self._interrupting = 0
            self._vectors.drain([self.number])
            self._store("channel_error", 4, self._load("channel_error", 4))
            self._store("channel_control", 2, CONTROL)
            self._store_address("completion", self._completion.address)
            self._store_address("chain_address", self._ring.address)

    def _reset_hardware(self) -> None:
        deadline = Deadline(RESET_SECONDS)
        self._store("channel_command", 1, ChannelCommand.RESET)
        while self._load("channel_command", 1) & ChannelCommand.RESET:
            if deadline.over:
                if self._load("channel_error", 4) == _GONE:
                    raise DmaError("the DMA engine is gone (reads return all ones)")
                raise DmaError(f"channel {self.number} does not come out of its reset")
            time.sleep(0.001)

    # -- copies -------------------------------------------------------------------------------

    def copy(
        self,
        source: int,
        target: int,
        length: int,
        *,
        interrupt: bool = False,
        fence: bool = False,
        begin: bool = True,
        timeout: float | None = 10.0,
    ) -> int:
        """Copy `length` bytes between bus addresses; returns the ticket of the last descriptor.

        With `interrupt` the channel interrupts when the copy is done, and `wait` sleeps until then.
        With `fence` the copy writes after all copies before it. Without `begin` it waits for the
        next copy with `begin`, or for the method `begin`. While the ring is full the call waits up
        to `timeout` seconds for room. Raises `DmaTimeout`, `ChannelHalted`.
        """
        if length <= 0:
            raise DmaError(f"a copy of {length} bytes")
        deadline = None
        with self._lock:
            while length:
                part = min(length, self.longest)
                if not self._ring.room:
                    deadline = deadline or Deadline(timeout)
                    self._make_room(deadline)
                length -= part
                last = interrupt and not length
                ticket = self._ring.put(source, target, part, interrupt=last, fence=fence)
                source += part
                target += part
                if last:
                    self._interrupting = ticket
            if begin:
                self._ring_doorbell()
        return ticket

    def put(self, source: int, target: int, length: int, fence: bool) -> None:
        """Put a copy as `copy` does, without `begin` and without a lock: for a single user only.

        Raises `DmaTimeout`, `ChannelHalted`.
        """
        while length:
            part = min(length, self.longest)
            if not self._ring.room:
                self._make_room(Deadline(PUT_SECONDS))
            self._ring.put(source, target, part, interrupt=False, fence=fence)
            source, target, length = source + part, target + part, length - part

    def begin(self) -> None:
        """Start the copies that were put without `begin`."""
        with self._lock:
            self._ring_doorbell()

    @property
    def posted(self) -> int:
        """The ticket of the last copy that was put since the reset."""
        return self._ring.posted

    @property
    def finished(self) -> int:
        """Return the ticket of the last copy that is done; raises `ChannelHalted`."""
        with self._lock:
            if self._look():
                raise self._halt()
            return self._ring.done

    def _make_room(self, deadline: Deadline) -> None:
        self._ring_doorbell()
        while not self._ring.room:
            if self._look():
                raise self._halt()
            if deadline.over:
                raise DmaTimeout(f"the ring of channel {self.number} stays full")

    def _ring_doorbell(self) -> None:
        self._function.store(0, self._doorbell, 2, self._ring.posted & _COUNT_MASK)

    def done(self, ticket: int) -> bool:
        """Return True if a copy is done; raises `ChannelHalted` when it never will be."""
        if self._ring.done >= ticket:
            return True
        with self._lock:
            halted = self._look()
            if halted and self._ring.done < ticket:
                raise self._halt()
            return self._ring.done >= ticket

    def wait(self, ticket: int, timeout: float | None = 10.0) -> None:
        """Wait until a copy is done; raises `DmaTimeout`, `ChannelHalted`.

        It sleeps if this copy or a later one interrupts, else it polls.
        """
        deadline = Deadline(timeout)
        while not self.done(ticket):
            if deadline.over:
                raise DmaTimeout(
                    f"channel {self.number} has not done: {self._ring.describe(ticket)}"
                )
            if ticket <= self._interrupting and self._vectors.wait([self.number], deadline.left):
                self._store("channel_control", 2, CONTROL)  # lets the next one out

    def fileno(self) -> int:
        """Return the eventfd that becomes readable when the channel interrupts."""
        return self._vectors.fds[self.number]

    def close(self) -> None:
        """Stop the channel and give its memory back."""
        self._reset_hardware()
        self._ring.memory.free()
        self._completion.free()

    def _look(self) -> bool:
        """Read how far the channel is; returns True if it has halted there."""
        (word,) = _COMPLETION.unpack_from(self._completion.view)
        address = word & ~(DESCRIPTOR_SIZE - 1)
        if address:
            self._ring.complete(address)
        return bool(word & _STATE_MASK == State.HALTED)

    def _halt(self) -> ChannelHalted:
        reasons = ChannelError(self._load("channel_error", 4))
        names = ", ".join(flag.name or "" for flag in ChannelError if flag in reasons)
        what = self._ring.describe(self._ring.done + 1)
        return ChannelHalted(f"channel {self.number} has halted ({names}): {what}", reasons)
