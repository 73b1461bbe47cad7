"""Common to all requesters, whether their messages travel whole or in packets."""

from __future__ import annotations

from typing import Final

from bluebridge.device.layout.events import Fact
from bluebridge.device.pci.bus import DmaError
from bluebridge.device.rdma.memory.region import AccessError
from bluebridge.device.rdma.memory.regions import bind
from bluebridge.device.rdma.pairs.engines import SendEngine
from bluebridge.device.rdma.pairs.queue_pair import QueuePair
from bluebridge.device.rdma.vocabulary import (
    ATOMICS,
    BIND,
    INVALIDATE,
    NOP,
    RELIABLE,
    UNRELIABLE,
    AsyncEvent,
    CompletionStatus,
    PairState,
)
from bluebridge.device.rdma.work import SendWork

WINDOW: Final = 128
"""Number of requests that may wait for an answer at the same time."""
ATOMIC_SIZE: Final = 8


class ConnectedSender(SendEngine):
    """The base of requesters, which carry out work requests one after another.

    One that must wait is `_held` until those before it are complete; `_stalled`: the walk of the
    ring stopped because of this engine.
    """

    def __init__(self, qp: QueuePair) -> None:
        super().__init__()
        self._qp = qp
        self._reliable = qp.role in RELIABLE
        self._held: SendWork | None = None
        self._stalled = False

    def execute(self, work: SendWork) -> None:
        """Carry out an entry, or hold it when it must wait."""
        if self._must_wait(work):
            self._held = work
        else:
            self._start(work)

    def blocked(self) -> bool:
        """Return True while the next entry has to wait for answers or for a timer."""
        self._stalled = self._is_blocked()
        return self._stalled

    def _must_wait(self, work: SendWork) -> bool:
        raise NotImplementedError

    def _start(self, work: SendWork) -> None:
        raise NotImplementedError

    def _is_blocked(self) -> bool:
        """Return True unless the entry that was held, if any, is carried out."""
        work = self._held
        if work is None:
            return False
        if self._must_wait(work):
            return True
        self._held = None
        self._start(work)
        return self._qp.state is not PairState.RTS

    def _fault(self, work: SendWork) -> int:
        """Return the status of a request that is never sent, 0 for any other."""
        operation = work.operation
        if not self._reliable and operation not in UNRELIABLE:
            return CompletionStatus.LOCAL_QP_OP_ERR
        if work.length > self._qp.max_message:
            return CompletionStatus.LOCAL_LENGTH_ERR
        if operation in ATOMICS and work.length != ATOMIC_SIZE:
            return CompletionStatus.LOCAL_LENGTH_ERR
        return 0

    def _go_on(self) -> None:
        """Carry out entries that waited for an answer that has come."""
        qp = self._qp
        if qp.state is PairState.RTS:
            if self._stalled and qp.sq is not None:
                qp.sq.run()
        elif qp.state is PairState.SQD and self.idle and qp.sqd_event:
            qp.sqd_event = False
            qp.completions.event(AsyncEvent.SQ_DRAINED)

    def _tell_refused(self, index: int, error: Exception) -> None:
        qp = self._qp
        qp.bus.tell(Fact.WORK_REFUSED, qpn=qp.qpn, index=index, reason=str(error))

    # -- operations that stay inside the adapter ------------------------------------------------

    def _carry_out_locally(self, work: SendWork) -> int:
        """Complete a local entry; one that fails is left alone, its status is returned."""
        status = self._local_status(work)
        if not status and work.signalled:
            self._qp.completions.complete_send(work.index, work.operation, 0)
        return status

    def _local_status(self, work: SendWork) -> int:
        """Carry out a local entry; returns the status of its failure, 0 on success."""
        qp, wanted = self._qp, work.registration
        if work.operation == NOP:
            return 0
        if not work.whole:
            return CompletionStatus.LOCAL_QP_OP_ERR
        try:
            if work.operation == INVALIDATE:
                qp.regions.invalidate(work.rkey, qp.pd, qpn=qp.qpn)
            elif work.operation == BIND:
                if work.binding is None:
                    return CompletionStatus.LOCAL_QP_OP_ERR
                bind(qp.regions, work.binding, pd=qp.pd, qpn=qp.qpn)
            else:
                if wanted is None or not qp.fast_register:
                    return CompletionStatus.LOCAL_QP_OP_ERR
                qp.regions.fast_register(wanted, qp.pd, qp.read_pages)
        except (AccessError, DmaError) as error:
            self._tell_refused(work.index, error)
            return CompletionStatus.MW_BIND_ERR
        return 0
