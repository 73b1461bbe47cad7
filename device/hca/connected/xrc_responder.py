"""Extended reliable connections: requests name the SRQ they are for.

A target queue pair has no receive queue and no user of its own: receives, protection domain and
completions are those of the SRQ, which must be in the queue pair's XRC domain (InfiniBand vol. 1,
annex A14; Linux `ib/qp.c: create_qp_common`, `ib/srq.c`, rdma-core `providers/mlx4/cq.c`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bluebridge.device.fabric.messages import Payload, Request, Syndrome
from bluebridge.device.hca.connected.refusals import Nak
from bluebridge.device.hca.connected.responder import Responder
from bluebridge.device.hca.rings.completions import complete_receive, fail_receive
from bluebridge.device.layout.mlx4.eqe import EventType

if TYPE_CHECKING:
    from bluebridge.device.hca.queue_pairs import QueuePair
    from bluebridge.device.hca.rings.receive_queue import ReceiveWqe
    from bluebridge.device.hca.rings.shared_receive_queues import SharedReceiveQueue


class XrcResponder(Responder):
    """The responder of an XRC queue pair; the SRQ changes from request to request."""

    __slots__ = ("_srq",)

    def __init__(self, qp: QueuePair) -> None:
        super().__init__(qp)
        self._srq: SharedReceiveQueue | None = None

    def receive(self, request: Request) -> None:
        """Carry out a request with the rights of the SRQ it names."""
        qp = self._qp
        srq = None if request.srqn is None else qp.hca.srqs.get(request.srqn)
        self._srq = srq if srq is not None and srq.xrcd == qp.xrcd else None
        if self._srq is not None:
            self._pd = self._srq.pd
        super().receive(request)

    def _carry_out(self, request: Request) -> tuple[Payload, int | None]:
        if self._srq is None:
            raise Nak(
                Syndrome.NAK_INVALID_REQUEST,
                EventType.WQ_INVALID_REQUEST,
                f"SRQ {request.srqn:#x} is not in XRC domain {self._qp.xrcd}",
            )
        return super()._carry_out(request)

    def _duplicate(self, request: Request) -> None:
        if self._srq is not None:
            super()._duplicate(request)

    def _receives(self) -> SharedReceiveQueue | None:
        return self._srq

    def _complete_receive(self, wqe: ReceiveWqe, opcode: int, request: Request) -> None:
        """The completion is the SRQ's, and names it where others name the sender."""
        srq = self._srq
        if srq is not None:
            complete_receive(
                self._qp,
                wqe.index,
                opcode,
                request.length,
                request.immediate,
                request.solicited,
                cqn=srq.cqn,
                source=srq.srqn,
            )

    def _fail_receive(self, wqe: ReceiveWqe, status: int) -> None:
        if self._srq is not None:
            fail_receive(self._qp, wqe.index, status, self._srq.cqn)
