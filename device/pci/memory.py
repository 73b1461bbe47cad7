"""Guest memory as a device accesses it: bus addresses are mapped to bytes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from bluebridge.device import pieces
from bluebridge.device.pci.bus import DmaError, Run

PAGE_BYTES = 4096


class GuestMemory:
    """Regions of guest memory, sorted by bus address; they never overlap.

    Lookups remember the region of the last hit, which is nearly always the right one.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._regions: list[memoryview] = []
        self._whole: dict[int, memoryview] = {}  # all regions, while pages are refused
        self._refused: set[int] = set()
        self._low = 0
        self._high = 0
        self._view = memoryview(bytearray())

    def add(self, address: int, view: memoryview) -> None:
        """Add a region at bus address `address`; `view` is writable and of format B."""
        if self._refused:
            self._whole[address] = view
            self._carve()
            return
        index = bisect_left(self._starts, address)
        self._starts.insert(index, address)
        self._regions.insert(index, view)
        self._forget()

    def remove(self, address: int) -> None:
        """Remove the region that starts at `address`; unknown ones are ignored."""
        if self._refused:
            # Pieces around a refused page do not tell which region they are of.
            self._whole.pop(address, None)
            self._carve()
            return
        index = bisect_left(self._starts, address)
        if index < len(self._starts) and self._starts[index] == address:
            del self._starts[index], self._regions[index]
        self._forget()

    def clear(self) -> None:
        """Remove all regions."""
        self._starts.clear()
        self._regions.clear()
        self._whole.clear()
        self._forget()

    def refuse(self, page: int, *, refused: bool) -> None:
        """Take the page of 4 KiB at `page` out of all regions, or put it back."""
        if not self._refused:
            self._whole = dict(zip(self._starts, self._regions, strict=True))
        (self._refused.add if refused else self._refused.discard)(page)
        self._carve()

    def _carve(self) -> None:
        """Make the regions anew from the whole ones, without the pages that are refused."""
        self._starts, self._regions = [], []
        for start, view in sorted(self._whole.items()):
            end, at = start + len(view), start
            for page in sorted(self._refused):
                if at < page + PAGE_BYTES and page < end:
                    self._add_piece(at, view[at - start : max(page - start, 0)])
                    at = page + PAGE_BYTES
            if at < end:
                self._add_piece(at, view[at - start :])
        self._forget()

    def _add_piece(self, address: int, view: memoryview) -> None:
        if len(view):
            self._starts.append(address)
            self._regions.append(view)

    def _forget(self) -> None:
        # The region that was used last may be the one that has gone.
        self._low, self._high, self._view = 0, 0, memoryview(bytearray())

    def _find(self, address: int, length: int) -> None:
        """Make the region that holds `address` the current one; raises `DmaError` without one."""
        if not self._holds(address):
            raise DmaError(address, length)

    def _holds(self, address: int) -> bool:
        """Whether a region holds `address`; if so, it becomes the current one."""
        index = bisect_right(self._starts, address) - 1
        if index < 0:
            return False
        start = self._starts[index]
        view = self._regions[index]
        if address >= start + len(view):
            return False
        self._low, self._high, self._view = start, start + len(view), view
        return True

    def view(self, address: int, length: int) -> memoryview:
        """Return a writable view of memory within one region; raises `DmaError`."""
        if not (self._low <= address < self._high):
            self._find(address, length)
        offset = address - self._low
        if address + length > self._high:
            raise DmaError(address, length)
        return self._view[offset : offset + length]

    def stretch(self, address: int, length: int) -> memoryview | None:
        """Return a writable view of memory from `address` on, shorter if its region ends.

        None when no region holds `address`.
        """
        if not (self._low <= address < self._high or self._holds(address)):
            return None
        offset = address - self._low
        return self._view[offset : offset + length]

    def views(self, runs: Sequence[Run]) -> Sequence[memoryview]:
        """Return views of all runs, several for a run across regions; raises `DmaError`."""
        # Most accesses are of one run in the region that the access before was in.
        if len(runs) == 1:
            address, length = runs[0]
            if self._low <= address and address + length <= self._high:
                offset = address - self._low
                return [self._view[offset : offset + length]]
        try:
            return pieces.views(self._starts, self._regions, runs)
        except LookupError as error:
            raise DmaError(*error.args) from None

    def read(self, address: int, length: int) -> bytes:
        """Return a copy of guest memory; raises `DmaError`."""
        if self._low <= address and address + length <= self._high:
            offset = address - self._low
            return self._view[offset : offset + length].tobytes()
        return b"".join(self.views([(address, length)]))

    def write(self, address: int, data: bytes | bytearray | memoryview) -> None:
        """Store bytes in ascending order; raises `DmaError` before it stores any."""
        length = len(data)
        if self._low <= address and address + length <= self._high:
            offset = address - self._low
            self._view[offset : offset + length] = data
            return
        start = 0
        for view in self.views([(address, length)]):
            view[:] = data[start : start + len(view)]
            start += len(view)
