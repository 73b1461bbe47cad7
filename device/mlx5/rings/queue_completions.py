"""What the completions of all queues have in common: their completion queue and their events."""

from __future__ import annotations

from typing import Final

from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.mlx5.cqe import CQE, CqeOpcode
from bluebridge.device.layout.mlx5.event_queues import DATA_BYTES, DATA_OFFSET, QUEUE_EQE, EventType
from bluebridge.device.mlx5.rings.surroundings import Surroundings
from bluebridge.device.rdma.pairs.queues import Completions
from bluebridge.device.rdma.vocabulary import AsyncEvent

_EVENTS: Final = {
    AsyncEvent.COMM_EST: EventType.COMMUNICATION_ESTABLISHED,
    AsyncEvent.SQ_DRAINED: EventType.SQ_DRAINED,
    AsyncEvent.WQ_CATAS_ERROR: EventType.WQ_CATASTROPHIC,
    AsyncEvent.WQ_INVALID_REQUEST: EventType.WQ_INVALID_REQUEST,
    AsyncEvent.WQ_ACCESS_ERROR: EventType.WQ_ACCESS_ERROR,
    AsyncEvent.SRQ_QP_LAST_WQE: EventType.LAST_WQE,
}
_ERRORS: Final = (CqeOpcode.REQUEST_ERROR, CqeOpcode.RESPONSE_ERROR)
QP_EVENT, RQ_EVENT, SQ_EVENT = 0, 1, 2
"""Kinds of queues in events about them."""


class QueueCompletions(Completions):
    """The writer of the entries and asynchronous events of the queue `number` of a `kind`.

    A completion queue that does not exist when a completion is due costs a line in the log. One
    that takes no entry any more calls `lost`, later, in the server's loop.
    """

    def __init__(self, around: Surroundings, number: int, kind: int) -> None:
        self._bus = around.bus
        self._cqs = around.cqs
        self._eqs = around.eqs
        self._faults = around.faults
        self._number = number
        self._kind = kind
        self._losing = False

    def event(self, event: AsyncEvent) -> None:
        eqe = QUEUE_EQE.pack(kind=self._kind, number=self._number)
        data = bytes(eqe[DATA_OFFSET : DATA_OFFSET + DATA_BYTES])
        self._eqs.post_async(_EVENTS[event], data)

    def _post(self, cqn: int, cqe: bytes, solicited: bool = False, error: bool = False) -> None:
        if self._faults.completions and self._faults.has_completion(self._number):
            self._post_faulty(cqn, cqe, solicited)
        else:
            self._write(cqn, cqe, solicited, error)

    def _post_many(self, cqn: int, entries: list[bytes]) -> None:
        if self._faults.completions and self._faults.has_completion(self._number):
            for entry in entries:
                self._post_faulty(cqn, entry, False)
            return
        queue = self._cqs.get(cqn)
        if queue is None:
            self._bus.tell(Fact.NO_CQ, qpn=self._number, cqn=cqn)
            return
        queue.post_many(entries)
        if queue.broken:
            self._lose()

    def _post_faulty(self, cqn: int, cqe: bytes, solicited: bool) -> None:
        """Write what the armed faults make of an entry, now and later."""
        for seconds, entry in self._faults.completion(self._number, cqe):
            if seconds:
                self._write_later(seconds, cqn, entry, solicited)
            else:
                self._write(cqn, entry, solicited, CQE.get(entry, "opcode") in _ERRORS)

    def _write_later(self, seconds: float, cqn: int, cqe: bytes, solicited: bool) -> None:
        """Write an entry then, unless the queue is gone: drivers know no other number."""
        queue = self._cqs.get(cqn)

        def write() -> None:
            alive = self._faults.role_of(self._number) is not None
            if alive and self._cqs.get(cqn) is queue:
                self._write(cqn, cqe, solicited, False)

        self._bus.call_later(seconds, write)

    def _write(self, cqn: int, cqe: bytes, solicited: bool, error: bool) -> None:
        queue = self._cqs.get(cqn)
        if queue is None:
            self._bus.tell(Fact.NO_CQ, qpn=self._number, cqn=cqn)
            return
        queue.post(cqe, solicited, error)
        if queue.broken:
            self._lose()

    def _lose(self) -> None:
        """Tell the queue later of a lost completion, as its engines are busy now."""
        if not self._losing:
            self._losing = True
            self._bus.call_soon(self._tell_loss)

    def _tell_loss(self) -> None:
        self._losing = False
        self.lost()
