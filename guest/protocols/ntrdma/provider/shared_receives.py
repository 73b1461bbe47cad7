"""Shared receive queues: receives dealt to queue pairs, since a peer must know them beforehand.

The queue pair with the fewest receives gets the next one. Until it is used it is that one's, so a
shared queue serves several queue pairs only as well as it has receives for each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from bluebridge.guest.protocols.ntrdma.engine.queue_pair import QueuePair
from bluebridge.guest.protocols.ntrdma.service import Service
from bluebridge.guest.verbs.errors import VerbsError
from bluebridge.guest.verbs.values import RecvWr


class NtrdmaSrq:
    """Up to `max_wr` receives of up to `max_sge` pieces."""

    def __init__(self, service: Service, srqn: int, max_wr: int, max_sge: int) -> None:
        self.srqn = srqn
        self.max_wr, self.max_sge = max_wr, max_sge
        self._service = service
        self._pairs: list[QueuePair] = []
        self._waiting: deque[RecvWr] = deque()

    def attach(self, pair: QueuePair) -> None:
        """A queue pair takes from it; under the lock."""
        self._pairs.append(pair)

    def detach(self, pair: QueuePair) -> None:
        """Serve a queue pair no longer; its unused receives go to the others. Under the lock."""
        if pair in self._pairs:
            self._pairs.remove(pair)
            self.take_back(pair)

    def take_back(self, pair: QueuePair) -> None:
        """A queue pair cannot use its receives any more; under the lock."""
        self._waiting.extendleft(reversed(pair.receives.take_back()))
        self.deal()

    def post_recv(self, wrs: RecvWr | Sequence[RecvWr]) -> None:
        """Post receive requests; raises `VerbsError` at the first that does not fit."""
        with self._service.lock:
            try:
                for wr in (wrs,) if isinstance(wrs, RecvWr) else wrs:
                    self._take(wr)
            finally:
                self.deal()
                self._service.run()

    def deal(self) -> None:
        """Give what waits to queue pairs that can receive; under the lock."""
        able = [pair for pair in self._pairs if pair.receiving]
        while self._waiting and able:
            pair = min(able, key=lambda each: each.receives.outstanding)
            self._service.engine.own.post_receive(pair, self._waiting.popleft())
        for pair in able:
            self._service.engine.own.push_receives(pair)

    def _take(self, wr: RecvWr) -> None:
        used = len(self._waiting) + sum(pair.receives.used for pair in self._pairs)
        if used >= self.max_wr:
            raise VerbsError(f"the shared receive queue of {self.max_wr} entries is full")
        if len(wr.sg_list) > self.max_sge:
            raise VerbsError(f"{len(wr.sg_list)} pieces, the queue takes {self.max_sge}")
        self._waiting.append(RecvWr(wr.wr_id, tuple(wr.sg_list)))

    def destroy(self) -> None:
        """Free the shared receive queue, whose queue pairs are gone."""
