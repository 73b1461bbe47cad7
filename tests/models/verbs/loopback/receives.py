"""Receive requests of a queue pair, or shared by several."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from bluebridge.guest.verbs import RecvWr, VerbsError
from tests.models.verbs.loopback.network import Network


class ReceiveQueue:
    """Up to `size` requests, counted until their completion is polled."""

    def __init__(self, size: int, sges: int, full: str) -> None:
        self.requests: deque[RecvWr] = deque()
        self._size = size
        self._sges = sges
        self._full = full
        self._used = 0

    def post(self, wrs: RecvWr | Sequence[RecvWr]) -> None:
        """Raises `VerbsError` at the first that does not fit."""
        for wr in (wrs,) if isinstance(wrs, RecvWr) else wrs:
            if self._used >= self._size:
                raise VerbsError(self._full)
            if len(wr.sg_list) > self._sges:
                raise VerbsError(f"{len(wr.sg_list)} pieces, the queue takes {self._sges}")
            self._used += 1
            self.requests.append(RecvWr(wr.wr_id, tuple(wr.sg_list)))

    def retire(self) -> None:
        """A completion was polled."""
        self._used -= 1

    def clear(self) -> None:
        """Forget everything."""
        self.requests.clear()
        self._used = 0


class LoopbackSrq:
    """A shared receive queue; `waiting` are calls that resume whoever lacked a receive."""

    def __init__(self, network: Network, srqn: int, max_wr: int, max_sge: int) -> None:
        self.srqn = srqn
        self.queue = ReceiveQueue(max_wr, max_sge, "the shared receive queue is full")
        self.waiting: list[Callable[[], None]] = []
        self._lock = network.lock

    def post_recv(self, wrs: RecvWr | Sequence[RecvWr]) -> None:
        """Post receive requests; raises `VerbsError` at the first that does not fit."""
        with self._lock:
            try:
                self.queue.post(wrs)
            finally:
                waiting, self.waiting = self.waiting, []
                for resume in waiting:
                    resume()

    def destroy(self) -> None:
        """Nothing is held."""
