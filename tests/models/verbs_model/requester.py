"""The model's requester: order, completions, retries (InfiniBand vol. 1, 9.7.5 and 9.9.2)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from bluebridge.device.layout.mlx4.cqe import CompletionStatus
from bluebridge.device.layout.mlx4.eqe import EventType
from bluebridge.device.layout.mlx4.wqe import SendOpcode
from bluebridge.device.layout.net.roce import RNR_TIMER_US, Syndrome, ack_timeout_us
from tests.models.verbs_model.responder import PSN_MASK, behind
from tests.models.verbs_model.values import (
    ATOMICS,
    RETURNING,
    UNRELIABLE,
    Answer,
    Bind,
    Completion,
    Fault,
    Invalidate,
    Register,
    Request,
    State,
    Work,
)
from tests.models.verbs_model.world import QueuePair, Side

LOCAL = (SendOpcode.NOP, SendOpcode.FAST_REG_MR, SendOpcode.LOCAL_INVAL, SendOpcode.BIND_MW)
ALIVE = (State.RTS, State.SQD)
FLUSHING = (State.ERR, State.SQER)
FOREVER = 7
KIND = 0x60
STATUS = {
    Syndrome.NAK_INVALID_REQUEST: CompletionStatus.REMOTE_INVAL_REQ_ERR,
    Syndrome.NAK_REMOTE_ACCESS: CompletionStatus.REMOTE_ACCESS_ERR,
    Syndrome.NAK_REMOTE_OPERATION: CompletionStatus.REMOTE_OP_ERR,
}


@dataclass
class Posted:
    """A work request on its way; `status` of one that fails when its turn comes."""

    index: int
    work: Work
    psn: int = 0
    packets: int = 1
    status: int = 0


class Requester(QueuePair):
    """The sending half: `ring` was posted, `pending` was sent; both oldest first."""

    def __init__(self, side: Side, slot: int) -> None:
        super().__init__(side, slot)
        self.ring: deque[Posted] = deque()
        self.pending: deque[Posted] = deque()
        self.send_psn = 0
        self._failing = self._waiting = self._running = False
        self._retries = self._rnr = 0
        self._timer: int | None = None

    def run(self) -> None:
        """Start what may be started; flush where nothing may be."""
        if self._running:
            return
        self._running = True
        while self.ring and self.state is State.RTS and not self._blocked(self.ring[0].work):
            self._start(self.ring.popleft())
        self._running = False
        if self.state in FLUSHING:
            self._flush(self.ring)

    def _flush(self, queue: deque[Posted]) -> None:
        while queue:
            self._complete(queue.popleft(), CompletionStatus.WR_FLUSH_ERR)

    def abort(self) -> None:
        """The queue pair failed: everything is flushed, in order."""
        self._stop()
        self._failing = self._waiting = False
        self._retries = self._rnr = 0
        self._flush(self.pending)
        self._flush(self.ring)

    def forget(self) -> None:
        self._stop()
        self.pending.clear()
        self.ring.clear()

    def _blocked(self, work: Work) -> bool:
        if self._failing or self._waiting:
            return True
        if work.opcode in LOCAL:
            return bool(self.pending)
        reads = sum(sent.work.opcode in RETURNING for sent in self.pending)
        if work.fence and reads:
            return True
        return work.opcode in RETURNING and reads >= self.read_limit

    def _start(self, posted: Posted) -> None:
        status = self._forbids(posted.work)
        if status:
            self.pending.append(posted)
            self._fail_in_turn(posted, status)
        elif posted.work.opcode in LOCAL:
            self._complete(posted)
        else:
            self._number(posted)
            self.pending.append(posted)
            self._transmit(posted)
            if not self.reliable and self.pending:
                self._complete(self.pending.popleft())
            elif self.pending:
                self._start_timer()

    def _number(self, posted: Posted) -> None:
        posted.psn, posted.packets = self.send_psn, max(1, -(-posted.work.length // self.mtu))
        self.send_psn = (self.send_psn + posted.packets) & PSN_MASK

    def _forbids(self, work: Work) -> int:
        """Why a work request fails before anything is sent; 0 when it does not."""
        if work.opcode in LOCAL:
            return self._local(work)
        if work.opcode in RETURNING and work.inline:
            return CompletionStatus.LOCAL_QP_OP_ERR
        if not self.reliable and work.opcode not in UNRELIABLE:
            return CompletionStatus.LOCAL_QP_OP_ERR
        if work.length > self.longest or (work.opcode in ATOMICS and work.length != 8):
            return CompletionStatus.LOCAL_LENGTH_ERR
        return 0

    def _local(self, work: Work) -> int:
        action, protection = work.action, self.side.protection
        try:
            if isinstance(action, Register):
                protection.register(action, self.pd)
            elif isinstance(action, Bind):
                protection.bind(action, self.pd, self.qpn)
            elif isinstance(action, Invalidate):
                protection.invalidate(action.key, self.pd, self.qpn, remote=False)
        except Fault:
            return CompletionStatus.MW_BIND_ERR
        return 0

    def _transmit(self, posted: Posted) -> None:
        work = posted.work
        payload = b""
        try:
            if work.opcode in RETURNING:
                self.scatter(work.sges, work.length)
            elif work.inline is not None:
                payload = work.inline
            else:
                payload = self.gather(work.sges)
        except Fault:
            self._fail_in_turn(posted, CompletionStatus.LOCAL_PROT_ERR)
            return
        answer = self._ask(Request(work, posted.psn, posted.packets, payload))
        if answer is not None:
            self._receive(answer)

    def _ask(self, request: Request) -> Answer | None:
        peer = self.side.peer.pairs.get(self.slot)
        if peer is None or not (self.side.up and self.side.peer.up):
            return None
        answer = peer.respond(request)
        return None if answer is None or self.side.world.loses_answer() else answer

    def _fail_in_turn(self, posted: Posted, status: int) -> None:
        posted.status = status
        self._failing = True
        if self.pending[0] is posted:
            self._fail(status)

    # -- answers --------------------------------------------------------------------------------

    def _receive(self, answer: Answer) -> None:
        if self.state not in ALIVE or not self._acknowledge_before(answer.psn):
            return
        syndrome = answer.syndrome
        if syndrome & KIND == Syndrome.RNR_NAK:
            self._not_ready(syndrome & 0x1F)
        elif syndrome == Syndrome.NAK_PSN:
            self._again()
        elif syndrome & KIND:
            self._fail(STATUS[Syndrome(syndrome)])
        else:
            self._answered(answer)
        self._go_on()

    def _acknowledge_before(self, psn: int) -> bool:
        while self.pending and self.pending[0].psn != psn:
            head = self.pending[0]
            if behind(psn, head.psn) or head.status:
                return False
            if head.work.opcode in RETURNING:
                self._again()
                return False
            self._done()
        return bool(self.pending)

    def _answered(self, answer: Answer) -> None:
        work = self.pending[0].work
        if work.opcode in RETURNING:
            try:
                spans = self.scatter(work.sges, work.length)
            except Fault:
                self._fail(CompletionStatus.LOCAL_PROT_ERR)
                return
            self.side.memory.write(spans, answer.data)
        self._done()

    def _done(self) -> None:
        """The oldest request is done: all counts start anew."""
        self._stop()
        self._waiting = False
        self._retries = self._rnr = 0
        self._complete(self.pending.popleft())
        if self.pending and self.pending[0].status:
            self._fail(self.pending[0].status)

    def _fail(self, status: int) -> None:
        self._complete(self.pending.popleft(), status)
        self.fail_sends()

    def _complete(self, posted: Posted, status: int = 0) -> None:
        work = posted.work
        if status:
            self.tell(Completion(True, posted.index, status))
        elif work.signalled:
            length = 0 if work.opcode in LOCAL else work.length
            self.tell(Completion(True, posted.index, 0, work.opcode, length))

    def _go_on(self) -> None:
        if self.state is State.RTS:
            if self.pending:
                self._start_timer()
            self.run()
        elif self.state is State.SQD and not self.pending and self.drain_event:
            self.drain_event = False
            self.event(EventType.SQ_DRAINED)

    # -- time -----------------------------------------------------------------------------------

    def _stop(self) -> None:
        if self._timer is not None:
            self.side.world.cancel(self._timer)
            self._timer = None

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        self._timer = self.side.world.later(self.side.name, seconds, action)

    def _start_timer(self) -> None:
        if self._timer is None and not self._waiting:
            self._later(ack_timeout_us(self.timeout) / 1e6, self._expired)

    def _expired(self) -> None:
        self._timer = None
        if self.pending and self.state in ALIVE:
            self._again()

    def _again(self) -> None:
        """No answer, or a gap: a retry is spent."""
        if self._waiting:
            return
        self._stop()
        if self._retries >= self.retry_count:
            self._fail(CompletionStatus.TRANSPORT_RETRY_EXC_ERR)
            return
        self._retries += 1
        self._waiting = True
        self._later(0, self._resend)

    def _not_ready(self, code: int) -> None:
        if self._waiting:
            return
        self._stop()
        if self.rnr_retry != FOREVER and self._rnr >= self.rnr_retry:
            self._fail(CompletionStatus.RNR_RETRY_EXC_ERR)
            return
        self._rnr += 1
        self._waiting = True
        self._later(RNR_TIMER_US[code] / 1e6, self._resend)

    def _resend(self) -> None:
        """All that is pending goes out again before anything new."""
        self._timer = None
        self._waiting, self._running = False, True
        for posted in list(self.pending):
            if self._waiting or self.state not in ALIVE or posted.status:
                break
            if posted in self.pending:
                self._transmit(posted)
        self._running = False
        if self.state in ALIVE and self.pending:
            self._start_timer()
        self.run()
