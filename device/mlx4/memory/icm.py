"""ICM: the device's own address space, backed by pages that the guest lends it.

Only the MTT and the dMPT table are touched by the driver, so only these are read or written here;
every other context lives in the device (Linux `mlx4/icm.c`, `mlx4/main.c: mlx4_init_icm`).
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import Final

from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.mlx4.commands import Status
from bluebridge.device.mlx4.settings.capabilities import MAX_ICM_BYTES
from bluebridge.device.mlx4.settings.parameters import CommandError, Parameters
from bluebridge.device.pci.bus import DmaError, HostBus, Run

FIRMWARE_PAGES: Final = 64
"""Number of 4 KiB pages that QUERY_FW asks for; drivers compute sizes that zero would break."""
AUXILIARY_PAGES: Final = 64
"""Number of 4 KiB pages that SET_ICM_SIZE asks for."""

PAGE_SHIFT: Final = 12
PAGE: Final = 1 << PAGE_SHIFT
MTT_ENTRY: Final = 8
MTT_PRESENT: Final = 1
MTT_OFFSET_BITS: Final = 40
BEYOND_SIZE: Final = 16 << 20
"""Bytes that may be mapped beyond the size that SET_ICM_SIZE announced.

Drivers map whole chunks of each table, the last one included (Linux `mlx4/icm.c:
mlx4_init_icm_table`).
"""
MAX_RANGES = 1 << 18
"""Most ranges of lent pages, enough for all tables of a driver page by page."""

_IS_PRESENT: Final = bytes(low & MTT_PRESENT for low in range(256))
_CLEARED: Final = bytes(low & -MTT_ENTRY for low in range(256))


class LentPages:
    """A count of the pages lent to one area, which asks for `wanted`."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self._lent = 0

    def lend(self, pages: int) -> None:
        """Count more pages; raises `CommandError` (EXCEED_LIM) beyond `wanted`."""
        if self._lent + pages > self.wanted:
            raise CommandError(
                Status.EXCEED_LIM, f"{self._lent + pages} pages, {self.wanted} were asked for"
            )
        self._lent += pages

    def take_back(self) -> None:
        """Give all pages back."""
        self._lent = 0


class PageRanges:
    """Disjoint ranges `[start, end)` of one address space, sorted, each with its target address.

    Addresses are in bytes. The last mapping wins; what it covers of earlier ones is gone.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._targets: list[int] = []

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def total(self) -> int:
        """The number of bytes that are mapped."""
        return sum(self._ends) - sum(self._starts)

    def clear(self) -> None:
        """Remove all ranges."""
        self._starts.clear()
        self._ends.clear()
        self._targets.clear()

    def map(self, start: int, length: int, target: int) -> None:
        """Map `length` bytes from `start` to `target`, joined with an adjacent range in front."""
        self.unmap(start, length)
        index = bisect_left(self._starts, start)
        if index and self._ends[index - 1] == start:
            before = self._targets[index - 1] + start - self._starts[index - 1]
            if before == target:
                self._ends[index - 1] = start + length
                return
        self._starts.insert(index, start)
        self._ends.insert(index, start + length)
        self._targets.insert(index, target)

    def unmap(self, start: int, length: int) -> None:
        """Unmap `length` bytes from `start` on; bytes that are not mapped are ignored."""
        end = start + length
        first = bisect_right(self._ends, start)
        last = bisect_left(self._starts, end)
        if first >= last or not length:
            return
        kept: list[tuple[int, int, int]] = []
        if self._starts[first] < start:
            kept.append((self._starts[first], start, self._targets[first]))
        if self._ends[last - 1] > end:
            target = self._targets[last - 1] + end - self._starts[last - 1]
            kept.append((end, self._ends[last - 1], target))
        self._starts[first:last] = [piece[0] for piece in kept]
        self._ends[first:last] = [piece[1] for piece in kept]
        self._targets[first:last] = [piece[2] for piece in kept]

    def find(self, address: int) -> tuple[int, int] | None:
        """Return the target of `address` and the bytes mapped from there on; None if unmapped."""
        index = bisect_right(self._starts, address) - 1
        if index < 0 or address >= self._ends[index]:
            return None
        return (self._targets[index] + address - self._starts[index], self._ends[index] - address)


class IcmError(CommandError):
    """A part of ICM is not mapped by the guest, or is mapped to no memory."""

    def __init__(self, virtual: int) -> None:
        super().__init__(Status.ICM_ERROR, f"ICM {virtual:#x} is not mapped")


class Icm:
    """The page map of one HCA: ICM address to guest-physical address, in whole pages."""

    def __init__(self, bus: HostBus, parameters: Parameters) -> None:
        self._bus = bus
        self._parameters = parameters
        self._pages = PageRanges()
        self._end = MAX_ICM_BYTES

    def reset(self) -> None:
        """Forget every mapping, and the size."""
        self._pages.clear()
        self._end = MAX_ICM_BYTES

    def announce(self, size: int) -> None:
        """Set the number of bytes to map (SET_ICM_SIZE); raises `CommandError` (EXCEED_LIM)."""
        if size > MAX_ICM_BYTES:
            raise CommandError(Status.EXCEED_LIM, f"ICM of {size:#x} bytes")
        self._end = min(size + BEYOND_SIZE, MAX_ICM_BYTES)

    def check(self, virtual: int, log_pages: int) -> None:
        """Raise `CommandError` (EXCEED_LIM) unless 2**`log_pages` pages may be mapped there."""
        if virtual + (PAGE << log_pages) > self._end:
            raise CommandError(Status.EXCEED_LIM, f"ICM {virtual:#x} is beyond its size")

    @property
    def mapped_pages(self) -> int:
        """The number of pages that the guest lends now."""
        return self._pages.total >> PAGE_SHIFT

    def map(self, virtual: int, physical: int, log_pages: int) -> None:
        """Map 2**`log_pages` pages; the last mapping wins, at any address.

        Raises `CommandError` (EXCEED_LIM) when the guest lends its pages in too many pieces.
        """
        if len(self._pages) >= MAX_RANGES:
            raise CommandError(Status.EXCEED_LIM, f"ICM in more than {MAX_RANGES} pieces")
        self._pages.map(virtual, PAGE << log_pages, physical)

    def unmap(self, virtual: int, pages: int) -> None:
        """Unmap `pages` pages; absent ones are ignored, since drivers always name 64."""
        self._pages.unmap(virtual & -PAGE, pages << PAGE_SHIFT)

    def runs(self, virtual: int, length: int) -> list[Run]:
        """Return the guest-physical runs of an ICM range, neighbours joined; raises `IcmError`."""
        runs: list[Run] = []
        end = virtual + length
        while virtual < end:
            found = self._pages.find(virtual)
            if found is None:
                raise IcmError(virtual)
            address, available = found
            part = min(available, end - virtual)
            if runs and runs[-1][0] + runs[-1][1] == address:
                runs[-1] = (runs[-1][0], runs[-1][1] + part)
            else:
                runs.append((address, part))
            virtual += part
        return runs

    def read(self, virtual: int, length: int, what: What, obj: int = 0) -> bytes:
        """Return bytes of ICM; raises `IcmError`."""
        try:
            return b"".join(
                self._bus.read(address, part, what, obj)
                for address, part in self.runs(virtual, length)
            )
        except DmaError as error:
            raise IcmError(virtual) from error

    def write(self, virtual: int, data: bytes, what: What, obj: int = 0) -> None:
        """Store bytes into ICM; raises `IcmError`."""
        try:
            start = 0
            for address, part in self.runs(virtual, len(data)):
                self._bus.write(address, data[start : start + part], what, obj)
                start += part
        except DmaError as error:
            raise IcmError(virtual) from error

    def write_mtt(self, offset: int, entries: bytes) -> None:
        """Store MTT entries unchanged from byte `offset` of the table on; raises `IcmError`.

        Raises `CommandError` (BAD_PARAM) for an offset beyond what a context can name.
        """
        if offset % MTT_ENTRY or offset >> MTT_OFFSET_BITS:
            raise CommandError(Status.BAD_PARAM, f"MTT offset {offset:#x}")
        self.write(self._parameters.mtt_base + offset, entries, What.MTT)

    def read_mtt(self, offset: int, count: int) -> array[int]:
        """Return `count` page addresses from byte `offset` of the MTT table on.

        Raises `IcmError`, and `CommandError` (BAD_PARAM) for an entry that is not present. The
        present bit is gone from the result; block addresses need no further masking.
        """
        start = self._parameters.mtt_base + (offset & ~(MTT_ENTRY - 1))
        table = bytearray(self.read(start, count * MTT_ENTRY, What.MTT))
        low = table[MTT_ENTRY - 1 :: MTT_ENTRY]  # where big-endian entries keep their flags
        absent = low.translate(_IS_PRESENT).find(0)
        if absent >= 0:
            raise CommandError(
                Status.BAD_PARAM, f"MTT entry {absent} of {offset:#x} is not present"
            )
        table[MTT_ENTRY - 1 :: MTT_ENTRY] = low.translate(_CLEARED)
        entries = array("Q", bytes(table))
        if sys.byteorder == "little":
            entries.byteswap()
        return entries
