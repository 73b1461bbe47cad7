"""Event queues of the device, each with an interrupt vector of its own (core/eq.c)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from bluebridge.device.layout.mlx5.commands import Opcode
from bluebridge.device.layout.mlx5.event_queues import (
    COMPLETION_EQE,
    CQ_ERROR_EQE,
    CREATE_EQ,
    EQC,
    EQE_BYTES,
    PORT_EQE,
    QUEUE_EQE,
    EventType,
)
from bluebridge.device.layout.mlx5.init_segment import EQ_ARM, UAR_BYTES
from bluebridge.guest.drivers.common.event_queue import (
    ENTRIES,
    LOG_ENTRIES,
    AsyncEvent,
    Event,
    EventQueue,
    EventRing,
)
from bluebridge.guest.drivers.mlx5.adapter import Adapter, page_list
from bluebridge.guest.verbs.values import CompletionQueue

ASYNC_EVENTS: Final = (
    EventType.COMMUNICATION_ESTABLISHED,
    EventType.SQ_DRAINED,
    EventType.CQ_ERROR,
    EventType.WQ_CATASTROPHIC,
    EventType.INTERNAL_ERROR,
    EventType.PORT_CHANGE,
    EventType.WQ_INVALID_REQUEST,
    EventType.WQ_ACCESS_ERROR,
    EventType.SRQ_CATASTROPHIC,
    EventType.LAST_WQE,
    EventType.SRQ_LIMIT,
)
ASYNC_VECTOR: Final = 0
_OWNER: Final = EQE_BYTES - 1
_MASK_BYTES: Final = 32
_INDEX: Final = 0xFFFFFF


class DeviceEventQueue(EventRing[Event]):
    """An event queue for the `types` of events, or for those of completion queues that name it."""

    def __init__(
        self,
        adapter: Adapter,
        vector: int,
        queues: list[EventQueue[Event]],
        types: tuple[EventType, ...] = (),
    ) -> None:
        self._adapter = adapter
        with ExitStack() as undo:
            undo.callback(adapter.vectors.free, vector)
            memory = adapter.bus.allocate(ENTRIES * EQE_BYTES)
            undo.callback(memory.free)
            fd = adapter.vectors.fd(vector)
            super().__init__(adapter.health, fd, queues, memory.view, _OWNER, 0)
            for at in range(_OWNER, len(self._data), EQE_BYTES):
                self._data[at] = 1  # what hardware has not written
            mask = sum(1 << kind for kind in types).to_bytes(8, "big")
            context = EQC.pack(log_size=LOG_ENTRIES, vector=vector, uar_page=adapter.uar)
            data = CREATE_EQ.pack(
                context=bytes(context), event_bitmask=mask.ljust(_MASK_BYTES, b"\0")
            )
            pages = page_list(memory.address, len(self._data))
            self.eqn = adapter.commands.make(Opcode.CREATE_EQ, bytes(data) + pages)
            self._doorbell = adapter.uar * UAR_BYTES + EQ_ARM
            self._start(undo.pop_all())

    def _stop(self) -> None:
        self._adapter.commands.run(Opcode.DESTROY_EQ, number=self.eqn)

    def _rearm(self) -> None:
        self._adapter.bus.write32(0, self._doorbell, self.eqn << 24 | self._consumer & _INDEX)


class AsyncEventQueue(DeviceEventQueue[AsyncEvent]):
    """The queue of events of the port and of queues in error; it has vector 0.

    `port_changed` is called with the sub-type of every event of the port.
    """

    def __init__(self, adapter: Adapter, port_changed: Callable[[int], None]) -> None:
        self._port_changed = port_changed
        super().__init__(adapter, ASYNC_VECTOR, [], ASYNC_EVENTS)

    def _take(self, kind: int, entry: memoryview) -> None:
        if kind == EventType.PORT_CHANGE:
            number = PORT_EQE.get(entry, "port")
            self._port_changed(entry[3])
        elif kind == EventType.CQ_ERROR:
            number = CQ_ERROR_EQE.get(entry, "cqn")
        else:
            number = QUEUE_EQE.get(entry, "number")
        self._pending.append(AsyncEvent(kind, entry[3], number))


class CompChannel(DeviceEventQueue[CompletionQueue]):
    """A completion channel, which returns the CQs with a completion after `Cq.req_notify`.

    It is among `channels` while it is open. Raises `VerbsError` when no vector is left.
    """

    def __init__(self, adapter: Adapter, channels: list[EventQueue[CompletionQueue]]) -> None:
        super().__init__(adapter, adapter.vectors.allocate(), channels)

    def _take(self, kind: int, entry: memoryview) -> None:
        if kind != EventType.COMPLETION:
            return
        cq = self._adapter.completion_queues.get(COMPLETION_EQE.get(entry, "cqn"))
        if cq is not None:
            cq.notified()
            self._pending.append(cq)
