"""Windows through which a bridge shows its guest's memory to the peer."""

from __future__ import annotations

from collections import Counter
from typing import Final, Protocol

from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.events import Fact
from bluebridge.device.pci.fault_point import FaultPoint
from bluebridge.device.pci.host import CLOSED, MasterBus, Place
from bluebridge.device.throttle import Throttle

REFUSED: Final = "a fault refuses the access"


class Window:
    """The inbound side of a window: it shows `length` bytes at `base` of the owner's bus.

    A closed window has length 0. `counts` are the peer's accesses to the closed window (`closed`)
    and those that met neither memory nor a register behind it (`aborts`). A bridge opens the window
    when software has programmed all of it and closes it at the first sign of a change: between the
    two register writes that clear it, late accesses would otherwise reach address 0.
    """

    def __init__(self, bus: MasterBus, number: int) -> None:
        self.bus = bus
        self.number = number
        self.base = 0
        self.length = 0
        self.counts: Counter[str] = Counter()
        self._throttle = Throttle()
        self.refusal: FaultPoint[bool] = FaultPoint()
        """Decides of each access whether it is refused."""

    def open(self, base: int, length: int) -> None:
        """Open the window onto `length` bytes of the owner's bus from address `base` on."""
        if (base, length) != (self.base, self.length):
            self.bus.tell(Fact.WINDOW_OPENED, window=self.number, length=length, address=base)
        self.base, self.length = base, length

    def close(self) -> None:
        """Close the window."""
        if self.length:
            self.bus.tell(Fact.WINDOW_CLOSED, window=self.number)
        self.length = 0

    def place(self, offset: int, length: int) -> Place:
        """Return the target of the peer's access at `offset`, clipped at the window's end."""
        if self.refusal.decide is not None and self.refusal.decide():
            self.counts["aborts"] += 1
            return Place(length, fault=REFUSED)
        room = self.length - offset
        if room <= 0:
            self.counts["closed"] += 1
            if self.length and self._throttle.admits():
                count = self._throttle.count
                self.bus.tell(Fact.WINDOW_EXCEEDED, window=self.number, offset=offset, count=count)
            return Place(length, fault=CLOSED)
        address = self.base + offset
        found = self.bus.inward(address, min(length, room))
        if found.fault:
            self.counts["aborts"] += 1
            return found
        return Place(found.length, found.view, found.load, found.store, "", (self.bus, address))


class Shown(Protocol):
    """The target of a window's BAR."""

    counts: Counter[str]

    def place(self, offset: int, length: int) -> Place:
        """Return the target of an access at `offset` of the BAR."""


class Portal:
    """The outbound side of a window: a processor's accesses to the window's BAR, which trap."""

    def __init__(self, bus: MasterBus, bar: int) -> None:
        self._bus = bus
        self._bar = bar

    def read(self, window: Shown | None, offset: int, length: int) -> bytes:
        """Return what the peer's memory holds; all ones where the window shows nothing."""
        found = bytearray()
        while len(found) < length and window is not None:
            place = window.place(offset + len(found), length - len(found))
            if place.load is not None:
                found += place.load()
                continue
            if place.view is None:
                break
            found += place.view
            note_far(place, Kind.DMA_READ, place.view, self._bar)
        return bytes(found).ljust(length, b"\xff")

    def write(self, window: Shown | None, offset: int, data: bytes, width: int = 0) -> None:
        """Store into the peer's memory, or raise an interrupt there.

        The bytes are lost where the window shows nothing. Stores of `width` bytes each may come
        joined; 0 means one store. Stores to memory stay joined.
        """
        done, width = 0, width or len(data)
        while done < len(data) and window is not None:
            left = len(data) - done
            place = window.place(offset + done, min(width, left))
            if place.view is not None and left > width:
                place = window.place(offset + done, left)
            elif place.fault == CLOSED:
                window.counts["closed"] += (left - 1) // width
                return
            part = data[done : done + place.length]
            if place.view is not None:
                place.view[:] = part
                note_far(place, Kind.DMA_WRITE, part, self._bar)
            elif place.store is not None:
                place.store(part)
            done += len(part)


def note_far(place: Place, kind: Kind, data: bytes | memoryview, bar: int) -> None:
    """Log an access through a window in the peer's log, with the address on the peer's side."""
    if place.far is not None:
        bus, address = place.far
        bus.note_dma(kind, address, len(data), data, What.WINDOW, bar)
