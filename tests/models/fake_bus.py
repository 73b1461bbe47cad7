"""Functions on a guest's bus in the test process: `MasterBus` over the resolver of the server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from bluebridge.device.pci.bus import Model
from bluebridge.device.pci.host import Bridge, Host, Place
from bluebridge.device.pci.memory import GuestMemory
from tests.models.fake_host import FakeHost


class FakeFunction(FakeHost):
    """One function; `place_bar` is what the guest does with config writes.

    Functions of one guest share the memory of the first (`beside`), clock and interrupts are each
    function's own.
    """

    def __init__(self, name: str, host: Host, *, beside: FakeFunction | None = None) -> None:
        super().__init__(name)
        if beside is not None:
            self._memory: GuestMemory = beside._memory
        self.host = host
        self.model: Model | None = None
        self.bridge: Bridge | None = None
        self.messages: list[tuple[int, bytes]] = []
        self.config = bytearray(4096)
        self.watchers: list[Callable[[int, int], None]] = []
        self._bars: dict[int, tuple[int, int]] = {}
        host.add(self)

    def place_bar(self, index: int, base: int, size: int) -> None:
        """The guest gives a BAR an address."""
        self._bars[index] = base, size

    # -- Master -------------------------------------------------------------------------------

    def stretch(self, address: int, length: int) -> memoryview | None:
        return self._memory.stretch(address, length)

    def ranges(self) -> Sequence[tuple[int, int, int]]:
        return [(base, base + size, index) for index, (base, size) in self._bars.items()]

    def answer(self, bar: int, offset: int, length: int) -> Place:
        model = self.model
        assert model is not None
        if self.bridge is not None:
            place = self.bridge.aperture(bar, offset, length)
            if place is not None:
                return place
        read, write = partial(model.bar_read, bar), partial(model.bar_write, bar)
        return self.host.register(self, offset, length, read, write)

    def message(self, address: int, data: bytes) -> None:
        self.messages.append((address, data))

    # -- MasterBus ----------------------------------------------------------------------------

    def place(self, address: int, length: int) -> Place:
        return self.host.resolve(self, address, length)

    def inward(self, address: int, length: int) -> Place:
        return self.host.inward(self, address, length)

    def bar_base(self, index: int) -> int | None:
        return self._bars[index][0] if index in self._bars else None

    def get_config(self, offset: int, length: int) -> bytes:
        return bytes(self.config[offset : offset + length])

    def set_config(self, offset: int, data: bytes) -> None:
        self.config[offset : offset + len(data)] = data

    def watch_config(self, read: Callable[[int, int], None]) -> None:
        self.watchers.append(read)

    def read_config(self, offset: int, length: int) -> int:
        """The guest reads config space."""
        for watcher in self.watchers:
            watcher(offset, length)
        return int.from_bytes(self.get_config(offset, length), "little")
