"""Rows that describe queue pairs and completion, shared receive and event queues.

Each has the context as QUERY_QP and similar commands return it, and further state that is not in a
context.
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
from bluebridge.device.rdma.by_packets.sender import PacketSender
from bluebridge.device.rdma.connected.requester import Requester
from bluebridge.device.rdma.pairs.queue_pair import QueuePair
from bluebridge.device.rdma.queue_pairs import QueuePairs
from bluebridge.device.show.table import Row


class QueuePairTable:
    """The queue pairs of an HCA, by QPN."""

    def __init__(self, qps: QueuePairs) -> None:
        self._qps = qps

    def numbers(self) -> Sequence[int]:
        """Return all QPNs."""
        return self._qps.numbers()

    def find(self, number: int) -> int | None:
        """Return `number` if there is a queue pair of that QPN, else None."""
        return None if self._qps.get(number) is None else number

    def row(self, number: int) -> Row | None:
        """Return context, service, queues and unanswered requests of a queue pair."""
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
    """Return the requests of a connected queue pair that wait for their answer."""
    engine = qp.engine
    if isinstance(engine, PacketSender):
        numbers = engine.unanswered
        retries, rnr_retries, waits = engine.repetitions
        return {
            "unacked": len(numbers),
            "oldest_unacked": numbers[0] if numbers else None,
            "retries": retries,
            "rnr_retries": rnr_retries,
            "waits_to_retry": waits,
        }
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
        """Return all CQNs."""
        return self._cqs.numbers()

    def find(self, number: int) -> int | None:
        """Return `number` if there is a completion queue of that CQN, else None."""
        return None if self._cqs.get(number) is None else number

    def row(self, number: int) -> Row | None:
        """Return the context of a completion queue, and whether it is armed."""
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
        """Return all SRQNs."""
        return self._srqs.numbers()

    def find(self, number: int) -> int | None:
        """Return `number` if there is a shared receive queue of that SRQN, else None."""
        return None if self._srqs.get(number) is None else number

    def row(self, number: int) -> Row | None:
        """Return the context of a shared receive queue, and the position in its list of entries."""
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
        """Return all EQNs."""
        return self._eqs.numbers()

    def find(self, number: int) -> int | None:
        """Return `number` if there is an event queue of that EQN, else None."""
        return None if self._eqs.get(number) is None else number

    def row(self, number: int) -> Row | None:
        """Return the context of an event queue, and the events for which its ring was full."""
        eq = self._eqs.get(number)
        if eq is None:
            return None
        return {
            "eqn": number, "context": self._eqs.query(number).hex(), "size": eq.size,
            "producer": eq.producer, "consumer": eq.consumer, "backlog": len(eq.backlog),
            "overflowed": eq.overflowed,
        }  # fmt: skip
