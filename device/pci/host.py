"""The bus of one guest: resolves addresses of bus masters to their targets.

A function accesses guest RAM by itself (`Endpoint`). The bus resolves all other addresses:
registers of another function, a window of a bridge into the peer's memory, and the range whose
writes are interrupts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from bluebridge.device.layout import pci as layout
from bluebridge.device.layout.events import Fact, Value
from bluebridge.device.pci.bus import HostBus, Model
from bluebridge.device.throttle import Throttle

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE: Final = 4096
CLOSED: Final = "the window is closed"
"""The fault of an access to a window without a target.

Bridges accept writes to such a window and drop them.
"""


class Place(NamedTuple):
    """The target of an access to `length` bytes from an address on.

    If `view` is set, the target is memory. Otherwise `load` and `store` access a register (`length`
    is then 1, 2, 4 or 8) or the interrupt range. Without `view`, `load` and `store` there is no
    target (master abort): reads return all ones, writes are lost, and `fault` is the reason. `far`
    is the peer's function and the address on its bus, if the access passes a bridge.
    """

    length: int
    view: memoryview | None = None
    load: Callable[[], bytes] | None = None
    store: Callable[[bytes], None] | None = None
    fault: str = ""
    far: tuple[HostBus, int] | None = None


def clip(place: Place, length: int) -> Place:
    """Shorten a target to at most `length` bytes; a register is not shortened."""
    if length >= place.length or place.load is not None or place.store is not None:
        return place
    view = place.view[:length] if place.view is not None else None
    return place._replace(length=length, view=view)


class MasterBus(HostBus, Protocol):
    """The bus of a device model that can access more than guest memory."""

    def place(self, address: int, length: int) -> Place:
        """Return the target of an access to `address` on this guest's bus."""

    def inward(self, address: int, length: int) -> Place:
        """Return the target, memory or interrupts, of an access that comes through this bridge."""

    def bar_base(self, index: int) -> int | None:
        """Return the bus address of a BAR of this function, or None while it is not decoded."""

    def get_config(self, offset: int, length: int) -> bytes:
        """Return `length` bytes of this function's configuration space from `offset` on."""

    def set_config(self, offset: int, data: bytes) -> None:
        """Change registers of configuration space, read-only ones included."""

    def watch_config(self, read: Callable[[int, int], None]) -> None:
        """Call `read(offset, length)` before the guest reads configuration space."""


class Bridge(Model, Protocol):
    """A model with windows into the peer's memory."""

    @property
    def windows(self) -> Mapping[int, object]:
        """The windows into the peer's memory, by BAR number."""

    def aperture(self, bar: int, offset: int, length: int) -> Place | None:
        """Return the target of an access to a window; None if the BAR holds registers."""

    def store_run(self, bar: int, offset: int, data: bytes, width: int) -> None:
        """Carry out stores of `width` bytes each to adjacent addresses of a window."""


class Master(Protocol):
    """A function on the bus of a guest, as `Host` uses it."""

    def stretch(self, address: int, length: int) -> memoryview | None:
        """Return the guest RAM that the function may access from `address` on, or None."""

    def ranges(self) -> Sequence[tuple[int, int, int]]:
        """Return start address, end address and index of each decoded BAR of the function."""

    def answer(self, bar: int, offset: int, length: int) -> Place:
        """Return the target of an access to a BAR of the function."""

    def message(self, address: int, data: bytes) -> None:
        """Write `data` to `address` in the interrupt range."""

    def tell(self, fact: Fact, **values: Value) -> None:
        """Log a fact with the values of its fields."""


class Host:
    """The bus of one guest with its functions; `aborts` counts master aborts by reason."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.aborts: Counter[str] = Counter()
        self._functions: list[Master] = []
        self._inside = False
        self._throttle = Throttle()

    def add(self, function: Master) -> None:
        """Add a function to the bus."""
        self._functions.append(function)

    def resolve(self, master: Master, address: int, length: int) -> Place:
        """Return the target of an access by `master` to at most `length` > 0 bytes at `address`."""
        view = master.stretch(address, length)
        if view is not None:
            return Place(len(view), view)
        for function in self._functions:
            for start, end, bar in function.ranges():
                if start <= address < end:
                    return function.answer(bar, address - start, min(length, end - address))
        return self._message(master, address, length)

    def inward(self, bridge: Master, address: int, length: int) -> Place:
        """Return the target of an access that comes through `bridge`.

        BARs are refused, since windows into windows could form loops over both guests.
        """
        view = bridge.stretch(address, length)
        if view is not None:
            return Place(len(view), view)
        for function in self._functions:
            for start, end, _ in function.ranges():
                if start <= address < end:
                    return self.master_abort(bridge, "a window shows a BAR", address, length)
        return self._message(bridge, address, length)

    def _message(self, master: Master, address: int, length: int) -> Place:
        if layout.MESSAGE_BASE <= address < layout.MESSAGE_END:
            if length == 4:
                return Place(4, store=lambda data: master.message(address, data))
            return self.master_abort(
                master, "an interrupt message of another length", address, length
            )
        return self.master_abort(master, "nobody answers", address, length)

    def master_abort(self, master: Master, why: str, address: int, length: int) -> Place:
        """Count and log a master abort; return a target that nothing answers at."""
        self.aborts[why] += 1
        if self._throttle.admits():
            master.tell(Fact.MASTER_ABORT, reason=why, address=address)
        return Place(min(length, PAGE - address % PAGE), fault=why)

    def register(
        self,
        master: Master,
        offset: int,
        length: int,
        read: Callable[[int, int], bytes],
        write: Callable[[int, bytes], None],
    ) -> Place:
        """Return an access to registers of `master` at `offset` of a BAR, by `read` and `write`."""
        width = register_width(offset, length)

        def load() -> bytes:
            with self._registers(master, offset) as allowed:
                return read(offset, width) if allowed else b"\xff" * width

        def store(data: bytes) -> None:
            with self._registers(master, offset) as allowed:
                if allowed:
                    write(offset, data)

        return Place(width, load=load, store=store)

    @contextmanager
    def _registers(self, master: Master, address: int) -> Iterator[bool]:
        """Guard a register access by a master; the context yields whether it is allowed.

        An access of the register's model to registers is refused, since it might not end.
        """
        if self._inside:
            self.master_abort(master, "a register access caused another", address, 1)
            yield False
            return
        self._inside = True
        try:
            yield True
        finally:
            self._inside = False


def register_width(offset: int, length: int) -> int:
    """Return the width of the aligned access at `offset`: 8, 4, 2 or 1, at most `length` bytes."""
    width = 8
    while width > length or offset % width:
        width //= 2
    return width
