"""The responder of extended reliable connections (XRC), whose requests name an SRQ.

A target queue pair has no receive queue of its own: receives, protection domain and
completions are those of the SRQ, which must be in the queue pair's XRC domain (InfiniBand vol. 1,
annex A14; Linux `ib/qp.c: create_qp_common`, `ib/srq.c`, rdma-core `providers/mlx4/cq.c`).
"""

from __future__ import annotations

from bluebridge.device.fabric.messages import Payload, Request
from bluebridge.device.layout.net.roce import Syndrome
from bluebridge.device.rdma.connected.refusals import Nak
from bluebridge.device.rdma.connected.responder import Responder
from bluebridge.device.rdma.pairs.queue_pair import QueuePair
from bluebridge.device.rdma.pairs.queues import SharedReceiveQueue, SharedReceiveQueues
from bluebridge.device.rdma.vocabulary import AsyncEvent, CompletionStatus
from bluebridge.device.rdma.work import ReceiveWork


class XrcResponder(Responder):
    """The responder of an XRC queue pair; the SRQ changes from request to request."""

    __slots__ = ("_srq", "_srqs")

    def __init__(self, qp: QueuePair, srqs: SharedReceiveQueues) -> None:
        super().__init__(qp)
        self._srqs = srqs
        self._srq: SharedReceiveQueue | None = None

    def receive(self, request: Request) -> None:
        """Carry out a request with the rights of the SRQ it names."""
        srq = None if request.srqn is None else self._srqs.get(request.srqn)
        self._srq = srq if srq is not None and srq.xrcd == self._qp.xrcd else None
        if self._srq is not None:
            self._pd = self._srq.pd
        super().receive(request)

    def _carry_out(self, request: Request) -> tuple[Payload, int | None]:
        if self._srq is None:
            raise Nak(
                Syndrome.NAK_INVALID_REQUEST,
                AsyncEvent.WQ_INVALID_REQUEST,
                f"SRQ {request.srqn:#x} is not in XRC domain {self._qp.xrcd}",
            )
        return super()._carry_out(request)

    def _duplicate(self, request: Request) -> None:
        if self._srq is not None:
            super()._duplicate(request)

    def _receives(self) -> SharedReceiveQueue | None:
        return self._srq

    def _complete_message(self, work: ReceiveWork, request: Request) -> None:
        """Complete a receive in the SRQ's completion queue, with the SRQ's number as source."""
        srq = self._srq
        if srq is not None:
            self._qp.completions.complete_receive(
                work.index,
                request.op,
                request.length,
                srq.srqn,
                request.immediate,
                request.solicited,
                srq.cqn,
            )

    def _fail_receive(self, work: ReceiveWork, status: CompletionStatus) -> None:
        if self._srq is not None:
            self._qp.completions.fail_receive(work.index, status, self._srq.cqn)
