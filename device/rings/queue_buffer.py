"""The buffer of a queue in guest memory: pages used by byte offset, and a count of them."""

from __future__ import annotations

from collections.abc import Sequence

from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.pci.bus import HostBus, Run

MAX_PAGES = 1 << 20
"""Most pages of all queues of an HCA: 40 MiB of the server's memory, 4 GiB of the guest's."""


class PageAccount:
    """A count of the pages of one HCA's rings; software may name one page many times."""

    def __init__(self) -> None:
        self.count = 0

    def admits(self, more: int) -> bool:
        """Return whether `more` pages may be remembered."""
        return self.count + more <= MAX_PAGES


class QueueBuffer:
    """The pages of one queue; `pages` are guest-physical, each `1 << page_shift` bytes.

    The queue begins `start` bytes into the first page; offsets count from there.

    Addresses are cut to whole pages, as hardware does: guest memory comes in whole pages, too, so
    an entry whose offset is a multiple of its size lies within one region. Offsets beyond the
    buffer are a fault of the caller (`IndexError`); memory that vanished raises `DmaError`.
    """

    def __init__(
        self,
        bus: HostBus,
        pages: Sequence[int],
        page_shift: int,
        length: int | None = None,
        account: PageAccount | None = None,
        start: int = 0,
    ) -> None:
        self._account = account
        self._start = start
        self.bus = bus
        self.pages = [page & -1 << page_shift for page in pages]
        self._shift = page_shift
        self._mask = (1 << page_shift) - 1
        self.length = (len(pages) << page_shift) - start if length is None else length
        if account is not None:
            account.count += len(self.pages)

    def __del__(self) -> None:
        if self._account is not None:
            self._account.count -= len(self.pages)

    def address(self, offset: int) -> int:
        """Return the guest-physical address of a byte."""
        offset += self._start
        return self.pages[offset >> self._shift] + (offset & self._mask)

    def runs(self, offset: int, length: int) -> list[Run]:
        """Return the runs of a part of the buffer, physical neighbours joined."""
        runs: list[Run] = []
        end = offset + length
        while offset < end:
            part = min(self.contiguous(offset), end - offset)
            address = self.address(offset)
            if runs and runs[-1][0] + runs[-1][1] == address:
                runs[-1] = (runs[-1][0], runs[-1][1] + part)
            else:
                runs.append((address, part))
            offset += part
        return runs

    def read(self, offset: int, length: int, what: What, obj: int = 0) -> bytes:
        """Return a copy of `length` bytes."""
        place = offset + self._start
        inside = place & self._mask
        if inside + length <= self._mask + 1:
            return self.bus.read(self.pages[place >> self._shift] + inside, length, what, obj)
        return b"".join(
            self.bus.read(address, part, what, obj) for address, part in self.runs(offset, length)
        )

    def write(
        self, offset: int, data: bytes | bytearray | memoryview, what: What, obj: int = 0
    ) -> None:
        """Store bytes in ascending order."""
        place = offset + self._start
        inside = place & self._mask
        if inside + len(data) <= self._mask + 1:
            self.bus.write(self.pages[place >> self._shift] + inside, data, what, obj)
            return
        done = 0
        for address, part in self.runs(offset, len(data)):
            self.bus.write(address, data[done : done + part], what, obj)
            done += part

    def write_entry(self, offset: int, entry: bytes | bytearray, what: What, obj: int = 0) -> None:
        """Store an entry that lies within one page, its last byte (the owner) after all others."""
        address = self.address(offset)
        last = len(entry) - 1
        (view,) = self.bus.views([(address, last + 1)])
        view[:last] = entry[:last]
        view[last] = entry[last]
        self.bus.note_dma(Kind.DMA_WRITE, address, last + 1, bytes(entry), what, obj)

    def contiguous(self, offset: int) -> int:
        """Return the number of bytes from `offset` on that lie in one page."""
        return self._mask + 1 - ((offset + self._start) & self._mask)

    def write_entries(self, offset: int, image: bytes, size: int, what: What, obj: int = 0) -> None:
        """Store entries of `size` bytes that lie within one page, the first one after the others.

        The log has one write for each.
        """
        address = self.address(offset)
        length, last = len(image), size - 1
        views = self.bus.views([(address, length)])
        if len(views) > 1:  # a border of memory regions: at a page, so between two entries
            for start in range(0, length, size):
                self.write_entry(offset + start, image[start : start + size], what, obj)
            return
        view = views[0]
        view[size:] = image[size:]
        view[:last] = image[:last]
        view[last] = image[last]
        note = self.bus.note_dma
        for start in range(0, length, size):
            note(Kind.DMA_WRITE, address + start, size, image[start : start + size], what, obj)
