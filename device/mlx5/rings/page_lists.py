"""Buffers of queues from the lists of pages that commands carry, or from memory of users."""

from __future__ import annotations

from struct import unpack_from
from typing import Final, NamedTuple

from bluebridge.device.layout.fields import Struct
from bluebridge.device.layout.mlx5.commands import Status
from bluebridge.device.layout.mlx5.contexts import LOG_PAGE_PARTS, PAGE_SHIFT
from bluebridge.device.mlx5.rings.user_memory import Part, UserMemory
from bluebridge.device.mlx5.settings.refused import Refused
from bluebridge.device.pci.bus import HostBus
from bluebridge.device.rings.queue_buffer import PageAccount, QueueBuffer

MAX_PAGE_SHIFT: Final = 31
RECORD_BYTES: Final = 8


class Place(NamedTuple):
    """Where a ring is: pages of `1 << shift` bytes, and its first byte in them."""

    pages: bytes
    shift: int
    start: int


class Ring(NamedTuple):
    """The buffer of a queue, and the address of its doorbell record."""

    buffer: QueueBuffer
    record: int


class PageLists:
    """The finder of the rings that software describes to one adapter, with a limit on pages."""

    def __init__(self, bus: HostBus) -> None:
        self._bus = bus
        self._account = PageAccount()
        self.users = UserMemory()

    @property
    def count(self) -> int:
        """The number of pages of all rings that exist."""
        return self._account.count

    def reset(self) -> None:
        """Start the count of pages anew: all rings are forgotten, even if not yet freed."""
        self._account = PageAccount()
        self.users.reset()

    def ring(self, pages: bytes, log_page_size: int, length: int, offset: int) -> QueueBuffer:
        """Return the ring of `length` bytes that contexts describe; raises `Refused` as `buffer`.

        Pages have 4 KiB times two to the power of `log_page_size`, and the ring begins `offset`
        64ths of a page into the first one.
        """
        shift = log_page_size + PAGE_SHIFT
        return self.buffer(Place(pages, shift, offset << shift >> LOG_PAGE_PARTS), length)

    def buffer(self, place: Place, length: int, skip: int = 0) -> QueueBuffer:
        """Return the ring of `length` bytes, `skip` bytes behind the first one of a place.

        Pages are big-endian addresses of pages of `1 << shift` bytes, whose low bits say
        nothing. Raises `Refused`: BAD_PARAM for a list that is too short, LIM_ERR for too many.
        """
        pages, shift, start = place.pages, place.shift, place.start + skip
        if not 12 <= shift <= MAX_PAGE_SHIFT:
            raise Refused(Status.BAD_PARAM, f"page shift {shift}")
        pages, start = pages[8 * (start >> shift) :], start & ((1 << shift) - 1)
        count = (start + length + (1 << shift) - 1) >> shift
        if len(pages) < 8 * count:
            raise Refused(Status.BAD_PARAM, f"{len(pages) // 8} pages, {count} are needed")
        if not self._account.admits(count):
            raise Refused(Status.LIM_ERR, f"no room for {count} pages more")
        addresses = unpack_from(f">{count}Q", pages)
        return QueueBuffer(self._bus, addresses, shift, length, self._account, start)

    def place(
        self,
        table: Struct,
        data: bytes,
        listed: bytes,
        log_page_size: int,
        offset: int,
        at: int = 0,
    ) -> Place:
        """Return where a command puts a ring; raises `Refused` (BAD_RES) for no memory of a user.

        Fields of `table`, whose structure begins at `at` in `data`, may name such memory. Otherwise
        the ring is in the pages of a list, as for `ring`.
        """
        if not table.get(data, "ring_umem_valid", at):
            shift = log_page_size + PAGE_SHIFT
            return Place(listed, shift, offset << shift >> LOG_PAGE_PARTS)
        memory = self.users.use(table.get(data, "ring_umem", at), Part.RING)
        start = memory.start + table.get(data, "ring_umem_offset", at)
        return Place(memory.pages, memory.shift, start)

    def record(self, table: Struct, context: bytes, at: int = 0) -> int:
        """Return the address of a queue's doorbell record; raises `Refused` as `place`.

        The context, which begins at `at`, has it, or its offset in memory of a user.
        """
        place = table.get(context, "doorbell_record", at)
        if not table.get(context, "record_umem_valid", at):
            return place
        memory = self.users.use(table.get(context, "record_umem", at), Part.RECORD)
        return memory.address(place, RECORD_BYTES)
