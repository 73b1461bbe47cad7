"""What the completions of all queues have in common: their completion queue and their events."""

from __future__ import annotations

from typing import Final

from bluebridge.device.layout.mlx5.event_queues import DATA_BYTES, DATA_OFFSET, QUEUE_EQE, EventType
from bluebridge.device.mlx5.rings.completion_queues import CompletionQueue
from bluebridge.device.mlx5.rings.surroundings import Surroundings
from bluebridge.device.rdma.vocabulary import AsyncEvent
from bluebridge.device.rings.posted_completions import PostedCompletions

_EVENTS: Final = {
    AsyncEvent.COMM_EST: EventType.COMMUNICATION_ESTABLISHED,
    AsyncEvent.SQ_DRAINED: EventType.SQ_DRAINED,
    AsyncEvent.WQ_CATAS_ERROR: EventType.WQ_CATASTROPHIC,
    AsyncEvent.WQ_INVALID_REQUEST: EventType.WQ_INVALID_REQUEST,
    AsyncEvent.WQ_ACCESS_ERROR: EventType.WQ_ACCESS_ERROR,
    AsyncEvent.SRQ_QP_LAST_WQE: EventType.LAST_WQE,
}
QP_EVENT, RQ_EVENT, SQ_EVENT = 0, 1, 2
"""Kinds of queues in events about them."""


class QueueCompletions(PostedCompletions):
    """The writer of the entries and asynchronous events of the queue `number` of a `kind`."""

    def __init__(self, around: Surroundings, number: int, kind: int) -> None:
        super().__init__(around.bus, around.faults, number)
        self._cqs = around.cqs
        self._eqs = around.eqs
        self._kind = kind

    def event(self, event: AsyncEvent) -> None:
        eqe = QUEUE_EQE.pack(kind=self._kind, number=self._number)
        data = bytes(eqe[DATA_OFFSET : DATA_OFFSET + DATA_BYTES])
        self._eqs.post_async(_EVENTS[event], data)

    def _queue(self, cqn: int) -> CompletionQueue | None:
        return self._cqs.get(cqn)
