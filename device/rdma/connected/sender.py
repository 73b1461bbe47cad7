"""The sending half of a connected queue pair: what a `Requester` asks for is carried out.

It feeds the requester with work requests, answers and time, sends its units, and completes what is
done. How a unit travels is said by those that derive from it.
"""

from __future__ import annotations

from time import monotonic_ns
from typing import Final

from bluebridge.device.fabric.interface import Cancellable
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.net.roce import PSN_MASK
from bluebridge.device.pci.bus import DmaError, Timer
from bluebridge.device.rdma.connected.requester import KEEP, STOP, Limits, Requester, Sending
from bluebridge.device.rdma.memory.region import AbsentError, AccessError
from bluebridge.device.rdma.memory.regions import bind
from bluebridge.device.rdma.pairs.costs import COST_LIMIT
from bluebridge.device.rdma.pairs.engines import Outstanding, SendEngine
from bluebridge.device.rdma.pairs.queue_pair import QueuePair
from bluebridge.device.rdma.ports.counters import Trouble
from bluebridge.device.rdma.ports.port import Port
from bluebridge.device.rdma.vocabulary import (
    ATOMICS,
    BIND,
    INVALIDATE,
    LOCAL,
    NOP,
    RELIABLE,
    UNRELIABLE,
    UPDATE,
    AsyncEvent,
    CompletionStatus,
    PairState,
    Role,
)
from bluebridge.device.rdma.work import SendWork, WorkError

BATCH: Final = 16
"""Number of units sent again in one turn, before other work of the server."""

_ALIVE: Final = (PairState.RTS, PairState.SQD)


class ConnectedSender(SendEngine):
    """The requests of one queue pair.

    `_sending`: units go out now, and an answer that comes meanwhile sends none. `_paced`: units may
    have to wait for a rate. `_sent_again` are
    the units that went out again in this turn, `_left` the time at which the last one went, of a
    connection without answers. `_absent` is the request that waits for absent pages.
    """

    def __init__(self, qp: QueuePair) -> None:
        super().__init__()
        self._qp = qp
        self._reliable = qp.role in RELIABLE
        self._xrc = qp.role is Role.XRC
        self._requester: Requester | None = None
        self._limits = Limits(mtu=0, reliable=self._reliable)
        self._timer: Timer | Cancellable | None = None
        self._not_ready: Port | None = None  # the port, while a receiver is not ready
        self._sending = self._paced = False
        self._sent_again = 0
        self._left = 0
        self._absent: SendWork | None = None

    # -- what a network is asked for --------------------------------------------------------------

    def _send_unit(self, requester: Requester, work: SendWork) -> None:
        """Send the unit that was given out; raises `AccessError`, `DmaError`."""
        raise NotImplementedError

    def _may_send(self) -> bool:
        """Return True if the rate lets a unit go; else the engine is called when it does."""
        return True

    # -- SendEngine ---------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        requester = self._requester
        return requester is None or requester.idle

    def outstanding(self) -> Outstanding:
        requester = self._requester
        if requester is None:
            return Outstanding([], 0, 0, False)
        return Outstanding(
            [work.index for work in requester.begun],
            requester.retries,
            requester.rnr_retries,
            requester.state is not Sending.OPEN,
        )

    def execute(self, work: SendWork) -> None:
        """Carry out an entry, at once or when its turn comes."""
        if work.operation not in LOCAL:
            work.status = -self._fault(work)
        self._post(work)

    def refuse(self, index: int, error: WorkError) -> None:
        """Complete an entry that makes no sense in error, after all entries before it."""
        self._tell_refused(index, error)
        work = SendWork(index, NOP)
        work.status = error.status
        self._post(work)

    def blocked(self) -> bool:
        """Return True while the next entry has to wait for answers or for a timer."""
        requester = self._requester
        if requester is None or not requester.blocked:
            return False
        if requester.idle:
            self._take_limits(self._limits)
        self._act(requester)  # it may have waited for another state
        return requester.blocked or self._qp.state is not PairState.RTS

    def abort(self) -> None:
        """Complete all outstanding requests as flushed."""
        requester = self._requester
        flushed = [] if requester is None else [work.index for work in requester.pending]
        self.stop()
        for index in flushed:
            self._qp.completions.fail_send(index, CompletionStatus.WR_FLUSH_ERR)

    def stop(self) -> None:
        """Forget all outstanding requests without completing them, and cancel the timer."""
        self._requester = self._absent = None
        self._cancel_timer()
        self._be_ready()

    # -- sending ------------------------------------------------------------------------------

    def _fault(self, work: SendWork) -> int:
        """Return the status of a request that is never sent, 0 for any other."""
        operation = work.operation
        if not self._reliable and operation not in UNRELIABLE:
            return CompletionStatus.LOCAL_QP_OP_ERR
        if work.length > self._qp.max_message:
            return CompletionStatus.LOCAL_LENGTH_ERR
        if operation in ATOMICS and work.length != work.atomic_size:
            return CompletionStatus.LOCAL_LENGTH_ERR
        return 0

    def _post(self, work: SendWork) -> None:
        requester = self._requester
        if requester is None:
            requester = self._requester = Requester(self._limits, self.next_psn)
        limits, qp = self._limits, self._qp
        if not requester.pending and (
            limits.mtu != qp.mtu
            or limits.timeout != qp.ack_timeout
            or limits.retries != qp.retry_count
            or limits.rnr_retries != qp.rnr_retry
            or limits.reads != qp.read_limit
        ):
            self._take_limits(limits)
        requester.post(work)
        self._act(requester)

    def _take_limits(self, limits: Limits) -> None:
        """Take the limits of the context, which software may have changed."""
        qp = self._qp
        limits.mtu, limits.timeout = qp.mtu, qp.ack_timeout
        limits.retries, limits.rnr_retries = qp.retry_count, qp.rnr_retry
        limits.reads = qp.read_limit

    def _act(self, requester: Requester) -> None:
        """Send what may go out, complete what is done, and set the timer."""
        if self._sending:
            self._complete(requester)
            return
        qp, waits, self._sending = self._qp, False, True
        try:
            while self._requester is requester:
                if requester.done and not self._complete(requester):
                    return
                if self._sent_again >= BATCH or qp.spent >= COST_LIMIT:
                    requester.pause_again()
                waits = self._paced and requester.ready and not self._may_send()
                work = None if waits else requester.next_unit(begin=qp.state is PairState.RTS)
                if work is not None:
                    self._carry_out(requester, work)
                elif not requester.done:
                    break
        finally:
            self._sending = False
        if self._requester is not requester:
            return
        self.next_psn = requester.next_psn
        if waits:
            self._cancel_timer()
            requester.unwatch()
        else:
            self._set_timer(requester)

    def _carry_out(self, requester: Requester, work: SendWork) -> None:
        qp = self._qp
        if not requester.packets:
            status = self._carry_out_locally(work)
            if status:
                requester.break_off(work, CompletionStatus(status))
            else:
                requester.carried_out()
            return
        qp.bus.concern(qp.qpn, work.index)  # it may have waited
        if not self._reliable:
            self._left = monotonic_ns()
        elif not requester.first:
            self._sent_again += requester.packets
        try:
            self._send_unit(requester, work)
        except (AccessError, DmaError) as error:
            if self._awaits(error, work, requester.index, brings=work.returns_data):
                requester.suspend(work)
                return
            self._tell_refused(work.index, error)
            requester.break_off(work, CompletionStatus.LOCAL_PROT_ERR)

    def _awaits(self, error: Exception, work: SendWork, index: int, *, brings: bool) -> bool:
        """Return True if pages that a unit of a request needs are absent and will come."""
        if not isinstance(error, AbsentError):
            return False
        done = index * self._limits.mtu
        if not self._qp.paging.for_send(work.index, brings=brings, done=done):
            return False
        self._absent = work
        return True

    def _comes_again(
        self, requester: Requester, work: SendWork, psn: int, error: Exception
    ) -> bool:
        """Return True if an answer that cannot be stored will be asked for again: for pages."""
        if not self._awaits(error, work, (psn - work.psn) & PSN_MASK, brings=True):
            return False
        requester.suspend_answer()
        return True

    def resume(self, *, failed: bool) -> None:
        """Go on with the request whose pages were absent, or fail it in its turn."""
        requester, work, self._absent = self._requester, self._absent, None
        if requester is None or work is None or self._qp.state not in _ALIVE:
            return
        if failed and work in requester.pending:
            work.status = CompletionStatus.LOCAL_PROT_ERR
        blocked = requester.blocked
        requester.resume()
        self._act(requester)
        self._go_on(blocked)

    def _complete(self, requester: Requester) -> bool:
        """Complete what is done; returns False if the queue pair has failed."""
        failed = False
        completions = self._qp.completions
        while requester.done and self._requester is requester:
            work = requester.done.popleft()
            if work.status:
                failed = True
                completions.fail_send(work.index, CompletionStatus(work.status))
            elif work.signalled:
                left = 0 if work.operation in LOCAL else self._left
                completions.complete_send(work.index, work.operation, work.length, left)
        if failed and self._requester is requester:
            self.next_psn = requester.next_psn
            self._qp.enter_send_error()
        return not failed

    def _go_on(self, blocked: bool) -> None:
        """Carry out entries that waited while the requester was `blocked`, if it is not now."""
        qp, requester = self._qp, self._requester
        if qp.state is PairState.RTS:
            if blocked and qp.sq is not None and (requester is None or not requester.blocked):
                qp.sq.run()
        elif qp.state is PairState.SQD and qp.sqd_event and self.idle:
            qp.sqd_event = False
            qp.completions.event(AsyncEvent.SQ_DRAINED)

    # -- time -----------------------------------------------------------------------------------

    def _set_timer(self, requester: Requester) -> None:
        seconds = requester.watch()
        if seconds == KEEP:
            return
        self._cancel_timer()
        if self._not_ready is not None and requester.state is not Sending.NOT_READY:
            self._be_ready()
        if seconds != STOP:
            self._timer = self._qp.bus.call_later(seconds, self._expired)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expired(self) -> None:
        """Act on the timer, on an acknowledge time-out once what is late has arrived.

        Requests or answers may wait in the inbox of a port, since the loop is behind: that is no
        loss. An answer that comes out of it cancels the time-out.
        """
        self._timer = None
        requester = self._requester
        if requester is not None and requester.state is Sending.OPEN:
            self._timer = self._qp.port.settle(self._overdue)
        if self._timer is None:
            self._overdue()

    def _overdue(self) -> None:
        self._timer = None
        self._be_ready()
        qp, requester = self._qp, self._requester
        if requester is None or qp.state not in _ALIVE:
            return
        if requester.state is Sending.OPEN:
            qp.diagnostics.add(Trouble.TIMED_OUT)
            self._tell_again(requester, Fact.NO_ANSWER, requester.retries + 1)
        qp.spent = self._sent_again = 0
        blocked = requester.blocked
        requester.expired()
        self._act(requester)
        self._go_on(blocked)

    def _tell_again(self, requester: Requester, why: Fact, retry: int) -> None:
        qp, psn, most = self._qp, requester.oldest, requester.limits.retries
        if retry <= most:
            qp.bus.tell(why, qpn=qp.qpn, psn=psn, retry=retry, most=most)
        else:
            qp.bus.tell(Fact.RETRIES_USED_UP, qpn=qp.qpn, psn=psn, most=most)

    def _be_ready(self) -> None:
        if self._not_ready is not None:
            self._not_ready.not_ready -= 1
            self._not_ready = None

    def _tell_refused(self, index: int, error: Exception) -> None:
        qp = self._qp
        qp.bus.tell(Fact.WORK_REFUSED, qpn=qp.qpn, index=index, reason=str(error))

    # -- operations that stay inside the adapter ------------------------------------------------

    def _carry_out_locally(self, work: SendWork) -> int:
        """Carry out a local entry; returns the status of its failure, 0 on success."""
        qp, wanted = self._qp, work.registration
        if work.operation == NOP:
            return 0
        if not work.whole:
            return CompletionStatus.LOCAL_QP_OP_ERR
        try:
            if work.operation == INVALIDATE:
                qp.regions.invalidate(work.rkey, qp.pd, qpn=qp.qpn)
            elif work.operation == UPDATE:
                if work.update is None:
                    return CompletionStatus.LOCAL_QP_OP_ERR
                work.update()
            elif work.operation == BIND:
                if work.binding is None:
                    return CompletionStatus.LOCAL_QP_OP_ERR
                bind(qp.regions, work.binding, pd=qp.pd, qpn=qp.qpn)
            else:
                if wanted is None or not qp.fast_register:
                    return CompletionStatus.LOCAL_QP_OP_ERR
                qp.regions.fast_register(wanted, qp.pd)
        except (AccessError, DmaError) as error:
            self._tell_refused(work.index, error)
            return CompletionStatus.MW_BIND_ERR
        return 0
