"""A PCI function that decodes its BARs and can access other functions on its guest's bus."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from bluebridge.device.buslog.writer import EventLog
from bluebridge.device.layout import pci as layout
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.events import Fact
from bluebridge.device.pci.bus import DmaError, Run
from bluebridge.device.pci.config_space import Bar, BarDecoder, Capability, Identity, Product
from bluebridge.device.pci.endpoint import Endpoint
from bluebridge.device.pci.host import Bridge, Host, Place
from bluebridge.device.pci.loop import EventLoop
from bluebridge.device.pyvfio_user import DmaRegion, MappedFile, Reset
from bluebridge.device.throttle import Throttle

log: Final = logging.getLogger(__name__)

RETRY_SECONDS: Final = 0.001
BARS_OFFSET: Final = layout.HEADER.field("bar0").offset
BAR_KIND: Final = 0xF
"""Mask of the low bits of a base address register that tell its type."""
MOST_MESSAGES: Final = 1024
"""Interrupt messages that are kept at most while the client does not read."""


class ConfigRegister(NamedTuple):
    """A register of configuration space outside of capabilities. `form` is a format of `struct`."""

    offset: int
    form: str
    value: int
    writable: int = 0


class Function(Endpoint):
    """Implements `MasterBus` for its model.

    The methods of `HostBus` access guest RAM as in any endpoint; an address outside of it is
    resolved on the bus of `host` and may be the peer's memory, behind a window.
    """

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
        host: Host,
        registers: Sequence[ConfigRegister] = (),
        product: Product | None = None,
    ) -> None:
        super().__init__(name, socket, identity, bars, capabilities, vectors, loop, events, product)
        self._host = host
        self._decoder = BarDecoder(bars)
        self._bridge: Bridge | None = None
        self._messages: deque[tuple[int, bytes]] = deque()
        self._lost = Throttle()
        self._memory_watcher: Callable[[DmaRegion, bool], None] | None = None
        self._config_watcher: Callable[[int, int], None] | None = None
        for register in registers:
            self._config.set(register.offset, register.form, register.value, register.writable)
        self._config.freeze()
        host.add(self)

    def config_snapshot(self) -> bytes:
        """Return the present configuration space, with the BAR addresses of `BarDecoder`."""
        config = bytearray(super().config_snapshot())
        for start, _, index in self._decoder.ranges:
            at = BARS_OFFSET + 4 * index
            kind = config[at] & BAR_KIND
            config[at : at + 4] = (start & 0xFFFFFFFF | kind).to_bytes(4, "little")
            if kind & layout.BAR_64BIT:
                config[at + 4 : at + 8] = (start >> 32).to_bytes(4, "little")
        return bytes(config)

    def plug_bridge(self, bridge: Bridge) -> None:
        """Connect a model that has windows, and serve the socket."""
        self._bridge = bridge
        self._model = bridge
        for bar in self._bars:
            if bar.index in bridge.windows:
                self._context.add_window(
                    bar.index,
                    bar.size,
                    self._reader(bar.index),
                    self._run_writer(bar.index, bridge),
                )
        self.plug(bridge)

    def _run_writer(self, bar: int, bridge: Bridge) -> Callable[[int, bytes, int], None]:
        events, device = self._events, self._device

        def write(offset: int, data: bytes, width: int) -> None:
            events.work = 0
            events.record(device, Kind.MMIO_WRITE, bar, offset, len(data), data)
            bridge.store_run(bar, offset, data, width)

        return write

    # -- a window that is the peer's memory ---------------------------------------------------

    def watch_memory(self, watcher: Callable[[DmaRegion, bool], None]) -> None:
        """Call `watcher` with a region after it was mapped (True) and before its unmap (False)."""
        self._memory_watcher = watcher

    def alias(self, bar: int, file: MappedFile | None) -> None:
        """Let clients that connect from now on map a part of `bar` to `file`.

        None ends the offer.
        """
        self._context.map_file(bar, file)

    def _map(self, region: DmaRegion) -> None:
        super()._map(region)
        if self._memory_watcher is not None:
            self._memory_watcher(region, True)

    def _unmap(self, region: DmaRegion) -> None:
        if self._memory_watcher is not None:
            self._memory_watcher(region, False)
        super()._unmap(region)

    # -- the bus's side -----------------------------------------------------------------------

    def stretch(self, address: int, length: int) -> memoryview | None:
        return self._reach.stretch(address, length)

    def ranges(self) -> Sequence[tuple[int, int, int]]:
        return self._decoder.ranges

    def answer(self, bar: int, offset: int, length: int) -> Place:
        """Return the target of an access to a BAR of this function."""
        if self._bridge is not None:
            place = self._bridge.aperture(bar, offset, length)
            if place is not None:
                return place
        return self._host.register(self, offset, length, self._reader(bar), self._writer(bar))

    def message(self, address: int, data: bytes) -> None:
        """Send an interrupt message to the guest; it is kept while the client's socket is full."""
        if not self._master:
            self.tell(Fact.MESSAGE_LOST, address=address)
            return
        if len(self._messages) >= MOST_MESSAGES:
            if self._lost.admits():
                log.warning("%s: the guest's QEMU does not read; messages are lost", self.name)
            return
        self._events.record(self._device, Kind.DMA_WRITE, 0, address, len(data), data, What.MESSAGE)
        self._messages.append((address, data))
        if len(self._messages) == 1:
            self._send_messages()

    def _send_messages(self) -> None:
        while self._messages:
            try:
                self._context.write_memory(*self._messages[0])
            except BlockingIOError:
                self._loop.call_later(RETRY_SECONDS, self._send_messages)
                return
            self._messages.popleft()

    # -- the client's side --------------------------------------------------------------------

    def _config_read(self, offset: int, length: int) -> bytes:
        if self._config_watcher is not None:
            self._config_watcher(offset, length)
        return super()._config_read(offset, length)

    def _config_write(self, offset: int, data: bytes) -> None:
        super()._config_write(offset, data)
        self._decoder.write(offset, data, self._config_command())

    def _reset(self, why: Reset) -> None:
        super()._reset(why)
        self._messages.clear()
        if why is Reset.LOST_CONNECTION:
            self._decoder.power_off()
        else:
            self._decoder.write(0, b"", self._config_command())

    def _config_command(self) -> int:
        return layout.HEADER.get(self._config.data, "command")

    # -- MasterBus ----------------------------------------------------------------------------

    def place(self, address: int, length: int) -> Place:
        """Return the target at `address`; without Bus Master Enable a master abort."""
        if not self._master:
            return self._host.master_abort(self, "no bus master", address, length)
        return self._host.resolve(self, address, length)

    def inward(self, address: int, length: int) -> Place:
        """Return the target of an access by the peer that comes through this bridge."""
        if not self._master:
            return self._host.master_abort(self, "no bus master", address, length)
        return self._host.inward(self, address, length)

    def bar_base(self, index: int) -> int | None:
        return self._decoder.base(index)

    def get_config(self, offset: int, length: int) -> bytes:
        return self._config.read(offset, length)

    def set_config(self, offset: int, data: bytes) -> None:
        self._config.data[offset : offset + len(data)] = data

    def watch_config(self, read: Callable[[int, int], None]) -> None:
        self._config_watcher = read

    # -- HostBus, with windows behind it ------------------------------------------------------

    def read(self, address: int, length: int, what: What, obj: int = 0) -> bytes:
        try:
            return super().read(address, length, what, obj)
        except DmaError:
            data = b"".join(self.views([(address, length)]))
            self.note_dma(Kind.DMA_READ, address, length, data, what, obj)
            return data

    def write(
        self, address: int, data: bytes | bytearray | memoryview, what: What, obj: int = 0
    ) -> None:
        try:
            super().write(address, data, what, obj)
        except DmaError:
            done = 0
            for view in self.views([(address, len(data))]):
                view[:] = data[done : done + len(view)]
                done += len(view)
            self.note_dma(Kind.DMA_WRITE, address, len(data), memoryview(data), what, obj)

    def views(self, runs: Sequence[Run]) -> Sequence[memoryview]:
        try:
            return super().views(runs)
        except DmaError:
            return [view for run in runs for view in self._views_of(*run)]

    def _views_of(self, address: int, length: int) -> list[memoryview]:
        found = []
        while length:
            place = self.place(address, length)
            if place.view is None:
                raise DmaError(address, length)
            found.append(place.view)
            address += place.length
            length -= place.length
        return found
