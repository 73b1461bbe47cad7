"""A requester: what it may send, when its work is complete (InfiniBand vol. 1, 9.7.5, 9.9.2)."""

from __future__ import annotations

from collections import deque

from bluebridge.device.fabric.messages import Request, Response
from bluebridge.device.layout.mlx4.cqe import CompletionStatus
from bluebridge.device.layout.net.roce import (
    ATOMICS,
    PSN_MASK,
    RNR_TIMER_US,
    Op,
    Syndrome,
    ack_timeout_us,
)
from tests.oracle.clauses import holds
from tests.oracle.memory import Fault
from tests.oracle.pair import FLUSHED, PD, Failure, Posted
from tests.oracle.responder import HALF, Responder, data_of
from tests.oracle.work import UNRELIABLE, WRITES, Completion, Work

ALIVE = ("RTS", "SQD")
FOREVER = 7
LATEST = 4
"""So many times its timeout a requester may wait (9.7.6.1.3)."""
SLACK, ROUNDING = 1e-3, 1e-9
"""Seconds by which something may come late, or early."""
KIND = 0x60
"""Of a syndrome: ACK, RNR NAK or NAK."""
STATUS = {
    Syndrome.NAK_INVALID_REQUEST: CompletionStatus.REMOTE_INVAL_REQ_ERR,
    Syndrome.NAK_REMOTE_ACCESS: CompletionStatus.REMOTE_ACCESS_ERR,
    Syndrome.NAK_REMOTE_OPERATION: CompletionStatus.REMOTE_OP_ERR,
}
TRIED_TOO_OFTEN = CompletionStatus.TRANSPORT_RETRY_EXC_ERR


class Requester(Responder):
    """A whole queue pair: the sending half on top of the receiving one.

    `waiting` is the time before which nothing may be sent again, None unless something must be;
    `since` when something was sent again last, or answered, or anything was sent at all.
    """

    retries = rnr_retries = 0
    waiting: float | None = None
    since = 0.0

    def post(self, number: int, work: Work) -> None:
        """Software posts a work request."""
        self.ring.append(Posted(number, work))
        if self.state in ("ERR", "SQER"):
            self.abort()
        self.advance()

    def advance(self) -> None:
        while self.again and self.again[0] not in self.pending:
            self.again.popleft()
        if self.again and self.waiting is None:
            posted = self.again[0]
            posted.failure = posted.failure or self._memory_failure(posted.work)
            if posted.failure is not None:
                self.again.clear()
                self._fail_in_turn()
        while self.ring and self.state == "RTS" and self._must_wait(self.ring[0].work) is None:
            posted = self.ring[0]
            posted.failure = self._failure(posted.work)
            if posted.failure is not None:
                self.pending.append(self.ring.popleft())
                self._fail_in_turn()
            elif isinstance(posted.work.op, Op):
                return  # a message must leave
            else:
                self._complete_send(self.ring.popleft())

    def _must_wait(self, work: Work) -> str | None:
        """Return the clause by which a work request must wait for those before it."""
        if self.waiting is not None or self.again:
            return "9.7 retried requests"
        if any(posted.failure for posted in self.pending):
            return "10.3.1 ERR"
        if work.returns and work.inline:
            return None  # what makes no sense is refused when it is read, and fails in its turn
        if not isinstance(work.op, Op):
            return "10.8.3 local operations" if self.pending else None
        reads = sum(posted.work.returns for posted in self.pending)
        if work.fence and reads:
            return "10.8.3 fence"
        return "9.7 reads under way" if work.returns and reads >= 1 << self.sra_max else None

    def _failure(self, work: Work) -> Failure | None:
        """Return why a work request fails before it is sent; carry out what stays inside."""
        if not isinstance(work.op, Op):
            try:
                self.side.memory.carry_out(work.op, PD, self.qpn)
            except Fault as fault:
                return CompletionStatus.MW_BIND_ERR, str(fault)
            return None
        if work.returns and work.inline:
            return CompletionStatus.LOCAL_QP_OP_ERR, "10.7.2 inline data"
        if not self.reliable and work.op not in UNRELIABLE:
            return CompletionStatus.LOCAL_QP_OP_ERR, "10.7.2 operations of a service"
        if work.length > 1 << self.msg_max or (work.op in ATOMICS and work.length != 8):
            return CompletionStatus.LOCAL_LENGTH_ERR, "9.7 message length"
        return self._memory_failure(work)

    def _memory_failure(self, work: Work) -> Failure | None:
        try:
            if work.returns:
                self.scatter(work.sges, work.length)
            elif work.inline is None:
                self.gather(work.sges)
        except Fault:
            return CompletionStatus.LOCAL_PROT_ERR, "10.6.2 L_Key"
        return None

    # -- messages that leave --------------------------------------------------------------------

    def sends(self, request: Request) -> None:
        """A request leaves: the next one, or one again. Raises `Broken`."""
        self.advance()
        for posted in self.pending:
            if posted.psn == request.psn and posted.failure is None:
                self._sends_again(posted)
                break
        else:
            posted = self._begins(request)
        self._is(posted.work, request)
        if not self.reliable:
            self.pending.remove(posted)
            self._complete_send(posted)

    def _begins(self, request: Request) -> Posted:
        unasked = self.sent.clause or "9.5 ordering"
        holds(self.ring, unasked, f"{request.op.name} was not to be sent")
        outside = "10.3.1 SQD" if self.state == "SQD" else "10.3.1 INIT, RTR"
        holds(self.state == "RTS", outside, f"{request.op.name} begins in {self.state}")
        posted = self.ring.popleft()
        clause = self._must_wait(posted.work)
        holds(clause is None, clause or "", f"{posted} does not wait")
        # On UC a gap is no matter: a request that failed before it was sent has left one.
        posted.psn = self.next_send_psn if self.reliable else request.psn
        holds(request.psn == posted.psn, "9.7 PSN", f"{request.psn:#x}, not {posted.psn:#x}")
        packets = max(1, -(-posted.work.length // (128 << self.mtu)))
        holds(request.packets == packets, "9.7 PSN", f"{request.packets} packets, not {packets}")
        self.next_send_psn = (self.next_send_psn + packets) & PSN_MASK
        if not self.pending:
            self.since = self.side.now()
        self.pending.append(posted)
        return posted

    def _sends_again(self, posted: Posted) -> None:
        holds(self.state in ALIVE, "10.3.1 ERR", f"{posted} again in {self.state}")
        if not self.again and posted is self.pending[0]:
            if self.waiting is None:
                self._times_out()
                holds(self.retries < self.retry_count, "9.9 transport timer", "once too often")
                self.retries += 1
            else:
                early = self.waiting - self.side.now()
                holds(early < ROUNDING, "9.7 RNR retry", f"{posted} again {early:g} s early")
            self.waiting, self.again = None, deque(self.pending)
        in_order = self.again and self.again.popleft() is posted
        holds(in_order, "9.7 retried requests", f"{posted} out of order")
        self.since = self.side.now()

    def _times_out(self) -> None:
        waited, least = self.side.now() - self.since, ack_timeout_us(self.pri_ack_timeout) / 1e6
        holds(waited > least - ROUNDING, "9.7 timeout", f"sent again after {waited:g} s")

    def _is(self, work: Work, request: Request) -> None:
        """A message is what was posted. Raises `Broken`."""
        found = request.op, request.length, request.source_qpn, request.target_qpn
        expected = work.op, work.length, self.qpn, self.peer_qpn
        holds(found == expected, "9.5 ordering", f"{found} instead of {expected}")
        if work.returns or work.op in WRITES:
            aim = request.remote_address, request.rkey
            holds(aim == (work.remote, work.rkey), "9.5 ordering", f"{aim}, not {work}")
        holds(self._memory_failure(work) is None, "10.6.2 L_Key", f"{work} has left")
        if not work.returns:
            data = self.gather(work.sges) if work.inline is None else work.inline
            holds(b"".join(request.payload) == data, "10.6.2 L_Key", f"{work} has other bytes")

    # -- answers --------------------------------------------------------------------------------

    def takes(self, response: Response) -> None:
        """An answer arrives."""
        self.advance()
        syndrome = response.syndrome
        if self.state in ALIVE and self._acknowledges_before(response.psn):
            if not syndrome & KIND:
                self._is_answered(response)
            elif syndrome & KIND == Syndrome.RNR_NAK:
                self._is_not_ready(syndrome & 0x1F)
            elif syndrome == Syndrome.NAK_PSN:
                self._misses("9.9 sequence errors")
            else:
                self._fail((STATUS[Syndrome(syndrome)], "9.9 remote errors"))
        self.has_drained()
        self.advance()

    def _acknowledges_before(self, psn: int) -> bool:
        """Return whether an answer is for the oldest request, now that those before it are done."""
        while self.pending and self.pending[0].psn != psn:
            head = self.pending[0]
            if (psn - head.psn) & PSN_MASK >= HALF or head.failure:
                return False
            if head.work.returns:
                self._misses("9.7 acknowledgements")
                return False
            self._is_done()
        return bool(self.pending)

    def _is_answered(self, response: Response) -> None:
        work, data = self.pending[0].work, data_of(response)
        if work.returns:
            failure = self._memory_failure(work)
            if len(data) != work.length:
                failure = CompletionStatus.BAD_RESP_ERR, "9.7 responses"
            if failure is not None:
                self._fail(failure)
                return
            self.side.memory.write(self.scatter(work.sges, work.length), data)
        self._is_done()

    def _is_done(self) -> None:
        """The oldest request is done: all counts start anew."""
        self.retries = self.rnr_retries = 0
        self.waiting, self.since = None, self.side.now()
        self._complete_send(self.pending.popleft())
        self._fail_in_turn()

    def _misses(self, clause: str) -> None:
        """Something has to come again, which spends a retry."""
        if self.waiting is not None:
            return
        if self.retries >= self.retry_count:
            self._fail((TRIED_TOO_OFTEN, clause))
            return
        self.retries += 1
        self.waiting = self.side.now()
        self.again.clear()

    def _is_not_ready(self, code: int) -> None:
        if self.waiting is not None:
            return
        if self.rnr_retry != FOREVER and self.rnr_retries >= self.rnr_retry:
            self._fail((CompletionStatus.RNR_RETRY_EXC_ERR, "9.7 RNR retry"))
            return
        self.rnr_retries += 1
        self.waiting = self.side.now() + RNR_TIMER_US[code] / 1e6
        self.again.clear()

    # -- completions ----------------------------------------------------------------------------

    def completes(self, found: Completion) -> None:
        """A completion of the send queue is there. Raises `Broken`."""
        self.advance()
        is_head = self.pending and found.number == self.pending[0].number
        if self.sent.clause is None and is_head and found.status:
            self._gives_up()
        self.sent.comes(found)

    def _gives_up(self) -> None:
        """No answer has come: time has passed, or the memory is gone when it is to come again."""
        if self.waiting is None:
            self._times_out()
        failure = self._memory_failure(self.pending[0].work)
        if self.waiting is None and self.retries >= self.retry_count:
            failure = TRIED_TOO_OFTEN, "9.9 transport timer"
        if failure is not None:
            self._fail(failure)

    def _complete_send(self, posted: Posted) -> None:
        work = posted.work
        if work.signalled:
            inside = not isinstance(work.op, Op)
            kind, length = (type(work.op), 0) if inside else (work.op, work.length)
            self.sent.add(Completion(posted.number, 0, kind, length), "10.8.2 unsignalled")  # type: ignore[arg-type]

    def _fail_in_turn(self) -> None:
        if self.pending and self.pending[0].failure is not None:
            self._fail(self.pending[0].failure)

    def _fail(self, failure: Failure) -> None:
        """The oldest request fails: all is flushed, of UC only what was to be sent."""
        status, clause = failure
        self.sent.add(Completion(self.pending.popleft().number, int(status)), clause)
        if self.reliable:
            self.enter_error()
        else:
            self.state = "SQER"
            self.abort()

    def abort(self) -> None:
        clause = "10.3.1 SQEr" if self.state == "SQER" else "10.3.1 ERR"
        for posted in (*self.pending, *self.ring):
            self.sent.add(Completion(posted.number, FLUSHED), clause)
        for queue in (self.pending, self.ring, self.again):
            queue.clear()
        self.waiting = None
        self.retries = self.rnr_retries = 0

    def rests(self, state: str) -> None:
        self.advance()
        super().rests(state)
        if self.ring and self.state == "RTS":
            holds(self._must_wait(self.ring[0].work), "9.5 ordering", f"{self.ring[0]} waits")
        if self.pending and self.state in ALIVE:
            latest = self.since + LATEST * ack_timeout_us(self.pri_ack_timeout) / 1e6
            clause = "9.7 timeout" if self.waiting is None else "9.7 RNR retry"
            latest = latest if self.waiting is None else self.waiting + SLACK
            holds(self.side.now() <= latest, clause, f"{self.pending[0]} waits without end")
