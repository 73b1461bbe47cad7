"""Retransmission: acknowledge timeouts, receivers that are not ready, gaps in the sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bluebridge.device.hca.connected.request_tables import HALF, PSN_MASK
from bluebridge.device.hca.rings.send_queue import COST_LIMIT
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.layout.mlx4.contexts import QpState
from bluebridge.device.layout.mlx4.cqe import CompletionStatus
from bluebridge.device.layout.net.roce import RNR_TIMER_US, ack_timeout_us
from bluebridge.device.pci.bus import Timer

if TYPE_CHECKING:
    from bluebridge.device.hca.connected.requester import Requester
    from bluebridge.device.hca.queue_pairs import QueuePair

FOREVER = 7
"""RNR retry count that means without limit."""

MIN_TIMEOUT = 0.001
"""Seconds; shorter acknowledge timeouts mean nothing to a server that shares its CPU."""

HOLD_SECONDS = 0.001
HOLD_POLLS = 655
"""RNR timer code 0 means 655.36 ms, far too long to stand for "no hurry", which is how the RDMA
connection manager uses it. A request that meets it is offered again every millisecond, and only
after as many offers as make up that time a retry counts as used."""


BATCH = 16
"""Requests sent again in one go before other work of the server gets its turn."""


class Retry:
    """The retry counters and the one timer of a requester.

    `waiting` is true from the decision to send again until that is done: nothing else is sent.
    """

    __slots__ = ("_held", "_next", "_qp", "_requester", "_retries", "_rnr", "_timer", "waiting")

    def __init__(self, qp: QueuePair, requester: Requester) -> None:
        self._qp = qp
        self._requester = requester
        self._timer: Timer | None = None
        self._retries = 0
        self._rnr = 0
        self._held = 0  # offers made to a receiver with timer code 0
        self._next: int | None = None  # PSN where the next batch goes on
        self.waiting = False

    def cancel(self) -> None:
        """Stop the timer and forget all counts."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._retries = self._rnr = self._held = 0
        self._next = None
        self.waiting = False

    progress = cancel  # a request was answered: every count starts anew

    def start(self) -> None:
        """Wait for the answer to what was sent; without a timeout in the context, for ever."""
        if self._timer is not None or self.waiting or not self._qp.ack_timeout:
            return
        seconds = max(ack_timeout_us(self._qp.ack_timeout) / 1e6, MIN_TIMEOUT)
        self._timer = self._qp.hca.bus.call_later(seconds, self._expired)

    def _expired(self) -> None:
        self._timer = None
        if self._requester.pending and self._alive():
            self._again(f"no answer, retry {self._retries + 1} of {self._qp.retry_count}")

    def sequence_error(self) -> None:
        """The responder misses a request: send all again that is pending."""
        if not self.waiting:
            self._stop_timer()
            self._again("sequence error, sending again")

    def _again(self, why: str) -> None:
        qp = self._qp
        if self._retries >= qp.retry_count:
            qp.hca.bus.note(Kind.NOTE, f"QP {qp.qpn:#x}: retries are used up", obj=qp.qpn)
            self._requester.fail(CompletionStatus.TRANSPORT_RETRY_EXC_ERR)
            return
        self._retries += 1
        qp.hca.bus.note(Kind.NOTE, f"QP {qp.qpn:#x}: {why}", obj=qp.qpn)
        # not from here: the answer that brought us may be one of many in a row
        self.waiting = True
        self._timer = qp.hca.bus.call_later(0, self._retransmit)

    def not_ready(self, code: int) -> None:
        """An RNR NAK: wait as long as the receiver asked, then send all again."""
        qp = self._qp
        if self.waiting:
            return
        self._stop_timer()
        seconds = RNR_TIMER_US[code] / 1e6
        if code == 0:
            first, self._held = self._held == 0, (self._held + 1) % HOLD_POLLS
            seconds = HOLD_SECONDS
        else:
            first = True
        if first:
            if qp.rnr_retry != FOREVER and self._rnr >= qp.rnr_retry:
                qp.hca.bus.note(Kind.NOTE, f"QP {qp.qpn:#x}: RNR retries are used up", obj=qp.qpn)
                self._requester.fail(CompletionStatus.RNR_RETRY_EXC_ERR)
                return
            self._rnr += 1
            text = f"QP {qp.qpn:#x}: RNR NAK, retry {self._rnr} in {RNR_TIMER_US[code] / 1e3:g} ms"
            text += ", offered every millisecond" if code == 0 else ""
            qp.hca.bus.note(Kind.NOTE, text, obj=qp.qpn)
        self.waiting = True
        self._timer = qp.hca.bus.call_later(seconds, self._retransmit)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _alive(self) -> bool:
        return self._qp.state in (QpState.RTS, QpState.SQD)

    def _retransmit(self) -> None:
        """Send everything pending again, batch by batch, until one meets an obstacle."""
        qp = self._qp
        self._timer = None
        self.waiting = False
        qp.spent = 0
        following = self._batch()
        if following is not None:
            self._next = following
            self.waiting = True
            self._timer = qp.hca.bus.call_later(0, self._retransmit)
        elif self._alive():
            if self._requester.pending:
                self.start()
            if not self.waiting and qp.sq is not None:
                qp.sq.run()

    def _batch(self) -> int | None:
        """Send some requests again; the PSN of the next one that is due, if any."""
        qp, requester = self._qp, self._requester
        start, self._next = self._next, None
        sent = 0
        for wqe in list(requester.pending):
            if self.waiting or not self._alive() or wqe.status:
                return None
            if start is not None and _before(wqe.psn, start):
                continue  # an earlier batch
            if not requester.pending or _before(wqe.psn, requester.pending[0].psn):
                continue  # answered by now
            if sent == BATCH or qp.spent >= COST_LIMIT:
                return wqe.psn
            requester.transmit(wqe, note=False)
            sent += 1
        return None


def _before(psn: int, other: int) -> bool:
    return (psn - other) & PSN_MASK >= HALF
