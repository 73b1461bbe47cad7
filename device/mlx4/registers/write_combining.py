"""Write combining: stores of 4 or 8 bytes become lines of 64, as a processor sends them.

A BlueFlame page is mapped write-combining. A processor gathers the stores to one line of 64 bytes
and sends it as one write when it is full, or earlier when something closes it: a store to another
line or out of order, a read, an access that orders (a doorbell, a fence), or time. Behind QEMU
each store arrives by itself, so the device does the gathering. What the two systems of the
BlueFlame study store:

    x86     eight ascending stores of 8 bytes for each line (rdma-core `util/mmio.c:
            mmio_memcpy_x64`, Linux `lib/iomap_copy.c: __iowrite64_copy`), 32-bit guests sixteen
            of 4 bytes
    System z one store block of 64 or 128 bytes, one or two lines at once (Linux
            `arch/s390/include/asm/pci_io.h: zpci_memcpy_toio`)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from bluebridge.device.layout.mlx4.uar import BLUEFLAME_LINE

FULL: Final = "it is full"
LAST: Final = BLUEFLAME_LINE - 1


class Line(NamedTuple):
    """The bytes of one write: `data` at `place`, within one line, closed for the given `reason`."""

    place: int
    data: bytes
    reason: str


class OpenLine:
    """The line that is being gathered, which may be empty; places count from the page's start."""

    __slots__ = ("_data", "_end", "_place")

    def __init__(self) -> None:
        self._place = self._end = 0
        self._data = bytearray()

    def store(self, place: int, data: bytes) -> Sequence[Line]:
        """Take a store, which may begin anywhere in its line; returns the lines that it closes."""
        end = place + len(data)
        if place == self._end and self._data and end <= (place | LAST) + 1:
            self._data += data
            self._end = end
            return (self.close(FULL),) if not end & LAST else ()
        if not self._data and len(data) == BLUEFLAME_LINE and not place & LAST:
            return (Line(place, data, FULL),)  # a whole line at once
        return list(self._split(place, data))

    def _split(self, place: int, data: bytes) -> Iterator[Line]:
        while data:
            room = BLUEFLAME_LINE - (place & LAST)
            part, data = data[:room], data[room:]
            if self._data and place != self._end:
                yield self.close(f"a store at {place:#x} does not follow")
            if not self._data:
                self._place = place
            self._data += part
            self._end = place = place + len(part)
            if not place & LAST:
                yield self.close(FULL)

    def so_far(self) -> bytes:
        """Return the bytes gathered so far."""
        return bytes(self._data)

    def close(self, reason: str) -> Line:
        """Empty the line; returns what was gathered, which may be nothing."""
        line = Line(self._place, bytes(self._data), reason)
        self._data.clear()
        return line
