"""One guest's bus: whoever masters it gets from an address to what answers there.

A function reaches guest RAM by itself (`Endpoint`). Everything else an address may mean is known
only to the bus: a register of another function, a window of a bridge into the peer's memory, or the
range whose writes are interrupts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from bluebridge.device.layout import pci as layout
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.pci.bus import HostBus
from bluebridge.device.throttle import Throttle

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = 4096
CLOSED = "the window is closed"
"""Why nobody answers behind a window that shows nothing: bridges take such writes and drop them."""


class Place(NamedTuple):
    """What answers at an address, for `length` bytes from there on; resolve anew behind them.

    `view` is memory. Without one, `load` and `store` are accesses of a register (`length` is then
    1, 2, 4 or 8) or of the interrupt range. Without those, nobody answers: reads are all ones,
    writes are lost, and `fault` says why. `far` is the peer's function and the address there, when
    a bridge lies between.
    """

    length: int
    view: memoryview | None = None
    load: Callable[[], bytes] | None = None
    store: Callable[[bytes], None] | None = None
    fault: str = ""
    far: tuple[HostBus, int] | None = None


def clip(place: Place, length: int) -> Place:
    """The same place for at most `length` bytes; a register is left whole."""
    if length >= place.length or place.load is not None or place.store is not None:
        return place
    view = place.view[:length] if place.view is not None else None
    return place._replace(length=length, view=view)


class MasterBus(HostBus, Protocol):
    """What a model sees of its host that masters more than memory."""

    def place(self, address: int, length: int) -> Place:
        """What answers at `address` of this guest's bus."""

    def inward(self, address: int, length: int) -> Place:
        """The same for an access that a bridge lets in: memory and interrupts only."""

    def bar_base(self, index: int) -> int | None:
        """Where the guest has put a BAR of this function; None while it is nowhere."""

    def get_config(self, offset: int, length: int) -> bytes:
        """Registers of this function's config space."""

    def set_config(self, offset: int, data: bytes) -> None:
        """Change registers of config space that only the device changes."""

    def watch_config(self, read: Callable[[int, int], None]) -> None:
        """Call `read(offset, length)` before the guest reads config space."""


@runtime_checkable
class Bridge(Protocol):
    """A model with windows."""

    windows: Mapping[int, object]
    """By their BARs."""

    def aperture(self, bar: int, offset: int, length: int) -> Place | None:
        """What a window shows there; None when the BAR holds registers."""

    def store_run(self, bar: int, offset: int, data: bytes, width: int) -> None:
        """Stores into a window, `width` bytes each, one behind the other."""


class Master(Protocol):
    """A function as the bus knows it."""

    def stretch(self, address: int, length: int) -> memoryview | None:
        """Guest RAM within reach of the function."""

    def ranges(self) -> Sequence[tuple[int, int, int]]:
        """Start, end and index of its decoded BARs."""

    def answer(self, bar: int, offset: int, length: int) -> Place:
        """What answers in a BAR of it."""

    def message(self, address: int, data: bytes) -> None:
        """Write to the interrupt range."""

    def note(self, kind: Kind, text: str, address: int = 0, obj: int = 0) -> None:
        """Log a line."""


class Host:
    """The functions of one guest. `aborts` counts accesses that ended nowhere, by reason."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.aborts: Counter[str] = Counter()
        self._functions: list[Master] = []
        self._inside = False
        self._throttle = Throttle()

    def add(self, function: Master) -> None:
        """Plug a function in."""
        self._functions.append(function)

    def resolve(self, master: Master, address: int, length: int) -> Place:
        """What `master` meets at `address`; `length` > 0 is what it wants at most."""
        view = master.stretch(address, length)
        if view is not None:
            return Place(len(view), view)
        for function in self._functions:
            for start, end, bar in function.ranges():
                if start <= address < end:
                    return function.answer(bar, address - start, min(length, end - address))
        return self._message(master, address, length)

    def inward(self, bridge: Master, address: int, length: int) -> Place:
        """What an access meets that came through `bridge`.

        A window that shows BARs would make chains, and loops over both guests: they are refused.
        """
        view = bridge.stretch(address, length)
        if view is not None:
            return Place(len(view), view)
        for function in self._functions:
            for start, end, _ in function.ranges():
                if start <= address < end:
                    return self.nothing(bridge, "a window shows a BAR", address, length)
        return self._message(bridge, address, length)

    def _message(self, master: Master, address: int, length: int) -> Place:
        if layout.MESSAGE_BASE <= address < layout.MESSAGE_END:
            if length == 4:
                return Place(4, store=lambda data: master.message(address, data))
            return self.nothing(master, "an interrupt message of another length", address, length)
        return self.nothing(master, "nobody answers", address, length)

    def nothing(self, master: Master, why: str, address: int, length: int) -> Place:
        """An access that ends nowhere, counted and noted."""
        self.aborts[why] += 1
        if self._throttle.admits():
            master.note(Kind.NOTE, f"master abort: {why} at {address:#x}", address)
        return Place(min(length, PAGE - address % PAGE), fault=why)

    @contextmanager
    def registers(self, master: Master, address: int) -> Iterator[bool]:
        """Around an access of a register by a master: whether it may happen.

        What the access sets off must not reach registers again, or it might never end.
        """
        if self._inside:
            self.nothing(master, "a register access caused another", address, 1)
            yield False
            return
        self._inside = True
        try:
            yield True
        finally:
            self._inside = False


def register_width(offset: int, length: int) -> int:
    """The natural access at `offset`: 8, 4, 2 or 1 bytes, no more than `length`."""
    width = 8
    while width > length or offset % width:
        width //= 2
    return width
