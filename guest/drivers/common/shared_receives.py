"""A shared receive queue without its card: free entries, posting, the record of what is posted."""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence
from typing import Final

from bluebridge.guest.bus.byte_order import swap32
from bluebridge.guest.bus.interface import Bus
from bluebridge.guest.errors import VerbsError
from bluebridge.guest.verbs.values import RecvWr

DATA: Final = struct.Struct(">IIQ")
END_OF_LIST: Final = 0x100
"""The key that ends the pieces of a receive: the invalid key of both cards."""
NEXT: Final = struct.Struct(">2xH12x")
"""The head of an entry: which entry is free after it."""
_PAGE: Final = 4096


def log2(value: int) -> int:
    """Return the exponent of the smallest power of two that is not below `value`."""
    return max(0, value - 1).bit_length()


def write_receive(data: memoryview, offset: int, wr: RecvWr, max_sge: int) -> None:
    """Fill the data segments of a receive entry and end the list."""
    for address, length, lkey in wr.sg_list:
        DATA.pack_into(data, offset, length, lkey, address)
        offset += 16
    if len(wr.sg_list) < max_sge:
        DATA.pack_into(data, offset, 0, END_OF_LIST, 0)


class SharedReceives:
    """The entries of a queue of receive requests that several queue pairs take from.

    Free entries form a list linked through the entries themselves; one entry stays unused, as in
    Linux, so that head and tail of that list never meet. `log_most` is the card's limit of
    entries. Raises `VerbsError` for a queue that the card cannot have. Cards set `srqn`, its
    number.
    """

    srqn: int

    def __init__(self, bus: Bus, max_wr: int, max_sge: int, log_most: int) -> None:
        self._log = max_wr.bit_length()
        self.shift = (max(32, 16 + 16 * max_sge) - 1).bit_length()
        if max_wr < 1 or max_sge < 1 or self._log > log_most or self.shift > 11:
            raise VerbsError(f"an SRQ of {max_wr} requests of {max_sge} pieces is not possible")
        self._max_sge = (1 << self.shift) // 16 - 1
        count = 1 << self._log
        self._memory = bus.allocate(max(_PAGE, count << self.shift))
        self.data = self._memory.view
        self._record = bus.allocate(8, 8)
        self.record_word = self._record.view.cast("I")
        for index in range(count):
            NEXT.pack_into(self.data, index << self.shift, (index + 1) & (count - 1))
        self._head, self._tail = 0, count - 1
        self._posted = 0
        self._wr_ids = [0] * count
        self._lock = threading.Lock()

    def post_recv(self, wrs: RecvWr | Sequence[RecvWr]) -> None:
        """Post receive requests; raises `VerbsError` at the first that does not fit."""
        requests = (wrs,) if isinstance(wrs, RecvWr) else wrs
        with self._lock:
            try:
                for wr in requests:
                    self._post(wr)
            finally:
                self.record_word[0] = swap32(self._posted & 0xFFFF)

    def complete(self, index: int) -> int:
        """Take entry `index` back after its completion; returns its wr_id."""
        with self._lock:
            NEXT.pack_into(self.data, self._tail << self.shift, index)
            self._tail = index
            return self._wr_ids[index]

    def _free_memory(self) -> None:
        self.record_word.release()
        self._record.free()
        self._memory.free()

    def _post(self, wr: RecvWr) -> None:
        if len(wr.sg_list) > self._max_sge:
            raise VerbsError(f"{len(wr.sg_list)} pieces, the queue takes {self._max_sge}")
        if self._head == self._tail:
            raise VerbsError("the shared receive queue is full")
        offset = self._head << self.shift
        self._wr_ids[self._head] = wr.wr_id
        (self._head,) = NEXT.unpack_from(self.data, offset)
        write_receive(self.data, offset + 16, wr, self._max_sge)
        self._posted += 1
