"""Completion channels, each of which is an event queue for completions."""

from __future__ import annotations

from bluebridge.device.layout.mlx4.eqe import EventType
from bluebridge.guest.drivers.hca.queues.event_queues import DATA_WORD, NUMBER, EventQueue
from bluebridge.guest.verbs.values import CompletionQueue


class CompChannel(EventQueue[CompletionQueue]):
    """A completion channel, which returns the CQs with a completion after `Cq.req_notify`."""

    def _take(self, kind: int, entry: memoryview) -> None:
        if kind != EventType.COMP:
            return
        cq = self._adapter.completion_queues.get(DATA_WORD.unpack_from(entry, 4)[0] & NUMBER)
        if cq is not None:
            cq.notified()
            self._pending.append(cq)
