"""A PCI function on a vfio-user socket: binds a device model to its host.

The endpoint is the model's `HostBus`: it translates bus addresses, raises interrupts, writes the
log, and schedules calls in the server's loop. A lost client resets the model to its power-on state.
Without Bus Master Enable the model reaches no memory and raises no interrupts. While MSI-X is on,
an interrupt to a vector that the client has not set up yet is raised when it does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from bluebridge.device.buslog.packing import WINDOW_CAPTURE
from bluebridge.device.buslog.record import INDEX_MASK, WORK_DEVICE_SHIFT, WORK_QPN_SHIFT
from bluebridge.device.buslog.writer import EventLog
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.events import Fact, Value
from bluebridge.device.pci import collector
from bluebridge.device.pci.bus import DmaError, Model, Presence, Run
from bluebridge.device.pci.config_space import Bar, Capability, Identity, LiveWord, Product, compose
from bluebridge.device.pci.loop import EventLoop, LoopTimer
from bluebridge.device.pci.memory import GuestMemory
from bluebridge.device.pyvfio_user import (
    Context,
    DmaRegion,
    Irq,
    LineStores,
    PciKind,
    Protection,
    Region,
    Reset,
)

log: Final = logging.getLogger(__name__)

_MMIO_READ: Final = int(Kind.MMIO_READ)
_MMIO_WRITE: Final = int(Kind.MMIO_WRITE)
_DMA_READ: Final = int(Kind.DMA_READ)
_DMA_WRITE: Final = int(Kind.DMA_WRITE)
_WINDOW: Final = int(What.WINDOW)

__all__ = ["Bar", "DmaError", "Endpoint", "Identity"]


class Endpoint:
    """One PCI function; implements `HostBus` for the model given to `plug`."""

    def __init__(
        self,
        name: str,
        socket: Path,
        identity: Identity,
        bars: Sequence[Bar],
        capabilities: Sequence[Capability],
        vectors: int,
        loop: EventLoop,
        events: EventLog,
        product: Product | None = None,
    ) -> None:
        self._name = name
        self._loop = loop
        self._events = events
        self._device = events.device(name)
        self._work = (self._device + 1) << WORK_DEVICE_SHIFT
        self._memory = GuestMemory()
        self._reach = GuestMemory()  # `_memory` while the device is bus master, else an empty one
        self._master = False
        self._presence = Presence.HERE
        self._mute = False  # accesses to BARs are lost
        self._model: Model | None = None
        self._config = compose(identity, bars, capabilities, product)
        self._context = Context(socket)
        self._bars = tuple(bars)
        self._vectors = vectors
        self._before_loss: Callable[[], None] | None = None
        self._latched: set[int] = set()  # vectors that are raised once the client sets them up

    def plug(self, model: Model) -> None:
        """Connect the device model to this function and serve the socket."""
        self._model = model
        context = self._context
        context.pci_init(PciKind.EXPRESS)
        context.add_region(
            Region.CONFIG, len(self._config.data), self._config_read, self._config_write
        )
        for bar in self._bars:
            lines = None if bar.lines is None else self._line_stores(bar.index, bar.lines)
            context.add_region(
                bar.index, bar.size, self._reader(bar.index), self._writer(bar.index), lines=lines
            )
        context.set_irqs(Irq.INTX, 1)  # the header has INTA#, which QEMU sets up
        context.set_irqs(Irq.MSIX, self._vectors)
        context.set_dma_callbacks(self._map, self._unmap)
        context.set_reset_callback(self._reset)
        context.attach()
        self._loop.add_reader(context.poll_fd, self._serve)

    def add_live_word(self, offset: int, word: LiveWord) -> None:
        """Let `word` do what the register of configuration space at `offset` does."""
        self._config.live[offset] = word

    def close(self) -> None:
        """Stop serving and remove the socket."""
        self._loop.remove_reader(self._context.poll_fd)
        self._context.close()
        self._memory.clear()

    @property
    def bars(self) -> tuple[Bar, ...]:
        """The BARs of the function."""
        return self._bars

    def config_snapshot(self) -> bytes:
        """Return the present configuration space, with no effect on the function or the log."""
        return bytes(self._config.data)

    def when_lost(self, action: Callable[[], None]) -> None:
        """Call `action` when the client is lost, before everything is reset."""
        self._before_loss = action

    # -- the client's side --------------------------------------------------------------------

    def _serve(self) -> None:
        self._context.run()
        if self._latched:
            self._raise_latched()

    def _raise_latched(self) -> None:
        """Raise the latched interrupts whose vectors the client has set up since."""
        if not self._master:
            return
        self._events.work = 0
        for vector in sorted(self._latched):
            if self._context.trigger(vector):
                self._latched.discard(vector)
                self._events.record(self._device, Kind.IRQ, 0, vector, 0, b"")

    def _config_read(self, offset: int, length: int) -> bytes:
        gone = self._presence is Presence.GONE
        data = b"\xff" * length if gone else self._config.read(offset, length)
        self._events.work = 0
        self._events.record(self._device, Kind.CONFIG_READ, 0, offset, length, data)
        return data

    def _config_write(self, offset: int, data: bytes) -> None:
        self._events.work = 0
        self._events.record(self._device, Kind.CONFIG_WRITE, 0, offset, len(data), data)
        if self._presence is Presence.GONE:
            return
        if self._config.initiates_reset(offset, data):
            # vfio-pci does this when it opens the device and for VFIO_DEVICE_RESET.
            self._reset(Reset.FUNCTION_LEVEL)
        else:
            self._config.write(offset, data)
            if not self._config.msix_enabled:
                self._latched.clear()
        self._follow_command_register()

    def _follow_command_register(self) -> None:
        """Apply Bus Master Enable (PCI 3.0, 6.2.2) to memory accesses, MSI-X included."""
        master = self._config.bus_master
        if master != self._master:
            self._master = master
            self._reach = self._memory if master else GuestMemory()
            self.tell(Fact.BUS_MASTER, on=master)

    def _reader(self, bar: int) -> Callable[[int, int], bytes]:
        events, device, model = self._events, self._device, self._plugged()

        def read(offset: int, length: int) -> bytes:
            # An access of the guest belongs to no work request, whatever ran before it.
            events.work = 0
            data = b"\xff" * length if self._mute else model.bar_read(bar, offset, length)
            events.record(device, _MMIO_READ, bar, offset, length, data)
            return data

        return read

    def _writer(self, bar: int) -> Callable[[int, bytes], None]:
        events, device, model = self._events, self._device, self._plugged()

        def write(offset: int, data: bytes) -> None:
            events.work = 0
            events.record(device, _MMIO_WRITE, bar, offset, len(data), data)
            if not self._mute:
                model.bar_write(bar, offset, data)

        return write

    def _line_stores(self, bar: int, start: int) -> LineStores:
        """Make the handler that joins posted stores within a line.

        Each store is logged; the model gets the joined ones as one write.
        """
        events, device, model = self._events, self._device, self._plugged()

        def write(offset: int, data: bytes, width: int) -> None:
            events.work = 0
            for at in range(0, len(data), width):
                part = data[at : at + width]
                events.record(device, _MMIO_WRITE, bar, offset + at, width, part)
            if not self._mute:
                model.bar_write(bar, offset, data)

        return LineStores(start, write)

    def _plugged(self) -> Model:
        if self._model is None:
            raise RuntimeError("plug a model first")
        return self._model

    def _map(self, region: DmaRegion) -> None:
        if region.view is not None and region.protection & Protection.WRITE:
            self._memory.add(region.iova, region.view)

    def _unmap(self, region: DmaRegion) -> None:
        self._memory.remove(region.iova)

    def _reset(self, why: Reset) -> None:
        log.info("%s: reset (%s)", self._name, why.name.lower())
        self.tell(Fact.RESET, cause=why.name.lower().replace("_", " "))
        if why is Reset.LOST_CONNECTION:
            self._tell_loss()
        self._config.reset()
        self._latched.clear()
        self._follow_command_register()
        self._plugged().reset()
        collector.discarded(collector.RESET)

    def _tell_loss(self) -> None:
        action = self._before_loss
        try:
            if action is not None:
                action()
        except Exception:  # the reset must follow, whatever was found before it
            log.exception("%s: its last state is lost", self._name)

    # -- HostBus ------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self._name

    def read(self, address: int, length: int, what: What, obj: int = 0) -> bytes:
        data = self._reach.read(address, length)
        self._events.record(self._device, _DMA_READ, 0, address, length, data, what, obj)
        return data

    def write(
        self, address: int, data: bytes | bytearray | memoryview, what: What, obj: int = 0
    ) -> None:
        self._reach.write(address, data)
        self._events.record(self._device, _DMA_WRITE, 0, address, len(data), data, what, obj)

    def views(self, runs: Sequence[Run]) -> Sequence[memoryview]:
        return self._reach.views(runs)

    def note_dma(
        self,
        kind: int,
        address: int,
        length: int,
        data: bytes | memoryview,
        what: int,
        obj: int = 0,
    ) -> None:
        events = self._events
        if what != _WINDOW:
            events.record(self._device, kind, 0, address, length, data, what, obj)
        elif events.active:
            kept = bytes(data[: max(events.capture, WINDOW_CAPTURE)])
            events.keep(self._device, kind, 0, address, length, kept, what, obj)

    def note_transfers(
        self,
        kind: int,
        runs: Sequence[Run],
        views: Sequence[memoryview],
        count: int,
        most: int,
        what: int,
        obj: int,
    ) -> None:
        self._events.transfers(self._device, kind, runs, views, count, most, what, obj)

    def tell(self, fact: Fact, **values: Value) -> None:
        self._events.tell(self._device, fact, **values)

    def concern(self, qpn: int, index: int) -> None:
        self._events.work = self._work | qpn << WORK_QPN_SHIFT | index & INDEX_MASK

    def resume(self, work: int) -> None:
        self._events.work = work

    def interrupt(self, vector: int) -> None:
        if not self._master:
            self.tell(Fact.INTERRUPT_LOST, vector=vector, lost=0)
        elif 0 <= vector < self._vectors and self._context.trigger(vector):
            self._events.record(self._device, Kind.IRQ, 0, vector, 0, b"")
        elif 0 <= vector < self._vectors and self._config.msix_enabled:
            # Drivers add vectors while MSI-X is on, and wait long for an event that was lost.
            if vector not in self._latched:
                self._latched.add(vector)
                self.tell(Fact.INTERRUPT_LOST, vector=vector, lost=2)
        else:
            self.tell(Fact.INTERRUPT_LOST, vector=vector, lost=1)

    def refuse(self, page: int, *, refused: bool) -> None:
        self._memory.refuse(page, refused=refused)

    def set_presence(self, presence: Presence) -> None:
        """Say what of the function answers; one that has gone returns as after power-on."""
        self.tell(Fact.PRESENCE, presence=presence.name.lower().replace("_", " "))
        self._presence = presence
        self._mute = presence is not Presence.HERE
        if presence is Presence.GONE:
            self._reset(Reset.FUNCTION_LEVEL)

    def reset_function(self) -> None:
        self._reset(Reset.FUNCTION_LEVEL)

    def call_later(self, seconds: float, action: Callable[[], None]) -> LoopTimer:
        return self._loop.call_later(seconds, action)

    def call_soon(self, action: Callable[[], None]) -> None:
        self._loop.call_soon(action)

    def call_next_turn(self, action: Callable[[], None]) -> None:
        self._loop.call_next_turn(action)
