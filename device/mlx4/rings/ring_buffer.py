"""The buffer of a queue in guest memory: pages named by an MTT range, used by byte offset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.mlx4.commands import Status
from bluebridge.device.mlx4.memory.icm import Icm
from bluebridge.device.mlx4.settings.parameters import CommandError
from bluebridge.device.pci.bus import DmaError, HostBus, Run
from bluebridge.device.rdma.memory.scatter_gather import NOTED_RUNS

OWNER_HARDWARE: Final = 0x80
FILL_BYTES: Final = 1 << 16
"""Number of bytes written at a time when a whole queue is filled."""
PORTION_BYTES: Final = 1 << 22
"""Bytes of a queue that are filled in one turn of the loop: a millisecond or two."""
MAX_PAGES = 1 << 20
"""Most pages of all queues of an HCA: 40 MiB of the server's memory, 4 GiB of the guest's."""


class PageAccount:
    """A count of the pages of one HCA's rings; many entries of the MTT may name one page."""

    def __init__(self) -> None:
        self.count = 0

    def check(self, more: int) -> None:
        """Raise `CommandError` (EXCEED_LIM) unless `more` pages may be remembered."""
        if self.count + more > MAX_PAGES:
            raise CommandError(Status.EXCEED_LIM, f"queues of more than {MAX_PAGES} pages")


@lru_cache(maxsize=4)
def _owner_image(entry_bytes: int, owner: int) -> memoryview:
    """Return `FILL_BYTES` of empty entries whose last byte is `owner`."""
    entry = bytes(entry_bytes - 1) + bytes((owner,))
    return memoryview(entry * (FILL_BYTES // entry_bytes))


def _stretches(
    size: int, entry_bytes: int, first: int, following: int
) -> Iterator[tuple[bool, int, int, int]]:
    """Yield the entries from index `first` to before `following` of a ring of `size` entries.

    Each stretch is of one lap: whether a turn of the loop begins with it, so that none has more
    than `PORTION_BYTES`, its offset, its length, and the owner byte of its lap.
    """
    spent = 0
    while first < following:
        slot = first % size
        count = min(following - first, size - slot, PORTION_BYTES // entry_bytes)
        length = count * entry_bytes
        turn = spent + length > PORTION_BYTES
        spent = length if turn else spent + length
        yield turn, slot * entry_bytes, length, OWNER_HARDWARE if first & size else 0
        first += count


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

    def fill_owner(
        self, entry_bytes: int, obj: int = 0, following: int = 0, known: int | None = None
    ) -> Iterator[None]:
        """Give entries to hardware, in portions between which others have turns.

        Drivers hand over zeroed buffers, and which owner bit means "valid" changes with each lap.
        So the entries are left as if hardware had written all of them before index `following`:
        software sees none until its own is written. With `known`, that is done already for the
        indices before it. Raises `CommandError` (BAD_PARAM) before a byte moves when a page is no
        guest memory. The log has the first `NOTED_RUNS` pieces of memory, and the others as one.
        """
        size = self.length // entry_bytes
        first = following - size if known is None else max(known, following - size)
        stretches = list(_stretches(size, entry_bytes, first, following))
        for turn, offset, length, _ in stretches:
            if turn:
                yield
            self._portion(offset, length, obj)
        unnoted: list[Run] = []
        sample = _owner_image(entry_bytes, OWNER_HARDWARE)[:entry_bytes]
        left = NOTED_RUNS
        for turn, offset, length, owner in stretches:
            if turn:
                yield
            image = _owner_image(entry_bytes, owner)
            runs, views = self._portion(offset, length, obj)
            for view in views:  # more than there are runs where regions of guest memory meet
                for at in range(0, len(view), FILL_BYTES):
                    part = view[at : at + FILL_BYTES]
                    part[:] = image[: len(part)]
            if left:
                sample = image[:entry_bytes]
            for address, count in runs[:left]:
                self._note_fill(address, count, sample, obj)
            unnoted += runs[left:]
            left -= min(left, len(runs))
        if unnoted:
            self._note_together(unnoted, sample, obj)

    def _note_fill(self, address: int, length: int, entry: memoryview, obj: int) -> None:
        self.bus.note_dma(Kind.DMA_WRITE, address, length, entry, What.OWNERSHIP, obj)

    def _note_together(self, runs: Sequence[Run], entry: memoryview, obj: int) -> None:
        """Log `runs` as one transfer from the address of the first one."""
        address, total = runs[0][0], sum(length for _, length in runs)
        self.bus.tell(
            Fact.SCATTERED_RING,
            queue=obj,
            pieces=NOTED_RUNS + len(runs),
            rest=len(runs),
            bytes=total,
            first=runs[0][1],
        )
        self._note_fill(address, total, entry, obj)

    def _portion(self, start: int, length: int, obj: int) -> tuple[list[Run], Sequence[memoryview]]:
        """Return runs and views of `length` bytes from `start` on."""
        runs = self.runs(start, length)
        try:
            return runs, self.bus.views(runs)
        except DmaError as error:
            raise CommandError(Status.BAD_PARAM, f"queue {obj:#x}: {error}") from error


class RingPages:
    """The finder of the rings that software describes to one HCA, with a limit on their pages."""

    def __init__(self, bus: HostBus, icm: Icm) -> None:
        self._bus = bus
        self._icm = icm
        self._account = PageAccount()

    @property
    def count(self) -> int:
        """The number of pages of all rings that exist."""
        return self._account.count

    def reset(self) -> None:
        """Start the count of pages anew: all rings are forgotten, even if not yet freed."""
        self._account = PageAccount()

    def buffer(self, mtt_addr: int, page_shift: int, length: int, start: int = 0) -> QueueBuffer:
        """Return the ring of `length` bytes in pages of `1 << page_shift` from an MTT offset on.

        It begins `start` bytes into the first page.

        The translations are copied: drivers never change them while hardware owns the queue.
        Raises `CommandError`: BAD_PARAM, EXCEED_LIM, or ICM_ERROR when the range is not mapped.
        """
        if not 12 <= page_shift <= 31:
            raise CommandError(Status.BAD_PARAM, f"page shift {page_shift}")
        count = (start + length + (1 << page_shift) - 1) >> page_shift
        self._account.check(count)
        pages = self._icm.read_mtt(mtt_addr, count)
        return QueueBuffer(self._bus, pages, page_shift, length, self._account, start)
