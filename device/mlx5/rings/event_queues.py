"""Event queues: rings in guest memory whose entries raise MSI-X interrupts.

Rules: Linux `core/eq.c: create_map_eq, mlx5_eq_async_int, mlx5_eq_comp_int`, `core/lib/eq.h`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.mlx5.commands import Status
from bluebridge.device.layout.mlx5.event_queues import (
    DATA_BYTES,
    DATA_OFFSET,
    EQ_ARMED,
    EQ_FIRED,
    EQC,
    EQE_BYTES,
    EventType,
)
from bluebridge.device.mlx5.rings.page_lists import PageLists
from bluebridge.device.mlx5.settings.refused import Refused
from bluebridge.device.pci.bus import DmaError, HostBus
from bluebridge.device.rings.queue_buffer import QueueBuffer

INDEX_MASK: Final = 0xFFFFFF  # indices run freely in 24 bits
MAX_LOG_SIZE: Final = 22
MAX_QUEUES: Final = 64
MAX_BACKLOG: Final = 1 << 16
"""Most events of one adapter that wait for room in their rings."""
EVENT_TYPES: Final = 64
OWNER_OFFSET: Final = EQE_BYTES - 1


@dataclass(slots=True, eq=False)
class EventQueue:
    """One event queue; `backlog` holds events that found the ring full."""

    eqn: int
    buffer: QueueBuffer
    size: int
    vector: int
    context: bytes
    mask: int
    """A bit for each type of event that comes here."""
    armed: bool = False
    producer: int = 0
    consumer: int = 0
    overflowed: bool = False
    backlog: deque[bytes] = field(default_factory=deque)

    @property
    def waiting(self) -> int:
        """The number of events in the ring that software has not consumed."""
        return (self.producer - self.consumer) & INDEX_MASK


class EventQueues:
    """The event queues of one adapter, whose MSI-X table has `vectors` entries."""

    def __init__(self, bus: HostBus, pages: PageLists, vectors: int) -> None:
        self._bus = bus
        self._pages = pages
        self._vectors = vectors
        self._queues: dict[int, EventQueue] = {}
        self._backlog = 0

    def reset(self) -> None:
        """Forget all queues."""
        self._queues.clear()
        self._backlog = 0

    def numbers(self) -> list[int]:
        """The numbers of all queues, oldest first."""
        return list(self._queues)

    def get(self, eqn: int) -> EventQueue | None:
        """Return the queue `eqn`, or None."""
        return self._queues.get(eqn)

    def create(self, context: bytes, mask: int, pages: bytes) -> int:
        """Make a queue, which is not armed, and return its number.

        Drivers hand over entries whose owner bit is 1, and the first turn of the ring writes 0.
        `pages` is the list of the pages of the ring. Raises `Refused`: BAD_PARAM, LIM_ERR.
        """
        log_size, vector = EQC.get(context, "log_size"), EQC.get(context, "vector")
        if log_size > MAX_LOG_SIZE:
            raise Refused(Status.BAD_PARAM, f"2**{log_size} events")
        if vector >= self._vectors:
            raise Refused(Status.BAD_PARAM, f"MSI-X vector {vector}")
        eqn = next((n for n in range(MAX_QUEUES) if n not in self._queues), None)
        if eqn is None:
            raise Refused(Status.LIM_ERR, f"more than {MAX_QUEUES} event queues")
        shift = EQC.get(context, "log_page_size") + 12
        start = EQC.get(context, "page_offset") * EQE_BYTES
        buffer = self._pages.buffer(pages, shift, EQE_BYTES << log_size, start)
        self._queues[eqn] = EventQueue(eqn, buffer, 1 << log_size, vector, context, mask)
        return eqn

    def query(self, eqn: int) -> bytes:
        """Return the present context; raises `Refused` (BAD_RES)."""
        queue = self._found(eqn)
        context = bytearray(queue.context)
        EQC.set(context, "state", EQ_ARMED if queue.armed else EQ_FIRED)
        EQC.set(context, "consumer_index", queue.consumer)
        EQC.set(context, "producer_index", queue.producer)
        return bytes(context)

    def destroy(self, eqn: int) -> None:
        """Destroy a queue, to whose ring nothing is written from now on; raises `Refused`."""
        self._backlog -= len(self._found(eqn).backlog)
        del self._queues[eqn]

    def _found(self, eqn: int) -> EventQueue:
        queue = self._queues.get(eqn)
        if queue is None:
            raise Refused(Status.BAD_RES, f"there is no EQ {eqn:#x}")
        return queue

    def takes(self, event: EventType) -> bool:
        """Return whether a queue takes events of this type."""
        return any(queue.mask >> event & 1 for queue in self._queues.values())

    def post_async(self, event: EventType, data: bytes, sub_type: int = 0) -> None:
        """Post an event with up to 28 bytes of data to the queues that take its type."""
        eqe = bytearray(EQE_BYTES)
        eqe[1], eqe[3] = event, sub_type
        eqe[DATA_OFFSET : DATA_OFFSET + DATA_BYTES] = data.ljust(DATA_BYTES, b"\0")[:DATA_BYTES]
        taken = False
        for queue in self._queues.values():
            if queue.mask >> event & 1:
                taken = True
                self._post(queue, eqe)
        if not taken:
            self._bus.tell(Fact.NO_EQ, event=event)

    def post(self, eqn: int, eqe: bytes | bytearray) -> None:
        """Append an event of 64 bytes, whose owner bit is set here, and interrupt if armed."""
        queue = self._queues.get(eqn)
        if queue is None:
            self._bus.tell(Fact.NO_EQ, event=eqe[1], eqn=eqn)
        else:
            self._post(queue, eqe)

    def _post(self, queue: EventQueue, eqe: bytes | bytearray) -> None:
        # Nothing overtakes the backlog: software relies on the order of events.
        if not queue.backlog and queue.waiting < queue.size:
            self._write(queue, bytearray(eqe))
            if queue.armed:
                self._fire(queue)
        elif self._backlog < MAX_BACKLOG:
            self._backlog += 1
            queue.backlog.append(bytes(eqe))
        elif not queue.overflowed:
            queue.overflowed = True
            self._bus.tell(Fact.EQ_FULL, eqn=queue.eqn)

    def doorbell(self, value: int, *, arm: bool) -> None:
        """Take a store to an EQ doorbell: the queue's number and its consumer index.

        Events that were posted after the driver's last look at the ring interrupt at once.
        """
        queue = self._queues.get(value >> 24)
        if queue is None:
            return
        queue.consumer = value & INDEX_MASK
        while queue.backlog and queue.waiting < queue.size:
            self._backlog -= 1
            self._write(queue, bytearray(queue.backlog.popleft()))
        queue.overflowed = queue.overflowed and bool(queue.backlog)
        queue.armed = queue.armed or arm
        if queue.armed and queue.waiting:
            self._fire(queue)

    def _write(self, queue: EventQueue, eqe: bytearray) -> None:
        eqe[OWNER_OFFSET] = 1 if queue.producer & queue.size else 0
        offset = (queue.producer & (queue.size - 1)) * EQE_BYTES
        try:
            queue.buffer.write_entry(offset, eqe, What.EQE, queue.eqn)
        except DmaError as error:
            self._bus.tell(Fact.EQ_LOST, eqn=queue.eqn, reason=str(error))
            return
        queue.producer = (queue.producer + 1) & INDEX_MASK

    def _fire(self, queue: EventQueue) -> None:
        queue.armed = False
        self._bus.interrupt(queue.vector)
