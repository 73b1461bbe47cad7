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
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.pci.bus import HostBus, Model
from bluebridge.device.throttle import Throttle

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE: Final = 4096
CLOSED: Final = "the window is closed"
"""The fault of a window without a target: bridges accept such writes and drop them."""


class Place(NamedTuple):
    """The target of `length` bytes from an address on.

    `view` is memory. Without it, `load` and `store` access a register (`length` is then 1, 2, 4 or
    8) or the interrupt range. Without those, there is no target (master abort): reads are all ones,
    writes are lost, and `fault` is the reason. `far` is the peer's function and the address there,
    if the access passes a bridge.
    """

    length: int
    view: memoryview | None = None
    load: Callable[[], bytes] | None = None
    store: Callable[[bytes], None] | None = None
    fault: str = ""
    far: tuple[HostBus, int] | None = None


def clip(place: Place, length: int) -> Place:
    """The target for at most `length` bytes; registers are not clipped."""
    if length >= place.length or place.load is not None or place.store is not None:
        return place
    view = place.view[:length] if place.view is not None else None
    return place._replace(length=length, view=view)


class MasterBus(HostBus, Protocol):
    """The bus of a model that can access more than memory."""

    def place(self, address: int, length: int) -> Place:
        """The target at `address` of this guest's bus."""

    def inward(self, address: int, length: int) -> Place:
        """The target of an access that comes through this bridge: memory or interrupts."""

    def bar_base(self, index: int) -> int | None:
        """Bus address of a BAR of this function, None while it is not decoded."""

    def get_config(self, offset: int, length: int) -> bytes:
        """Registers of this function's config space."""

    def set_config(self, offset: int, data: bytes) -> None:
        """Change registers of config space, read-only ones included."""

    def watch_config(self, read: Callable[[int, int], None]) -> None:
        """Call `read(offset, length)` before the guest reads config space."""


class Bridge(Model, Protocol):
    """A model with windows into the peer's memory."""

    @property
    def windows(self) -> Mapping[int, object]:
        """The windows by BAR."""

    def aperture(self, bar: int, offset: int, length: int) -> Place | None:
        """The target behind a window; None for registers."""

    def store_run(self, bar: int, offset: int, data: bytes, width: int) -> None:
        """Stores of `width` bytes each to adjacent addresses of a window."""


class Master(Protocol):
    """A function, as the bus uses it."""

    def stretch(self, address: int, length: int) -> memoryview | None:
        """Guest RAM that the function may access from `address` on, None if there is none."""

    def ranges(self) -> Sequence[tuple[int, int, int]]:
        """Start, end and index of its decoded BARs."""

    def answer(self, bar: int, offset: int, length: int) -> Place:
        """The target of an access to a BAR of it."""

    def message(self, address: int, data: bytes) -> None:
        """Write to the interrupt range."""

    def note(self, kind: Kind, text: str, address: int = 0, obj: int = 0) -> None:
        """Log a line."""


class Host:
    """The functions of one guest. `aborts` counts master aborts by reason."""

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
        """The target of an access by `master` to at most `length` > 0 bytes at `address`."""
        view = master.stretch(address, length)
        if view is not None:
            return Place(len(view), view)
        for function in self._functions:
            for start, end, bar in function.ranges():
                if start <= address < end:
                    return function.answer(bar, address - start, min(length, end - address))
        return self._message(master, address, length)

    def inward(self, bridge: Master, address: int, length: int) -> Place:
        """The target of an access that comes through `bridge`.

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
        """Count and log a master abort; the target without an answer."""
        self.aborts[why] += 1
        if self._throttle.admits():
            master.note(Kind.NOTE, f"master abort: {why} at {address:#x}", address)
        return Place(min(length, PAGE - address % PAGE), fault=why)

    @contextmanager
    def registers(self, master: Master, address: int) -> Iterator[bool]:
        """Around a register access by a master; yields whether it is allowed.

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
    """Width of the aligned access at `offset`: 8, 4, 2 or 1 bytes, at most `length`."""
    width = 8
    while width > length or offset % width:
        width //= 2
    return width
