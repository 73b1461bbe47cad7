"""Buffers of queues from the lists of pages that commands carry."""

from __future__ import annotations

from struct import unpack_from
from typing import Final

from bluebridge.device.layout.mlx5.commands import Status
from bluebridge.device.layout.mlx5.contexts import LOG_PAGE_PARTS, PAGE_SHIFT
from bluebridge.device.mlx5.settings.refused import Refused
from bluebridge.device.pci.bus import HostBus
from bluebridge.device.rings.queue_buffer import PageAccount, QueueBuffer

MAX_PAGE_SHIFT: Final = 31


class PageLists:
    """The finder of the rings that software describes to one adapter, with a limit on pages."""

    def __init__(self, bus: HostBus) -> None:
        self._bus = bus
        self._account = PageAccount()

    @property
    def count(self) -> int:
        """The number of pages of all rings that exist."""
        return self._account.count

    def reset(self) -> None:
        """Start the count of pages anew: all rings are forgotten, even if not yet freed."""
        self._account = PageAccount()

    def ring(self, pages: bytes, log_page_size: int, length: int, offset: int) -> QueueBuffer:
        """Return the ring of `length` bytes that contexts describe; raises `Refused` as `buffer`.

        Pages have 4 KiB times two to the power of `log_page_size`, and the ring begins `offset`
        64ths of a page into the first one.
        """
        shift = log_page_size + PAGE_SHIFT
        return self.buffer(pages, shift, length, offset << shift >> LOG_PAGE_PARTS)

    def buffer(self, pages: bytes, shift: int, length: int, start: int = 0) -> QueueBuffer:
        """Return the ring of `length` bytes that begins `start` bytes into the first page.

        `pages` are big-endian addresses of pages of `1 << shift` bytes, whose low bits say
        nothing. Raises `Refused`: BAD_PARAM for a list that is too short, LIM_ERR for too many.
        """
        if not 12 <= shift <= MAX_PAGE_SHIFT:
            raise Refused(Status.BAD_PARAM, f"page shift {shift}")
        count = (start + length + (1 << shift) - 1) >> shift
        if len(pages) < 8 * count:
            raise Refused(Status.BAD_PARAM, f"{len(pages) // 8} pages, {count} are needed")
        if not self._account.admits(count):
            raise Refused(Status.LIM_ERR, f"no room for {count} pages more")
        addresses = unpack_from(f">{count}Q", pages)
        return QueueBuffer(self._bus, addresses, shift, length, self._account, start)
