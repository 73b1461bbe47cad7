"""NTRDMA through a bridge: the second window shows the peer's memory, all or one piece of it.

Two ways to store there: descriptors of a DMA channel, which keeps its order by itself, and stores
of this processor. Everything goes one way, so that there is no order to restore between two.
"""

from __future__ import annotations

import select
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from bluebridge.device.layout.ntrdma.port import Spad
from bluebridge.guest.bus.interface import DmaMemory
from bluebridge.guest.drivers.dma import Channel, DmaError, Engine
from bluebridge.guest.drivers.ntb import Bridge, NtbError
from bluebridge.guest.errors import DeviceError
from bluebridge.guest.ntrdma.engine.transport import Message
from bluebridge.guest.ntrdma.transports.back_end import Mappings, News, Shown, message_of

WINDOW = 1
"""The window that shows memory; version 0.1 clears the other one."""
POLL_SECONDS = 0.001
"""The time between two looks when the peer cannot interrupt."""
PAUSE_SECONDS = 1.0
DRAIN_SECONDS = 1.0
QUIET_SECONDS = 0.01
"""How old own stores must be when registers are touched: beside traffic through a window in both
directions such an access locks machines of the first generation up."""
PIECE_BYTES, LEAST_PIECE_BYTES = 32 << 20, 4 << 20
"""The bytes that a registered window shows: half as many, and again, where none are contiguous."""
PIECE_ALIGN = 4096
_WORD = 64
"""Bytes of bounce memory for a small store: a cache line."""
_LARGEST = 4 * _WORD
_STORED_AT_ONCE = 4096
SLICE_SECONDS = 0.02
"""The time that stores of the processor may take at a stretch."""
Found = TypeVar("Found")


class NtbTransport(ABC):
    """`BackEnd` through `bridge`.

    The window shows all memory from bus address `origin` on; or, `registered`, only one piece, out
    of which all memory for verbs and rings is taken. Addresses then count from `origin` at its
    beginning on, and no address interrupts this side: the peer reaches nothing else.
    """

    seen_in_memory = True

    def __init__(self, bridge: Bridge, origin: int = 0, *, registered: bool = False) -> None:
        self.bridge = bridge
        self._origin = origin
        self._window = bridge.windows[WINDOW]
        self._shown = self._piece(origin) if registered else None
        self.span = origin, self._window.size if self._shown is None else self._shown.size
        self._vector = bridge.vectors_of(1 << (bridge.doorbells - 2))[0]
        message = None if registered else message_of(bridge.function, self._vector)
        self.message = message or Message(0, 0)
        self._up = False
        self._at_once = 0
        """Stores that did not wait, and are not counted as posted."""
        self._rested = 0
        """Own stores when registers were last touched."""
        self._was_reset = False
        """True until `serve` has told of a reset under this driver."""
        bridge.windows[1 - WINDOW].clear_translation()
        self._window.clear_translation()
        bridge.mask(bridge.every_doorbell)
        for index in Spad:
            bridge.set_spad(index, 0)
        bridge.enable_link()

    # -- memory ---------------------------------------------------------------------------------

    def map(self, length: int, align: int = 4096) -> DmaMemory:
        if self._shown is not None:
            return self._shown.allocate(length, align)
        memory = self.bridge.allocate(length, align)
        if not self.reaches(memory.address, length):
            memory.free()
            raise MemoryError(
                f"memory at {memory.address:#x} is not in a window of {self._window.size:#x} bytes"
            )
        return memory

    def _piece(self, origin: int) -> Shown:
        """The piece of memory that a registered window shows. Raises `NtbError`, `MemoryError`."""
        if self._window.align > PIECE_ALIGN:
            raise NtbError(
                f"a window of {self.bridge.name} begins at a multiple of {self._window.align:#x}: "
                "for registered memory alone take a bridge of generation 4 (--model intel-gen4)"
            )
        size = PIECE_BYTES
        while True:
            try:
                return Shown(self.bridge.allocate(size, PIECE_ALIGN), origin)
            except MemoryError:  # hugepages are not always neighbours
                if size == LEAST_PIECE_BYTES:
                    raise
                size //= 2

    def reaches(self, address: int, length: int) -> bool:
        start = address - self._origin
        return 0 <= start <= start + length <= self._window.size

    def open(self) -> None:
        address = self._origin if self._shown is None else self._shown.address
        size = self._window.size if self._shown is None else self._shown.size
        self._at_registers(lambda: self._window.set_translation(address, size))

    def shut(self) -> None:
        self._at_registers(self._window.clear_translation)

    def store_spad(self, index: int, value: int) -> None:
        """Behind all stores so far, for which it waits."""
        self._at_registers(lambda: self.bridge.set_peer_spad(index, value))

    def load_spad(self, index: int) -> int:
        return self._at_registers(lambda: self.bridge.spad(index))

    # -- stores ---------------------------------------------------------------------------------

    def _at_registers(self, act: Callable[[], Found]) -> Found:
        """Wait until registers may be touched, find them as they were programmed, and `act`.

        Whoever resets the function (`echo 1 > reset`) empties them and tells nobody. If that comes
        while `act` is at them, it does so once more.
        """
        self._rest()
        self._was_reset |= self.bridge.restore()
        try:
            return act()
        except DeviceError:
            self._was_reset |= self.bridge.restore()
            return act()

    def _rest(self) -> None:
        """Wait until own stores are carried out and old enough."""
        stores = self.posted + self._at_once
        if stores != self._rested:
            self.drain()
            time.sleep(QUIET_SECONDS)
            self._rested = stores

    @property
    @abstractmethod
    def posted(self) -> int:
        """The number of stores that were asked for so far."""

    @property
    @abstractmethod
    def done(self) -> int:
        """The number of stores, in order, that are carried out."""

    @abstractmethod
    def write(self, target: int, data: bytes) -> None:
        """Store bytes."""

    @abstractmethod
    def flush(self) -> None:
        """Begin with everything that was asked for."""

    def imm32(self, target: int, value: int) -> None:
        self.write(target, value.to_bytes(4, "little"))

    def word(self, target: int, value: int) -> None:
        """Store a word behind all others; nothing waits long here."""
        self.imm32(target, value)

    def signal(self, message: Message) -> None:
        """Interrupt the peer, unless it looks by itself."""
        if message.address:
            self.imm32(message.address, message.data)

    # -- events ---------------------------------------------------------------------------------

    @property
    def wait_for(self) -> list[tuple[int, int]]:
        """The interrupts of the link and of the peer's messages."""
        fds = self.bridge.vectors.fds
        return [(fds[number], select.POLLIN) for number in (self.bridge.link_vector, self._vector)]

    @property
    def pause(self) -> float:
        """Short only when the peer cannot interrupt."""
        return PAUSE_SECONDS if self.message.address or not self._up else POLL_SECONDS

    def serve(self, silent: bool = False) -> News:
        """Interrupts, and the link if it has changed."""
        news = News()
        fired = self.bridge.vectors.wait([self.bridge.link_vector, self._vector], 0)
        news.signalled = self._vector in fired
        changed = self.bridge.link_vector in fired
        if changed or silent or self._was_reset or not self._up:
            up = self._at_registers(self.bridge.link).up
            if (changed or self._was_reset) and self._up and up:
                news.links.append(False)  # it was down in between
            if up != self._up or news.links:
                news.links.append(up)
            self._up, self._was_reset = up, False
        news.failed = self._recovered()
        return news

    def _recovered(self) -> bool:
        """Whether stores had failed, which now can go on."""
        return False

    def drain(self) -> None:
        self.flush()
        deadline = time.monotonic() + DRAIN_SECONDS
        while self.done < self.posted and time.monotonic() < deadline:
            time.sleep(0.001)
            self.flush()

    def close(self) -> None:
        self._rest()
        self.bridge.close()


class DmaTransport(NtbTransport):
    """All stores by descriptors of one channel of `engine`, small ones out of bounce memory."""

    def __init__(
        self, bridge: Bridge, engine: Engine, origin: int = 0, *, registered: bool = False
    ) -> None:
        self._engine = engine
        self._channel: Channel = engine.channels[0]
        self._bounce_bytes = (self._channel.entries + 2) * _LARGEST
        """So many that what is used anew belonged to a descriptor that has left the ring."""
        self._bounce = bridge.allocate(self._bounce_bytes)
        self._words = self._bounce.view.cast("I")
        self._bounce_at = 0
        self._before = 0
        """Stores before the channel's last reset."""
        self._begun = 0
        """Descriptors that the channel's doorbell has told of."""
        self._fenced = False
        self._failed = False
        super().__init__(bridge, origin, registered=registered)
        self._ahead = self._window.address - origin
        """From an address of the peer's to that in the window."""
        self._behind = 0 if self._shown is None else self._shown.address - origin
        """From an own address to that on the bus."""
        self._bounce_start = self._bounce.address - self._behind

    @property
    def posted(self) -> int:
        return self._before + self._channel.posted

    @property
    def done(self) -> int:
        try:
            return self._before + self._channel.finished
        except DmaError:
            self._failed = True
            return self.posted

    def write(self, target: int, data: bytes) -> None:
        """Store up to 256 bytes by way of bounce memory."""
        if len(data) > _LARGEST:
            raise ValueError(f"{len(data)} bytes do not fit into bounce memory")
        start = self._bounce_at
        if start + len(data) > self._bounce_bytes:
            start = 0
        self._bounce_at = start + -(-len(data) // _WORD) * _WORD
        self._bounce.view[start : start + len(data)] = data
        self.copy(self._bounce_start + start, target, len(data))

    def imm32(self, target: int, value: int) -> None:
        start = self._bounce_at
        if start == self._bounce_bytes:
            start = 0
        self._bounce_at = start + _WORD
        self._words[start // 4] = value
        self.copy(self._bounce_start + start, target, 4)

    def copy(self, source: int, target: int, length: int) -> None:
        try:
            self._channel.put(self._behind + source, self._ahead + target, length, self._fenced)
        except DmaError:
            self._failed = True
        self._fenced = False

    def fence(self) -> None:
        """The next descriptor has the fence bit."""
        self._fenced = True

    @property
    def pause(self) -> float:
        """The time in seconds to sleep: 0 while the channel must be told of new descriptors."""
        return 0.0 if self._begun != self._channel.posted else super().pause

    def flush(self) -> None:
        if self._begun != self._channel.posted:
            self._begun = self._channel.posted
            self._channel.begin()

    def _recovered(self) -> bool:
        """A channel that halted is reset."""
        if self.done <= self.posted and not self._failed:
            return False
        self.abandon()
        return True

    def abandon(self) -> None:
        """Reset the channel. Raises `DmaError` when it does not come out of that."""
        posted = self._channel.posted
        self._channel.reset()
        self._before += posted
        self._begun = 0
        self._failed = False

    def close(self) -> None:
        super().close()
        self._engine.close()


class CpuTransport(NtbTransport):
    """All stores by this processor in their order, some of them in each `flush`.

    The server takes such stores one by one: many at a time would keep this side from everything
    else for seconds, and its peer would take it for dead.
    """

    def __init__(self, bridge: Bridge, origin: int = 0, *, registered: bool = False) -> None:
        self._mappings = Mappings()
        self._waiting: deque[tuple[int, bytes | memoryview]] = deque()
        """Targets, each with the bytes that belong there."""
        self._done = 0
        super().__init__(bridge, origin, registered=registered)

    @property
    def posted(self) -> int:
        """Stores of a page at most that were asked for."""
        return self._done + len(self._waiting)

    @property
    def done(self) -> int:
        return self._done

    @property
    def pause(self) -> float:
        """None while stores wait."""
        return 0.0 if self._waiting else super().pause

    def map(self, length: int, align: int = 4096) -> DmaMemory:
        return self._mappings.add(super().map(length, align))

    def write(self, target: int, data: bytes) -> None:
        self._waiting.append((target, data))

    def word(self, target: int, value: int) -> None:
        """Store a word ahead of all that waits."""
        self._at_once += 1
        self._window.store(target - self._origin, value.to_bytes(4, "little"))

    def copy(self, source: int, target: int, length: int) -> None:
        """Store own memory; what is no memory of this side's cannot be sent."""
        view = self._mappings.view(source, length)
        if view is None:
            return
        for offset in range(0, length, _STORED_AT_ONCE):
            self._waiting.append((target + offset, view[offset : offset + _STORED_AT_ONCE]))

    def fence(self) -> None:
        """Stores of one processor are in order."""

    def flush(self) -> None:
        """Store for a slice of time, the rest with later calls."""
        until = time.monotonic() + SLICE_SECONDS
        while self._waiting:
            target, data = self._waiting.popleft()
            self._done += 1
            self._window.store(target - self._origin, data)
            if time.monotonic() >= until:
                return

    def abandon(self) -> None:
        self._done += len(self._waiting)
        self._waiting.clear()
