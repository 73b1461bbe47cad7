"""Event queues: rings in guest memory whose entries raise interrupts.

Rules: Linux `mlx4/eq.c: mlx4_eq_int, eq_set_ci`, `core/eq.c: mlx5_eq_async_int`, `core/lib/eq.h`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from bluebridge.device.armed_faults import ArmedFaults
from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.events import Fact
from bluebridge.device.pci.bus import DmaError, HostBus
from bluebridge.device.rings.queue_buffer import QueueBuffer

INDEX_MASK: Final = 0xFFFFFF  # indices run freely in 24 bits
MAX_LOG_SIZE: Final = 22
MAX_BACKLOG = 1 << 16
"""Most events of one adapter that wait for room in their rings.

Correct drivers stay below it: a CQ has at most two events that were not consumed.
"""
PORTION: Final = 2048
"""Number of events that a doorbell writes in one turn of the loop: some five milliseconds."""


@dataclass(slots=True, eq=False)
class EventRing:
    """One event queue; `backlog` holds events that found the ring full.

    `mask` has a bit for each type of event that comes here by itself. `always_armed`: every event
    interrupts. `overwrites`: none is kept back, since software asked for that. `overflowed`: an
    event was lost, since software read the others. `refilling`: a turn of the loop will write
    more of the backlog. `context` is what software said at the start.
    """

    eqn: int
    buffer: QueueBuffer
    size: int
    vector: int
    context: bytes
    mask: int = 0
    armed: bool = False
    always_armed: bool = False
    overwrites: bool = False
    producer: int = 0
    consumer: int = 0
    overflowed: bool = False
    refilling: bool = False
    backlog: deque[bytes] = field(default_factory=deque)

    @property
    def waiting(self) -> int:
        """The number of events in the ring that software has not consumed."""
        return (self.producer - self.consumer) & INDEX_MASK


class EventRings(ABC):
    """The event queues of one adapter, whose cards read and write their contexts.

    An entry has `entry_bytes`, and its last byte is `owner` in every second lap, otherwise 0.
    """

    def __init__(self, bus: HostBus, faults: ArmedFaults, entry_bytes: int, owner: int) -> None:
        self._bus = bus
        self._faults = faults
        self._entry_bytes = entry_bytes
        self._owner = owner
        self._queues: dict[int, EventRing] = {}
        self._backlog = 0

    @abstractmethod
    def overflow(self, queue: EventRing) -> None:
        """Take note that a queue began to lose events."""

    @abstractmethod
    def recover(self, queue: EventRing) -> None:
        """Take note that a queue that lost events has room again, and nothing waits for it."""

    def reset(self) -> None:
        """Forget all queues."""
        self._queues.clear()
        self._backlog = 0

    def numbers(self) -> list[int]:
        """The numbers of all queues, oldest first."""
        return list(self._queues)

    def get(self, eqn: int) -> EventRing | None:
        """Return the queue `eqn`; None unless hardware owns it."""
        return self._queues.get(eqn)

    def remove(self, queue: EventRing) -> None:
        """Forget a queue, to whose ring nothing is written from now on."""
        del self._queues[queue.eqn]
        self._backlog -= len(queue.backlog)

    def append(self, queue: EventRing, eqe: bytes | bytearray) -> None:
        """Append an event, whose owner byte is set here, and interrupt if armed.

        Its type is in the second byte. A fault by name may lose it.
        """
        if eqe[1] in self._faults.events and self._faults.loses_event(eqe[1]):
            return
        # Nothing overtakes the backlog: software relies on the order of events.
        if (queue.backlog or queue.waiting >= queue.size) and not queue.overwrites:
            if self._backlog < MAX_BACKLOG:
                self._backlog += 1
                queue.backlog.append(bytes(eqe))
            elif not queue.overflowed:
                queue.overflowed = True
                self._bus.tell(Fact.EQ_FULL, eqn=queue.eqn)
                self.overflow(queue)
            return
        self._write(queue, bytearray(eqe))
        if queue.armed:
            self.fire(queue)

    def consume(self, queue: EventRing, consumer: int, arm: bool) -> None:
        """Take a consumer index, and perhaps arm: what a store to an EQ doorbell says.

        Events that were posted after the driver's last look at the ring interrupt at once.
        """
        queue.consumer = consumer & INDEX_MASK
        self._refill(queue)
        if arm:
            queue.armed = True
        if queue.armed and queue.waiting:
            self.fire(queue)

    def _refill(self, queue: EventRing) -> None:
        """Write a portion of what waits for room; the rest follows in the next turn."""
        for _ in range(PORTION):
            if not queue.backlog or queue.waiting >= queue.size:
                break
            self._backlog -= 1
            self._write(queue, bytearray(queue.backlog.popleft()))
        if queue.overflowed and not queue.backlog:
            queue.overflowed = False
            self.recover(queue)
        if queue.backlog and queue.waiting < queue.size and not queue.refilling:
            queue.refilling = True
            self._bus.call_next_turn(lambda: self._go_on(queue))

    def _go_on(self, queue: EventRing) -> None:
        queue.refilling = False
        if self._queues.get(queue.eqn) is not queue:  # destroyed since
            return
        self._refill(queue)
        if queue.armed and queue.waiting:
            self.fire(queue)

    def _write(self, queue: EventRing, eqe: bytearray) -> None:
        eqe[-1] = self._owner if queue.producer & queue.size else 0
        try:
            offset = (queue.producer & (queue.size - 1)) * self._entry_bytes
            queue.buffer.write_entry(offset, eqe, What.EQE, queue.eqn)
        except DmaError as error:
            self._bus.tell(Fact.EQ_LOST, eqn=queue.eqn, reason=str(error))
            return
        queue.producer = (queue.producer + 1) & INDEX_MASK

    def catch_up(self, vector: int) -> None:
        """Send a vector's interrupt if an armed queue of it has events that wait for software."""
        for queue in self._queues.values():
            if queue.vector == vector and queue.armed and queue.waiting:
                self.fire(queue)

    def fire(self, queue: EventRing) -> None:
        """Interrupt, unless a fault loses it: then the queue stays armed for the next event."""
        if queue.vector in self._faults.vectors and self._faults.loses_interrupt(queue.vector):
            return
        queue.armed = queue.always_armed
        self._bus.interrupt(queue.vector)
