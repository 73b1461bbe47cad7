"""What completions of all queues share: sends, errors, events (`device.layout.mlx5.cqe`)."""

from __future__ import annotations

from struct import Struct
from time import monotonic_ns
from typing import Final

from bluebridge.device.layout.mlx5.cqe import VENDOR_SYNDROMES, CqeOpcode, Syndrome
from bluebridge.device.layout.mlx5.event_queues import DATA_BYTES, DATA_OFFSET, QUEUE_EQE, EventType
from bluebridge.device.mlx5.rings.message_requests import SEND_OPCODES
from bluebridge.device.mlx5.rings.surroundings import Surroundings
from bluebridge.device.rdma.vocabulary import AsyncEvent, CompletionStatus
from bluebridge.device.rings.posted_completions import PostedCompletions

REQUEST_CQE: Final = Struct(">32xI8xIQIHxB")
ERROR_CQE: Final = Struct(">32xI18xBBIHxB")
RESPONSE_ERROR: Final = CqeOpcode.RESPONSE_ERROR << 4
_REQUEST: Final = CqeOpcode.REQUEST << 4
_REQUEST_ERROR: Final = CqeOpcode.REQUEST_ERROR << 4
_ERRORS: Final = {
    status: (VENDOR_SYNDROMES[Syndrome[status.name]], int(Syndrome[status.name]))
    for status in CompletionStatus
}
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
    """The writer of the entries and asynchronous events of the queue `number` of a `kind`.

    Those of sends go to `send_cqn` and name the queue by its number and its `user_index`.
    """

    def __init__(
        self, around: Surroundings, number: int, kind: int, send_cqn: int, user_index: int
    ) -> None:
        super().__init__(around.bus, around.faults, around.cqs, number)
        self._eqs = around.eqs
        self._kind = kind
        self._send_cqn = send_cqn
        self._user_index = user_index
        self._collected: list[tuple[int, int, int]] = []

    def complete_send(self, index: int, operation: int, length: int, left: int = 0) -> None:
        self._bus.concern(self._number, index)
        self._post(self._send_cqn, self._sent(index, operation, length, left or monotonic_ns()))

    def fail_send(self, index: int, status: CompletionStatus) -> None:
        self._bus.concern(self._number, index)
        self.diagnostics.send_failed(status)
        cqe = self._error(self._user_index, index, status, _REQUEST_ERROR)
        self._post(self._send_cqn, cqe, error=True)

    def collect_send(self, index: int, operation: int, length: int) -> None:
        self._collected.append((index, operation, length))

    def post_collected(self, left: int = 0) -> None:
        collected, self._collected = self._collected, []
        left = left or monotonic_ns()
        entries = [self._sent(index, code, length, left) for index, code, length in collected]
        self._post_many(self._send_cqn, entries)

    def forget_collected(self) -> None:
        self._collected = []

    def _sent(self, index: int, operation: int, length: int, left: int) -> bytes:
        about = SEND_OPCODES[operation] << 24 | self._number
        return REQUEST_CQE.pack(self._user_index, length, left, about, index & 0xFFFF, _REQUEST)

    def _error(self, user: int, index: int, status: CompletionStatus, opcode: int) -> bytes:
        vendor, syndrome = _ERRORS[status]
        return ERROR_CQE.pack(user, vendor, syndrome, self._number, index & 0xFFFF, opcode)

    def event(self, event: AsyncEvent) -> None:
        eqe = QUEUE_EQE.pack(kind=self._kind, number=self._number)
        data = bytes(eqe[DATA_OFFSET : DATA_OFFSET + DATA_BYTES])
        self._eqs.post_async(_EVENTS[event], data)
