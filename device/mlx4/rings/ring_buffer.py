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
from bluebridge.device.rings import queue_buffer
from bluebridge.device.rings.queue_buffer import PageAccount, QueueBuffer

OWNER_HARDWARE: Final = 0x80
FILL_BYTES: Final = 1 << 16
"""Number of bytes written at a time when a whole queue is filled."""
PORTION_BYTES: Final = 1 << 22
"""Bytes of a queue that are filled in one turn of the loop: a millisecond or two."""


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


class OwnedBuffer(QueueBuffer):
    """The pages of a queue whose entries have an owner bit, which is 1 from the start."""

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

    def buffer(self, mtt_addr: int, page_shift: int, length: int, start: int = 0) -> OwnedBuffer:
        """Return the ring of `length` bytes in pages of `1 << page_shift` from an MTT offset on.

        It begins `start` bytes into the first page.

        The translations are copied: drivers never change them while hardware owns the queue.
        Raises `CommandError`: BAD_PARAM, EXCEED_LIM, or ICM_ERROR when the range is not mapped.
        """
        if not 12 <= page_shift <= 31:
            raise CommandError(Status.BAD_PARAM, f"page shift {page_shift}")
        count = (start + length + (1 << page_shift) - 1) >> page_shift
        if not self._account.admits(count):
            raise CommandError(
                Status.EXCEED_LIM, f"queues of more than {queue_buffer.MAX_PAGES} pages"
            )
        pages = self._icm.read_mtt(mtt_addr, count)
        return OwnedBuffer(self._bus, pages, page_shift, length, self._account, start)
