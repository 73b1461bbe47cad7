"""Rows of queue pairs, completion, shared receive and event queues.

Each has its context as QUERY_QP and its like tell it, and beside it what no context holds.
"""

from __future__ import annotations

from collections.abc import Sequence

from bluebridge.device.mlx4.commands.qp_commands import card_state, context_of
from bluebridge.device.mlx4.pairs.hca_pair import HcaPair
from bluebridge.device.mlx4.rings.completion_queues import CompletionQueues
from bluebridge.device.mlx4.rings.event_queues import EventQueues
from bluebridge.device.mlx4.rings.receive_queue import ReceiveRing
from bluebridge.device.mlx4.rings.send_queue import SendRing
from bluebridge.device.mlx4.rings.shared_receive_queues import SharedReceiveRings
from bluebridge.device.rdma.connected.requester import Requester
from bluebridge.device.rdma.pairs.queue_pair import QueuePair
from bluebridge.device.rdma.queue_pairs import QueuePairs
from bluebridge.device.show.table import Row


class QueuePairTable:
    """The queue pairs of an HCA, by QPN."""

    def __init__(self, qps: QueuePairs) -> None:
        self._qps = qps

    def numbers(self) -> Sequence[int]:
        """All QPNs."""
        return self._qps.numbers()

    def find(self, number: int) -> int | None:
        """The QPN itself."""
        return None if self._qps.get(number) is None else number

    def row(self, number: int) -> Row | None:
        """Context, service, queues, and what waits for an answer."""
        qp = self._qps.get(number)
        if not isinstance(qp, HcaPair):
            return None
        row: Row = {
            "lqpn": number,
            "type": qp.role.value,
            "state": card_state(qp).name,
            "context": context_of(qp).hex(),
            **_requests(qp),
        }
        if isinstance(qp.sq, SendRing):
            row["sq"] = {"size": 1 << qp.sq.log_size, "next": qp.sq.index, "rung": qp.sq.rung}
        if isinstance(qp.rq, ReceiveRing):
            row["rq"] = {
                "size": qp.rq.mask + 1, "producer": qp.rq.head, "consumer": qp.rq.index
            }  # fmt: skip
        return row


def _requests(qp: QueuePair) -> Row:
    """Requests of a connected queue pair that wait for their answer."""
    engine = qp.engine
    if not isinstance(engine, Requester):
        return {}
    pending = engine.pending
    return {
        "unacked": len(pending),
        "oldest_unacked": pending[0].index if pending else None,
        "retries": engine.retry.retries,
        "rnr_retries": engine.retry.rnr_retries,
        "waits_to_retry": engine.retry.waiting,
    }


class CompletionQueueTable:
    """The completion queues of an HCA, by CQN."""

    def __init__(self, cqs: CompletionQueues) -> None:
        self._cqs = cqs

    def numbers(self) -> Sequence[int]:
        """All CQNs."""
        return self._cqs.numbers()

    def find(self, number: int) -> int | None:
        """The CQN itself."""
        return None if self._cqs.get(number) is None else number

    def row(self, number: int) -> Row | None:
        """Context, and the request for an event."""
        cq = self._cqs.get(number)
        if cq is None:
            return None
        return {
            "cqn": number, "context": cq.query().hex(), "size": cq.size, "producer": cq.producer,
            "consumer": cq.consumer, "armed": cq.armed, "broken": cq.broken,
        }  # fmt: skip


class SharedReceiveQueueTable:
    """The shared receive queues of an HCA, by SRQN."""

    def __init__(self, srqs: SharedReceiveRings) -> None:
        self._srqs = srqs

    def numbers(self) -> Sequence[int]:
        """All SRQNs."""
        return self._srqs.numbers()

    def find(self, number: int) -> int | None:
        """The SRQN itself."""
        return None if self._srqs.get(number) is None else number

    def row(self, number: int) -> Row | None:
        """Context, and the place in the list of entries."""
        srq = self._srqs.get(number)
        if srq is None:
            return None
        return {
            "srqn": number, "context": srq.query().hex(), "size": 1 << srq.log_size,
            "producer": srq.known, "consumer": srq.consumed, "next_entry": srq.current,
        }  # fmt: skip


class EventQueueTable:
    """The event queues of an HCA, by EQN."""

    def __init__(self, eqs: EventQueues) -> None:
        self._eqs = eqs

    def numbers(self) -> Sequence[int]:
        """All EQNs."""
        return self._eqs.numbers()

    def find(self, number: int) -> int | None:
        """The EQN itself."""
        return None if self._eqs.get(number) is None else number

    def row(self, number: int) -> Row | None:
        """Context, and events that found the ring full."""
        eq = self._eqs.get(number)
        if eq is None:
            return None
        return {
            "eqn": number, "context": self._eqs.query(number).hex(), "size": eq.size,
            "producer": eq.producer, "consumer": eq.consumer, "backlog": len(eq.backlog),
            "overflowed": eq.overflowed,
        }  # fmt: skip
