"""Event queues of the device, each with an interrupt vector of its own (core/eq.c)."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from contextlib import ExitStack

from bluebridge.device.layout.mlx4.commands import MODIFIER_UNMAP_EQ, Opcode
from bluebridge.device.layout.mlx4.contexts import EQ_STATE_ARMED, EQC
from bluebridge.device.layout.mlx4.eqe import CMD_EQE, EQE_SIZE, OWNER_OFFSET, EventType
from bluebridge.device.layout.mlx4.uar import EQ_ARM, eq_doorbell_offset
from bluebridge.guest.drivers.common.event_queue import (
    ENTRIES,
    LOG_ENTRIES,
    AsyncEvent,
    Event,
    EventQueue,
    EventRing,
)
from bluebridge.guest.drivers.hca.resources.adapter import Adapter
from bluebridge.guest.verbs.values import CompletionQueue

ASYNC_EVENTS = (1, 2, 3, 4, 5, 6, 7, 9, 0xA, 0xE, 0x10, 0x11, 0x12, 0x13, 0x14, 0x1B)
DATA_WORD = struct.Struct(">I")
NUMBER = 0xFFFFFF
ASYNC_VECTOR = 0


class DeviceEventQueue(EventRing[Event]):
    """An event queue of the device at interrupt vector `vector`, one of `queues`."""

    def __init__(self, adapter: Adapter, vector: int, queues: list[EventQueue[Event]]) -> None:
        self._adapter = adapter
        with ExitStack() as undo:
            undo.callback(adapter.vectors.free, vector)
            memory = adapter.bus.allocate(ENTRIES * EQE_SIZE)
            undo.callback(memory.free)
            fd = adapter.vectors.fd(vector)
            super().__init__(adapter.health, fd, queues, memory.view, OWNER_OFFSET, 7)
            self.eqn = adapter.numbers.event_queues.allocate()
            undo.callback(adapter.numbers.event_queues.free, self.eqn)
            self._doorbell = eq_doorbell_offset(self.eqn)
            mtt = adapter.icm.allocate_mtt_contiguous(memory.address, len(self._data))
            undo.callback(adapter.icm.free_mtt, mtt)
            context = EQC.pack(
                state=EQ_STATE_ARMED, log_size=LOG_ENTRIES, vector=vector, mtt_addr=mtt.address
            )
            adapter.commands.run(Opcode.SW2HW_EQ, self.eqn, data=context)
            self._start(undo.pop_all())

    def _stop(self) -> None:
        self._adapter.commands.run(Opcode.HW2SW_EQ, self.eqn, 1)

    def _rearm(self) -> None:
        self._adapter.bus.write32(2, self._doorbell, EQ_ARM | (self._consumer & NUMBER))


class AsyncEventQueue(DeviceEventQueue[AsyncEvent]):
    """The queue of events of ports, queue pairs in error and commands; it has vector 0.

    `port_changed` is called with number and subtype of every event of a port.
    """

    def __init__(self, adapter: Adapter, port_changed: Callable[[int, int], None]) -> None:
        self._statuses: dict[int, int] = {}
        self._port_changed = port_changed
        super().__init__(adapter, ASYNC_VECTOR, [])
        mask = sum(1 << kind for kind in ASYNC_EVENTS)
        adapter.commands.run(Opcode.MAP_EQ, self.eqn, param=mask)

    def close(self) -> None:
        """Unmap the event types, then take the queue back."""
        if not self._closed:
            mask = sum(1 << kind for kind in ASYNC_EVENTS)
            self._adapter.commands.run(Opcode.MAP_EQ, self.eqn | MODIFIER_UNMAP_EQ, param=mask)
        super().close()

    def wait_command(self, token: int, timeout: float) -> int | None:
        """Return the status of the event-mode command with `token`, None without an event."""
        deadline = time.monotonic() + timeout
        while True:
            with self._lock:
                self._drain()
                status = self._statuses.pop(token, None)
            if status is not None or not self._wait(deadline):
                return status

    def _take(self, kind: int, entry: memoryview) -> None:
        if kind == EventType.CMD:
            self._statuses[CMD_EQE.get(entry, "token")] = CMD_EQE.get(entry, "status")
            return
        if kind == EventType.PORT_CHANGE:
            number = entry[0x0C] >> 4
            self._port_changed(number, entry[3])
        else:
            number = DATA_WORD.unpack_from(entry, 4)[0] & NUMBER
        self._pending.append(AsyncEvent(kind, entry[3], number))


class CompChannel(DeviceEventQueue[CompletionQueue]):
    """A completion channel, which returns the CQs with a completion after `Cq.req_notify`.

    It is among `channels` while it is open. Raises `VerbsError` when no vector is left.
    """

    def __init__(self, adapter: Adapter, channels: list[EventQueue[CompletionQueue]]) -> None:
        super().__init__(adapter, adapter.vectors.allocate(), channels)

    def _take(self, kind: int, entry: memoryview) -> None:
        if kind != EventType.COMP:
            return
        cq = self._adapter.completion_queues.get(DATA_WORD.unpack_from(entry, 4)[0] & NUMBER)
        if cq is not None:
            cq.notified()
            self._pending.append(cq)
