"""ICM: the device's own address space, backed by pages the guest lends it.

Only the MTT and the dMPT table are touched by the driver, so only these are read or written here;
every other context lives in the device (Linux `mlx4/icm.c`, `mlx4/main.c: mlx4_init_icm`).
"""

from __future__ import annotations

import sys
from array import array

from device.hca.command import CommandError, Status
from device.layout.buslog import What
from device.pci.bus import DmaError, HostBus, Run

PAGE_SHIFT = 12
PAGE = 1 << PAGE_SHIFT
MTT_ENTRY = 8
MTT_PRESENT = 1


class IcmError(CommandError):
    """A part of ICM that the guest has not mapped, or mapped to no memory."""

    def __init__(self, virtual: int) -> None:
        super().__init__(Status.ICM_ERROR, f"ICM {virtual:#x} is not mapped")
        self.virtual = virtual


class Icm:
    """The page map of one HCA: ICM page number to guest-physical page address."""

    def __init__(self, bus: HostBus) -> None:
        self._bus = bus
        self._pages: dict[int, int] = {}
        self.mtt_base = 0
        self.dmpt_base = 0

    def reset(self) -> None:
        """Forget every mapping."""
        self._pages.clear()
        self.mtt_base = 0
        self.dmpt_base = 0

    @property
    def mapped_pages(self) -> int:
        """How many pages the guest lends now."""
        return len(self._pages)

    def map(self, virtual: int, physical: int, log_pages: int) -> None:
        """Map 2**`log_pages` pages; the last mapping wins, any address is welcome.

        The driver maps the EQ context table beyond the size it announced.
        """
        first = virtual >> PAGE_SHIFT
        for index in range(1 << log_pages):
            self._pages[first + index] = physical + (index << PAGE_SHIFT)

    def unmap(self, virtual: int, pages: int) -> None:
        """Drop `pages` pages; absent ones are fine, the driver always says 64."""
        first = virtual >> PAGE_SHIFT
        if pages > len(self._pages):
            for page in [page for page in self._pages if first <= page < first + pages]:
                del self._pages[page]
            return
        for page in range(first, first + pages):
            self._pages.pop(page, None)

    def runs(self, virtual: int, length: int) -> list[Run]:
        """Guest-physical runs behind a stretch of ICM, neighbours joined; raises `IcmError`."""
        runs: list[Run] = []
        end = virtual + length
        while virtual < end:
            page = self._pages.get(virtual >> PAGE_SHIFT)
            if page is None:
                raise IcmError(virtual)
            inside = virtual & (PAGE - 1)
            part = min(PAGE - inside, end - virtual)
            if runs and runs[-1][0] + runs[-1][1] == page + inside:
                runs[-1] = (runs[-1][0], runs[-1][1] + part)
            else:
                runs.append((page + inside, part))
            virtual += part
        return runs

    def read(self, virtual: int, length: int, what: What, obj: int = 0) -> bytes:
        """Bytes of ICM; raises `IcmError`."""
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

    def read_mtt(self, offset: int, count: int) -> list[int]:
        """`count` page addresses from byte `offset` of the MTT table.

        Raises `IcmError`, and `CommandError` (BAD_PARAM) for an entry that is not present. The
        present bit is gone from the result; block addresses need no further masking.
        """
        start = self.mtt_base + (offset & ~(MTT_ENTRY - 1))
        entries = array("Q", self.read(start, count * MTT_ENTRY, What.MTT))
        if sys.byteorder == "little":
            entries.byteswap()
        for index, entry in enumerate(entries):
            if not entry & MTT_PRESENT:
                raise CommandError(
                    Status.BAD_PARAM, f"MTT entry {index} of {offset:#x} is not present"
                )
        return [entry & ~(MTT_ENTRY - 1) for entry in entries]
