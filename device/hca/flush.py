"""Queue pairs in error: every work request is completed as flushed, later ones too.

Consumers wait for these completions without end (Linux `ib/qp.c: mlx4_ib_drain_rq`), and a post
to a receive queue rings no doorbell: so queue pairs in ERR are polled until 2RST.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from device.hca.completion import fail_receive, post_event
from device.hca.role import DATAGRAMS
from device.layout.mlx4.contexts import QpState
from device.layout.mlx4.cqe import Syndrome
from device.layout.mlx4.eqe import EventType

if TYPE_CHECKING:
    from device.hca.qp import QueuePair

POLL_SECONDS = 0.002
BUDGET = 256
"""Receives flushed in one go."""


def enter_error(qp: QueuePair, event: EventType | None = None) -> None:
    """Put a queue pair into ERR and flush it; `event` tells software why, if it was not asked.

    A completion in error, if there is one, was written before: it comes first.
    """
    if qp.state in (QpState.ERR, QpState.RST):
        return
    qp.set_state(QpState.ERR)
    if event is not None:
        post_event(qp.hca, event, qp.qpn)
    qp.engine.abort()
    if qp.sq is not None:
        qp.sq.run()
    qp.hca.qps.watch(qp)
    poll(qp)


def enter_send_error(qp: QueuePair) -> None:
    """After a failed send: unconnected services flush the send queue only and may go on."""
    if qp.role not in DATAGRAMS:
        enter_error(qp)
    elif qp.state is QpState.RTS:
        qp.set_state(QpState.SQER)
        if qp.sq is not None:
            qp.sq.run()


def poll(qp: QueuePair) -> None:
    """Flush the receives that were posted to a queue pair in ERR, up to a budget."""
    if qp.state is not QpState.ERR:
        return
    if qp.rq is not None:
        left = BUDGET
        while left and qp.rq.waiting():
            fail_receive(qp, qp.rq.drop(), Syndrome.WR_FLUSH_ERR)
            left -= 1
        if not left:
            qp.hca.bus.call_soon(lambda: poll(qp))
    if qp.srqn is not None and not qp.last_wqe_told:
        qp.last_wqe_told = True
        post_event(qp.hca, EventType.SRQ_QP_LAST_WQE, qp.qpn)
