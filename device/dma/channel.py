"""One channel of the DMA engine: a ring of descriptors and the registers that software sees."""

from __future__ import annotations

import struct
from collections.abc import Callable
from time import monotonic
from typing import Final

from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.ioat import (
    DESCRIPTOR,
    DESCRIPTOR_SIZE,
    TRANSFER_CAPACITY,
    ChannelError,
    Operation,
    State,
)
from bluebridge.device.pci.bus import DmaError
from bluebridge.device.pci.fault_point import FaultPoint
from bluebridge.device.pci.host import CLOSED, MasterBus, Place, clip

COUNT_MASK: Final = 0xFFFF
LONGEST: Final = 1 << TRANSFER_CAPACITY
_ENTRY: Final = struct.Struct("<IIQQQ")
"""The beginning of a descriptor: size, flags, source, destination, address of the next one."""
_INTERRUPT: Final = 1 << DESCRIPTOR.field("interrupt").low
_COMPLETION_WRITE: Final = 1 << DESCRIPTOR.field("completion_write").low
_NULL: Final = 1 << DESCRIPTOR.field("null").low
_OPERATION: Final = DESCRIPTOR.field("operation").low
_COPY: Final = int(Operation.COPY)


class CopyFault(Exception):
    """An address of a copy at which no device or memory answers."""

    def __init__(self, error: ChannelError, address: int) -> None:
        super().__init__(f"{error.name} at {address:#x}")
        self.error = error


class Copy:
    """A copy under way for a channel with `left` bytes to go.

    It is made in pieces, with other work of the server in between. Each address is resolved anew
    for each piece.
    """

    def __init__(self, source: int, target: int, length: int, channel: int) -> None:
        self.source = source
        self.target = target
        self.left = length
        self.channel = channel


class Copier:
    """Makes the copies of one engine; `strict` turns errors that hardware would miss into faults.

    A posted write into a closed window succeeds as far as its sender can tell; `dropped` counts the
    bytes. A read of a closed window returns all ones. When strict, both are faults, as accesses to
    addresses that nothing answers always are.
    """

    def __init__(
        self, bus: MasterBus, strict: bool = False, clock: Callable[[], float] = monotonic
    ) -> None:
        self._bus = bus
        self._strict = strict
        self._clock = clock
        self.dropped = 0

    def advance(self, copy: Copy, until: float) -> None:
        """Copy in ascending order, at least a piece, until all is done or the clock is `until`.

        A piece is a register, or memory up to the length of a descriptor: a byte of a register
        takes a thousand times as long as one of memory. Raises `CopyFault`; bytes before the fault
        are copied.
        """
        while copy.left:
            self._move(copy)
            if copy.left and self._clock() >= until:
                return

    def _move(self, copy: Copy) -> None:
        source, target, channel = copy.source, copy.target, copy.channel
        here, there = self._pair(source, target, copy.left)
        data = self._load(here, source)
        self._log(Kind.DMA_READ, here, source, data, channel)
        if there.view is not None:
            there.view[:] = data
        elif there.store is not None:
            there.store(bytes(data))
        elif self._strict or there.fault != CLOSED:
            raise CopyFault(ChannelError.WRITE_DATA, target)
        else:
            self.dropped += len(data)
        self._log(Kind.DMA_WRITE, there, target, data, channel)
        copy.source += len(data)
        copy.target += len(data)
        copy.left = max(0, copy.left - len(data))  # the store may have cancelled the copy

    def _pair(self, source: int, target: int, length: int) -> tuple[Place, Place]:
        """Return source and target of the next piece, clipped to one length.

        A register on either side makes it a short one.
        """
        while True:
            there = self._bus.place(target, length)
            here = clip(self._bus.place(source, there.length), there.length)
            there = clip(there, here.length)
            if here.length == there.length:
                return here, there
            length = min(here.length, there.length)

    def _load(self, place: Place, address: int) -> bytes | memoryview:
        if place.view is not None:
            return place.view
        if place.load is not None:
            return place.load()
        if place.fault == CLOSED and not self._strict:
            # A closed window answers as PCIe does when a read is aborted: all ones.
            return b"\xff" * place.length
        raise CopyFault(ChannelError.READ_DATA, address)

    def _log(
        self, kind: Kind, place: Place, address: int, data: bytes | memoryview, channel: int
    ) -> None:
        self._bus.note_dma(kind, address, len(data), data, What.COPY, channel)
        if place.far is not None and place.view is not None:
            bus, beyond = place.far
            bus.note_dma(kind, beyond, len(data), data, What.WINDOW, channel)


class DmaChannel:
    """A channel of the DMA engine, which executes its descriptors in order, so every fence holds.

    Each descriptor has its effects in this order: data, then the completion word, then the
    interrupt, as ioat_cleanup expects. A descriptor that cannot be executed halts the channel until
    software resets it; `error` is the reason. A copy can take many steps; only the copied bytes
    tell how far it is.
    """

    def __init__(self, bus: MasterBus, number: int, copier: Copier, vector: int) -> None:
        self._bus = bus
        self._number = number
        self._copier = copier
        self._vector = vector
        self._flags = 0
        self._following = 0
        self._copy: Copy | None = None
        self._suspending = False
        self.interrupts = False
        """Whether interrupts are enabled in interrupt_control."""
        self.refusal: FaultPoint[ChannelError | None] = FaultPoint()
        """Decides of each copy with which error it ends, if with any."""
        self.reset()

    def reset(self) -> None:
        """Return to the state after power-on, which is also that after a reset command."""
        self.state = State.HALTED
        self.error = 0
        self.completion = 0
        self._drop_copy()
        self._next = 0
        self._last = 0
        self._done = 0
        self._wanted = 0
        self._armed = True
        self._waiting = False

    def state_words(self) -> dict[str, int | str | bool]:
        """Return the present state of the channel by name, without changing it."""
        copy = self._copy
        return {
            "state": self.state.name.lower(),
            "error": ChannelError(self.error).name or "none",
            "next": self._next,
            "last-done": self._last,
            "done": self._done,
            "wanted": self._wanted,
            "bytes-left": 0 if copy is None else copy.left,
            "completion": self.completion,
            "interrupts": bool(self.interrupts),
            "interrupt-armed": bool(self._armed),
            "suspending": bool(self._suspending),
        }

    # -- what software orders -----------------------------------------------------------------

    @property
    def status(self) -> int:
        """The value of channel_status: the address of the last descriptor and the state."""
        return self._last | self.state

    @property
    def busy(self) -> bool:
        """Whether there are descriptors to execute."""
        return self.state == State.ACTIVE and (self._copy is not None or self._done != self._wanted)

    def chain(self, address: int) -> None:
        """Set the address of the first descriptor; reset the count and leave halt or suspension."""
        self._drop_copy()
        self._next = address & ~(DESCRIPTOR_SIZE - 1)
        self._done = self._wanted = 0
        self.state = State.IDLE

    def count(self, wanted: int) -> None:
        """Set how many descriptors are to be executed since `chain`, modulo 65536."""
        self._wanted = wanted & COUNT_MASK
        if self.state == State.IDLE and self._done != self._wanted:
            self.state = State.ACTIVE

    def suspend(self) -> None:
        """Stop the channel after the current descriptor."""
        if self._copy is not None:
            self._suspending = True
        elif self.state != State.HALTED:
            self.state = State.SUSPENDED

    def resume(self) -> None:
        """Continue the execution of descriptors after `suspend`."""
        self._suspending = False
        if self.state == State.SUSPENDED:
            self.state = State.ACTIVE if self._done != self._wanted else State.IDLE

    def rearm(self) -> None:
        """Allow the next interrupt; an interrupt that waits is raised at once."""
        self._armed = True
        if self._waiting:
            self._interrupt()

    # -- work ---------------------------------------------------------------------------------

    def step(self, until: float) -> int:
        """Execute or continue one descriptor, until the clock is `until`; return the bytes moved.

        May be called only while `busy`.
        """
        try:
            if self._copy is None:
                self._begin()
            return self._proceed(until)
        except CopyFault as fault:
            self._halt(fault.error)
        except DmaError:
            # Only the descriptor is read so; the one before it, or `chain`, said where it is.
            self._halt(ChannelError.NEXT_ADDRESS)
        return 0

    def _begin(self) -> None:
        address = self._next
        entry = self._bus.read(address, DESCRIPTOR_SIZE, What.DESCRIPTOR, self._number)
        size, flags, source, target, following = _ENTRY.unpack_from(entry)
        # Linux starts a channel with one without a copy (`ioat/dma.c: ioat_start_null_desc`).
        if flags & _NULL:
            size = 0
        elif flags >> _OPERATION != _COPY:
            raise CopyFault(ChannelError.CONTROL, address)
        elif not 0 < size <= LONGEST:
            raise CopyFault(ChannelError.LENGTH, address)
        elif self.refusal.decide is not None and (error := self.refusal.decide()) is not None:
            raise CopyFault(error, address)
        self._flags, self._following = flags, following & ~(DESCRIPTOR_SIZE - 1)
        self._copy = Copy(source, target, size, self._number)

    def _proceed(self, until: float) -> int:
        copy = self._copy
        if copy is None:
            return 0
        before = copy.left
        self._copier.advance(copy, until)
        # A copy into this channel's own registers may have reset it.
        if not copy.left and self._copy is copy:
            self._finish(self._flags)
        return before - copy.left

    def _finish(self, flags: int) -> None:
        self._copy = None
        self._last = self._next
        self._next = self._following
        self._done = (self._done + 1) & COUNT_MASK
        if self._suspending:
            self._suspending = False
            self.state = State.SUSPENDED
        elif self._done == self._wanted:
            self.state = State.IDLE
        if flags & _COMPLETION_WRITE:
            self._complete()
        if flags & _INTERRUPT and self.state != State.HALTED:
            self._interrupt()

    def _drop_copy(self) -> None:
        if self._copy is not None:
            self._copy.left = 0
        self._copy = None
        self._suspending = False

    def _complete(self) -> None:
        word = self.status.to_bytes(8, "little")
        try:
            self._bus.write(self.completion, word, What.COMPLETION, self._number)
        except DmaError:
            self.error |= ChannelError.COMPLETION_ADDRESS
            self.state = State.HALTED

    def _halt(self, error: ChannelError) -> None:
        """Halt; report the error in status, completion word and interrupt (ioat_eh reads all)."""
        self._drop_copy()
        self.error |= error
        self.state = State.HALTED
        self._bus.tell(
            Fact.CHANNEL_HALTED, channel=self._number, error=error.name or "", address=self._next
        )
        self._complete()
        self._interrupt()

    def _interrupt(self) -> None:
        self._waiting = not self._armed
        if self._armed and self.interrupts:
            self._armed = False
            self._bus.interrupt(self._vector)
