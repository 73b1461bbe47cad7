"""A memory region without its card: its key, its end, the lists of fast registrations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from bluebridge.guest.bus.interface import Bus, DmaMemory
from bluebridge.guest.errors import VerbsError

MAX_FAST_REG_PAGES: Final = 511


class Region(ABC):
    """A memory region that the device has until `close`; `_key` is its key."""

    _key: int
    _alive = True

    @property
    def lkey(self) -> int:
        """The key for local work requests."""
        return self._key

    @property
    def rkey(self) -> int:
        """The key that a peer needs for RDMA to the region."""
        return self._key

    def close(self) -> None:
        """Deregister the region; a second call does nothing."""
        if self._alive:
            self._end()
            self._alive = False

    @abstractmethod
    def _end(self) -> None:
        """Take the region back from the device."""


class FastRegistration(Region):
    """A region that REG_MR work requests fill and LOCAL_INV or a peer's SEND_WITH_INV empties."""

    max_pages: int
    page_list: DmaMemory

    def next_key(self) -> int:
        """Count up the key's low byte for the next REG_MR and return the new key.

        As Linux's ib_update_fast_reg_key.
        """
        self._key = (self._key & 0xFFFFFF00) | ((self._key + 1) & 0xFF)
        return self._key

    def close(self) -> None:
        """Deregister the region; a second call does nothing."""
        if self._alive:
            super().close()
            self.page_list.free()

    def _make_list(self, bus: Bus, max_pages: int) -> None:
        """Allocate the list of pages; raises `VerbsError` for more than an entry can name."""
        if not 1 <= max_pages <= MAX_FAST_REG_PAGES:
            raise VerbsError(f"{max_pages} pages: 1 to {MAX_FAST_REG_PAGES} are possible")
        self.max_pages = max_pages
        # A page of its own: a list given to the device must not cross a page.
        self.page_list = bus.allocate(4096)
