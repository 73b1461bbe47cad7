"""The receives of a queue pair without its card: posting them, retiring them."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from bluebridge.guest.bus.byte_order import swap32
from bluebridge.guest.bus.interface import Bus
from bluebridge.guest.drivers.common.completion_ring import CompletionRing
from bluebridge.guest.drivers.common.shared_receives import SharedReceives, write_receive
from bluebridge.guest.errors import VerbsError
from bluebridge.guest.verbs.transitions import StateChanges
from bluebridge.guest.verbs.values import QpInit, RecvWr

PAGE = 4096


class Receives(StateChanges):
    """The receive queue of a queue pair in `data`, or the `srq` in place of one.

    The base class of queue pairs, so that posting takes no step from one object to another. Before
    its constructor a driver sets the completion queues and where the queue lies: from `_rq_offset`
    on `_rq_count` entries of `1 << _rq_shift` bytes, of which `_most_receives` are used.
    """

    send_cq: CompletionRing
    recv_cq: CompletionRing
    _rq_count: int
    _most_receives: int
    _rq_shift: int
    _rq_offset: int
    _max_recv_sge: int

    def __init__(self, bus: Bus, init: QpInit, srq: SharedReceives | None, length: int) -> None:
        self.type = init.type
        self.srq = srq
        self._memory = bus.allocate(max(PAGE, -(-length // PAGE) * PAGE))
        self.data = self._memory.view
        self._record = bus.allocate(8, 8)
        self._record_words = self._record.view.cast("I")
        self._recv_lock = threading.Lock()
        self._rq_head = self._rq_tail = 0
        self._rq_ids: list[int] = []

    def post_recv(self, wrs: RecvWr | Sequence[RecvWr]) -> None:
        """Post one receive request or several; raises `VerbsError` like `post_send`."""
        requests = (wrs,) if isinstance(wrs, RecvWr) else wrs
        if not self._rq_count:
            raise VerbsError("this queue pair has no receive queue of its own")
        self._recv_lock.acquire()
        try:
            for wr in requests:
                self._receive_one(wr)
        finally:
            self._record_words[0] = swap32(self._rq_head & 0xFFFF)
            self._recv_lock.release()

    def complete_recv(self, index: int) -> int:
        """Retire the oldest receive entry, or SRQ entry `index`; returns its wr_id."""
        if self.srq is not None:
            return self.srq.complete(index)
        tail = self._rq_tail
        self._rq_tail = tail + 1
        return self._rq_ids[tail & (self._rq_count - 1)]

    def return_receive(self, index: int) -> None:
        """Give SRQ entry `index` back, whose completion nobody will read."""
        if self.srq is not None:
            self.srq.complete(index)

    def _clear(self, number: int) -> None:
        """Empty the queues, and drop unread completions, which name the queue pair `number`."""
        self.recv_cq.discard(number)
        if self.send_cq is not self.recv_cq:
            self.send_cq.discard(number)
        self._empty()

    def _empty(self) -> None:
        """Empty the queue, as it must be on leaving RESET."""
        self._rq_head = self._rq_tail = 0
        self._rq_ids = [0] * max(1, self._rq_count)
        self._record_words[0] = self._record_words[1] = 0

    def _free_memory(self) -> None:
        """Free the queues' memory; the device must not know the queue pair any more."""
        self._record_words.release()
        self._record.free()
        self._memory.free()

    def _receive_one(self, wr: RecvWr) -> None:
        head = self._rq_head
        if head - self._rq_tail >= self._most_receives:
            raise VerbsError(f"the receive queue of {self._most_receives} entries is full")
        if len(wr.sg_list) > self._max_recv_sge:
            raise VerbsError(f"{len(wr.sg_list)} pieces, the queue takes {self._max_recv_sge}")
        slot = head & (self._rq_count - 1)
        offset = self._rq_offset + (slot << self._rq_shift)
        write_receive(self.data, offset, wr, self._max_recv_sge)
        self._rq_ids[slot] = wr.wr_id
        self._rq_head = head + 1
