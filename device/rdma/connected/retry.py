"""Retransmission: acknowledge timeouts, receivers that are not ready, gaps in the sequence."""

from __future__ import annotations

from collections import deque
from typing import Final

from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.net.roce import PSN_MASK, RNR_TIMER_US, Syndrome, ack_timeout_us
from bluebridge.device.pci.bus import Timer
from bluebridge.device.rdma.connected.sending import ConnectedSender
from bluebridge.device.rdma.pairs.costs import COST_LIMIT
from bluebridge.device.rdma.pairs.queue_pair import QueuePair
from bluebridge.device.rdma.ports.port import Port
from bluebridge.device.rdma.vocabulary import CompletionStatus, PairState
from bluebridge.device.rdma.work import SendWork

HALF: Final = 1 << 23
"""Half of the PSN space: a PSN less than this ahead of another is later, any other is earlier."""

NAK_STATUS: Final = {
    int(Syndrome.NAK_INVALID_REQUEST): CompletionStatus.REMOTE_INVAL_REQ_ERR,
    int(Syndrome.NAK_REMOTE_ACCESS): CompletionStatus.REMOTE_ACCESS_ERR,
    int(Syndrome.NAK_REMOTE_OPERATION): CompletionStatus.REMOTE_OP_ERR,
    int(Syndrome.NAK_INVALID_RD): CompletionStatus.BAD_RESP_ERR,
}
"""Completion status by syndrome of the NAK."""


def packets_of(length: int, mtu: int) -> int:
    """Count the packets that a message of `length` bytes takes; an empty one takes one."""
    return (length + mtu - 1) // mtu or 1


FOREVER: Final = 7
"""RNR retry count that stands for retries without limit."""

MIN_TIMEOUT: Final = 0.001
"""Shortest acknowledge timeout in seconds, since a server that shares its CPU may be late."""

HOLD_SECONDS: Final = 0.001
"""Seconds between offers of a request that met RNR timer code 0.

The code means 655.36 ms, far too long to stand for "no hurry", which is how the RDMA connection
manager uses it. Such a request is offered again every millisecond, or as often as the port's
`OFFER_SECONDS` permit, and a retry counts as used only after the 655.36 ms.
"""

OFFER_SECONDS: Final = 0.00025
"""Seconds per repeated offer, on the average over all waiting queue pairs of a port.

A receiver may ask for one every 10 us, and any number of queue pairs may meet such receivers.
"""

BATCH: Final = 16
"""Number of requests sent again in one turn, before other work of the server."""


class RetryingSender(ConnectedSender):
    """A requester's retry counters and its one timer; `pending` has no answer yet, oldest first.

    `waiting` is true from the decision to send again, or to send a next part, until its turn comes,
    `resending` while requests go out again: nothing else is sent then. `retries` are the
    repetitions of the oldest request after a timeout or a sequence error, `rnr_retries` those
    because the peer had no receive posted.
    """

    def __init__(self, qp: QueuePair) -> None:
        super().__init__(qp)
        self.pending: deque[SendWork] = deque()
        self._timer: Timer | None = None
        self.retries = self.rnr_retries = 0
        self._offered = 0.0  # seconds of offers to a receiver with timer code 0
        self._not_ready: Port | None = None  # the port, while a receiver is not ready
        self._next: int | None = None  # PSN where the next batch goes on
        self.waiting = False
        self.resending = False

    def transmit(self, work: SendWork, *, note: bool) -> None:
        """Send a request, or send it again; `note` logs the DMA reads."""
        raise NotImplementedError

    def fail(self, status: CompletionStatus) -> None:
        """Complete the oldest request in error and flush the rest."""
        raise NotImplementedError

    def _reset_retries(self) -> None:
        """Stop the timer and forget all counts."""
        self._stop_timer()
        self._be_ready()
        self.retries = self.rnr_retries = 0
        self._offered = 0.0
        self._next = None
        self.waiting = False

    def _proceed(self) -> None:
        """Send the next part, or all again, in the next turn of the server's loop."""
        self.waiting = True
        self._timer = self._qp.bus.call_later(0, self._retransmit)

    def _start_timer(self) -> None:
        """Start the acknowledge timer, unless the context sets no timeout or the timer runs."""
        if self._timer is not None or self.waiting or not self._qp.ack_timeout:
            return
        seconds = max(ack_timeout_us(self._qp.ack_timeout) / 1e6, MIN_TIMEOUT)
        self._timer = self._qp.bus.call_later(seconds, self._expired)

    def _expired(self) -> None:
        self._timer = None
        if self.pending and self._alive():
            self._qp.port.diagnostics.add("sq_num_to")
            self._again(Fact.NO_ANSWER)

    def _sequence_error(self) -> None:
        """Send all pending requests again, because the responder misses one."""
        if not self.waiting:
            self._stop_timer()
            self._again(Fact.SEQUENCE_ERROR)

    def _again(self, why: Fact) -> None:
        qp, psn = self._qp, self.pending[0].psn
        if self.retries >= qp.retry_count:
            qp.bus.tell(Fact.RETRIES_USED_UP, qpn=qp.qpn, psn=psn, most=qp.retry_count)
            self.fail(CompletionStatus.TRANSPORT_RETRY_EXC_ERR)
            return
        self.retries += 1
        qp.bus.tell(why, qpn=qp.qpn, psn=psn, retry=self.retries, most=qp.retry_count)
        self._proceed()  # not from here: the answer that brought us may be one of many in a row

    def _receiver_not_ready(self, code: int) -> None:
        """Wait after an RNR NAK with timer code `code`, then send all pending requests again."""
        qp = self._qp
        if self.waiting:
            return
        self._stop_timer()
        seconds = RNR_TIMER_US[code] / 1e6
        if code == 0:
            seconds = HOLD_SECONDS
        if code or not self._offered:
            if qp.rnr_retry != FOREVER and self.rnr_retries >= qp.rnr_retry:
                qp.bus.tell(Fact.NOT_READY_USED_UP, qpn=qp.qpn, most=qp.rnr_retry)
                self.fail(CompletionStatus.RNR_RETRY_EXC_ERR)
                return
            self.rnr_retries += 1
            delay, retry = RNR_TIMER_US[code], self.rnr_retries
            qp.bus.tell(Fact.NOT_READY, qpn=qp.qpn, retry=retry, delay=delay, offered=code == 0)
        self.waiting = True
        self._not_ready = qp.port
        self._not_ready.not_ready += 1
        seconds = max(seconds, self._not_ready.not_ready * OFFER_SECONDS)
        if code == 0:
            self._offered += seconds
            if self._offered >= RNR_TIMER_US[0] / 1e6:
                self._offered = 0.0
        self._timer = qp.bus.call_later(seconds, self._retransmit)

    def _be_ready(self) -> None:
        if self._not_ready is not None:
            self._not_ready.not_ready -= 1
            self._not_ready = None

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _alive(self) -> bool:
        return self._qp.state in (PairState.RTS, PairState.SQD)

    def _retransmit(self) -> None:
        """Send everything pending again, batch by batch, until one meets an obstacle."""
        qp = self._qp
        self._timer = None
        self._be_ready()
        self.waiting = False
        qp.spent = 0
        self.resending = True
        try:
            following = self._batch()
        finally:
            self.resending = False
        if following is not None:
            self._next = following
            self._proceed()
        elif self._alive():
            if self.pending:
                self._start_timer()
            if not self.waiting and qp.sq is not None:
                qp.sq.run()

    def _batch(self) -> int | None:
        """Send up to `BATCH` requests again; returns the PSN of the next one due, or None."""
        qp = self._qp
        start, self._next = self._next, None
        sent = 0
        for work in list(self.pending):
            if self.waiting or not self._alive() or work.status:
                return None
            if start is not None and _before(work.psn, start):
                continue  # an earlier batch
            if not self.pending or _before(work.psn, self.pending[0].psn):
                continue  # answered by now
            if sent == BATCH or qp.spent >= COST_LIMIT:
                return work.psn
            self.transmit(work, note=False)
            if work.status:
                return None  # its memory is gone: it fails in its turn, with all behind it
            sent += 1
        return None


def _before(psn: int, other: int) -> bool:
    return (psn - other) & PSN_MASK >= HALF
