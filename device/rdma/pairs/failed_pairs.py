"""Queue pairs in error: receives that are posted later are completed as flushed, too.

Consumers wait for these completions without end (Linux `ib/qp.c: mlx4_ib_drain_rq`), and a post
to a receive queue rings no doorbell: so the receive queues of pairs in ERR are polled until RST.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from bluebridge.device.pci.bus import HostBus, Timer
from bluebridge.device.rdma.pairs.queue_pair import FLUSH_BUDGET, QueuePair

POLL_SECONDS: Final = 0.002
MAX_POLL_SECONDS: Final = 1.024
LOOKS: Final = 256
"""Number of queue pairs that are polled in one turn."""


class FailedPairs:
    """The queue pairs in ERR of one HCA, which are polled in turn, some at a time.

    A queue pair that failed just now comes first. While nothing is posted to any of
    them, the time between portions doubles, up to `MAX_POLL_SECONDS`.
    """

    def __init__(self, bus: HostBus) -> None:
        self._bus = bus
        self._pairs: OrderedDict[int, QueuePair] = OrderedDict()
        self._timer: Timer | None = None
        self._seconds = POLL_SECONDS
        self._idle = 0  # how many were looked at in vain since one was not

    def __len__(self) -> int:
        return len(self._pairs)

    def add(self, qp: QueuePair) -> None:
        """Flush what is posted to `qp` from now on."""
        self._pairs[qp.qpn] = qp
        self._pairs.move_to_end(qp.qpn, last=False)
        if self._timer is None or self._seconds > POLL_SECONDS:
            self._schedule(POLL_SECONDS)
        self._seconds, self._idle = POLL_SECONDS, 0

    def remove(self, qpn: int) -> None:
        """Forget a queue pair, if it is known."""
        self._pairs.pop(qpn, None)
        if not self._pairs and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def clear(self) -> None:
        """Forget all queue pairs."""
        self._pairs.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._bus.call_later(seconds, self._poll)

    def _poll(self) -> None:
        self._timer = None
        budget = FLUSH_BUDGET
        for _ in range(min(LOOKS, len(self._pairs))):
            qpn, qp = next(iter(self._pairs.items()))
            flushed = qp.flush_receives(budget)
            budget -= flushed
            self._idle = 0 if flushed else self._idle + 1
            if not budget:
                break
            if qpn in self._pairs:  # the completion may have been the end of it
                self._pairs.move_to_end(qpn)
        if not self._pairs:
            return
        if not budget:
            self._schedule(0)
            return
        if budget < FLUSH_BUDGET:
            self._seconds = POLL_SECONDS
        elif self._idle >= len(self._pairs):
            self._seconds, self._idle = min(2 * self._seconds, MAX_POLL_SECONDS), 0
        self._schedule(self._seconds)
