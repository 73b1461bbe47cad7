"""Event queues: rings in guest memory whose entries raise MSI-X interrupts.

Rules: Linux `mlx4/eq.c: mlx4_eq_int, eq_set_ci, next_eqe_sw`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.mlx4.commands import Status
from bluebridge.device.layout.mlx4.contexts import (
    EQ_STATE_ALWAYS_ARMED,
    EQ_STATE_ARMED,
    EQ_STATE_FIRED,
    EQC,
    RING_UNIT,
)
from bluebridge.device.layout.mlx4.eqe import (
    DATA_OFFSET,
    DATA_SIZE,
    EQE_SIZE,
    OWNER_OFFSET,
    EventType,
)
from bluebridge.device.layout.mlx4.uar import EQ_ARM
from bluebridge.device.mlx4.armed_faults import ArmedFaults
from bluebridge.device.mlx4.rings.ring_buffer import OwnedBuffer, RingPages
from bluebridge.device.mlx4.settings.parameters import CommandError, Parameters
from bluebridge.device.pci.bus import DmaError, HostBus

INDEX_MASK: Final = 0xFFFFFF  # indices run freely in 24 bits
MAX_LOG_SIZE: Final = 22
MAX_BACKLOG = 1 << 16
"""Most events of one HCA that wait for room in their rings.

Correct drivers stay below it: a CQ has at most two events that were not consumed.
"""
EVENT_TYPES: Final = 64


@dataclass(slots=True)
class EventQueue:
    """One event queue; `backlog` holds events that found the ring full.

    `overflowed`: an event was lost, since software read the others. `overwrites`: none is kept
    back, since software asked for that. `context` is what it said at the start.
    """

    eqn: int
    buffer: OwnedBuffer
    size: int
    vector: int
    always_armed: bool
    armed: bool
    overwrites: bool
    context: bytes
    producer: int = 0
    consumer: int = 0
    overflowed: bool = False
    backlog: deque[bytes] = field(default_factory=deque)

    @property
    def waiting(self) -> int:
        """The number of events in the ring that software has not consumed."""
        return (self.producer - self.consumer) & INDEX_MASK


class EventQueues:
    """The event queues of one HCA, and the map from asynchronous event types to them.

    `vectors` is the size of the MSI-X table.
    """

    def __init__(
        self,
        bus: HostBus,
        pages: RingPages,
        parameters: Parameters,
        vectors: int,
        faults: ArmedFaults,
    ) -> None:
        self._bus = bus
        self._pages = pages
        self._parameters = parameters
        self._vectors = vectors
        self._faults = faults
        self._queues: dict[int, EventQueue] = {}
        self._map: dict[int, int] = {}
        self._backlog = 0

    def reset(self) -> None:
        """Forget all queues and the event map."""
        self._queues.clear()
        self._map.clear()
        self._backlog = 0

    def numbers(self) -> list[int]:
        """The numbers of all queues, oldest first."""
        return list(self._queues)

    def get(self, eqn: int) -> EventQueue | None:
        """Return the queue `eqn`; None unless hardware owns it."""
        return self._queues.get(eqn)

    def create(self, eqn: int, context: bytes) -> Iterator[None]:
        """Make a queue (SW2HW_EQ), in portions.

        Every entry is given to hardware, since drivers hand over zeroed buffers.

        Raises `CommandError`: BAD_INDEX, BAD_RES_STATE, BAD_PARAM, ICM_ERROR.
        """
        if eqn >> self._parameters.log_eqs:
            raise CommandError(Status.BAD_INDEX, f"EQ {eqn:#x}")
        if eqn in self._queues:
            raise CommandError(Status.BAD_RES_STATE, f"EQ {eqn:#x} is in use")
        log_size, vector = EQC.get(context, "log_size"), EQC.get(context, "vector")
        if log_size > MAX_LOG_SIZE:
            raise CommandError(Status.BAD_PARAM, f"2**{log_size} events")
        if vector >= self._vectors:
            raise CommandError(Status.BAD_PARAM, f"MSI-X vector {vector}")
        shift = EQC.get(context, "log_page_size") + 12
        start = EQC.get(context, "page_offset") * RING_UNIT
        if start % EQE_SIZE:
            raise CommandError(Status.BAD_PARAM, f"EQ {eqn:#x} begins at {start:#x} of its page")
        buffer = self._pages.buffer(
            EQC.get(context, "mtt_addr"), shift, EQE_SIZE << log_size, start
        )
        yield from buffer.fill_owner(EQE_SIZE, eqn)
        state = EQC.get(context, "state")
        self._queues[eqn] = EventQueue(
            eqn,
            buffer,
            1 << log_size,
            vector,
            always_armed=state == EQ_STATE_ALWAYS_ARMED,
            armed=state != EQ_STATE_FIRED,
            overwrites=bool(EQC.get(context, "overrun_ignore")),
            context=context,
        )

    def query(self, eqn: int) -> bytes:
        """Return the present context (QUERY_EQ); raises `CommandError` (BAD_INDEX)."""
        queue = self._queues.get(eqn)
        if queue is None:
            raise CommandError(Status.BAD_INDEX, f"EQ {eqn:#x}")
        context = bytearray(queue.context)
        if not queue.always_armed:
            EQC.set(context, "state", EQ_STATE_ARMED if queue.armed else EQ_STATE_FIRED)
        EQC.set(context, "consumer_index", queue.consumer)
        EQC.set(context, "producer_index", queue.producer)
        return bytes(context)

    def destroy(self, eqn: int) -> None:
        """Destroy a queue (HW2SW_EQ), to whose ring nothing is written from now on."""
        queue = self._queues.pop(eqn, None)
        if queue is not None:
            self._backlog -= len(queue.backlog)

    def map_events(self, eqn: int, mask: int, unmap: bool) -> None:
        """Send the event types of a bit mask to `eqn` (MAP_EQ), or nowhere if `unmap`."""
        for event in range(EVENT_TYPES):
            if mask >> event & 1:
                if unmap:
                    self._map.pop(event, None)
                else:
                    self._map[event] = eqn

    def post_async(self, event_type: int, data: bytes, subtype: int = 0) -> None:
        """Post an event with 24 data bytes to the queue that MAP_EQ chose; lost without one."""
        eqn = self._map.get(event_type)
        if eqn is None:
            self._bus.tell(Fact.NO_EQ, event=event_type)
            return
        eqe = bytearray(EQE_SIZE)
        eqe[1], eqe[3] = event_type, subtype
        eqe[DATA_OFFSET : DATA_OFFSET + DATA_SIZE] = data.ljust(DATA_SIZE, b"\0")[:DATA_SIZE]
        self.post(eqn, eqe)

    def post_numbered(self, event_type: int, number: int) -> None:
        """Post an asynchronous event about the object of any kind with this number."""
        self.post_async(event_type, number.to_bytes(4, "big"))

    def post(self, eqn: int, eqe: bytes | bytearray) -> None:
        """Append an event of 32 bytes, whose owner byte is set here, and interrupt if armed."""
        queue = self._queues.get(eqn)
        if queue is None:
            self._bus.tell(Fact.NO_EQ, event=eqe[1], eqn=eqn)
            return
        if eqe[1] in self._faults.events and self._faults.loses_event(eqe[1]):
            return
        # Nothing overtakes the backlog: software relies on the order of events.
        if (queue.backlog or queue.waiting >= queue.size) and not queue.overwrites:
            if self._backlog < MAX_BACKLOG:
                self._backlog += 1
                queue.backlog.append(bytes(eqe))
            else:
                self._lose(queue)
            return
        self._write(queue, bytearray(eqe))
        if queue.armed:
            self._fire(queue)

    def doorbell(self, eqn: int, value: int) -> None:
        """Take a write to an EQ doorbell: consumer index, and bit 31 to arm.

        Events that were posted after the driver's last look at the ring interrupt at once.
        """
        queue = self._queues.get(eqn)
        if queue is None:
            return
        queue.consumer = value & INDEX_MASK
        while queue.backlog and queue.waiting < queue.size:
            self._backlog -= 1
            self._write(queue, bytearray(queue.backlog.popleft()))
        # Events of overflow that go to this very queue had no room in it until now.
        if queue.overflowed and not queue.backlog:
            queue.overflowed = False
            if self._map.get(EventType.EQ_OVERFLOW) == eqn:
                self.post_numbered(EventType.EQ_OVERFLOW, eqn)
        if value & EQ_ARM:
            queue.armed = True
        if queue.armed and queue.waiting:
            self._fire(queue)

    def _lose(self, queue: EventQueue) -> None:
        """Tell software once that an event has no room, in the queue itself if that has some."""
        if queue.overflowed:
            return
        queue.overflowed = True
        self._bus.tell(Fact.EQ_FULL, eqn=queue.eqn)
        if self._map.get(EventType.EQ_OVERFLOW) != queue.eqn:
            self.post_numbered(EventType.EQ_OVERFLOW, queue.eqn)

    def _write(self, queue: EventQueue, eqe: bytearray) -> None:
        eqe[OWNER_OFFSET] = 0x80 if queue.producer & queue.size else 0
        try:
            offset = (queue.producer & (queue.size - 1)) * EQE_SIZE
            queue.buffer.write_entry(offset, eqe, What.EQE, queue.eqn)
        except DmaError as error:
            self._bus.tell(Fact.EQ_LOST, eqn=queue.eqn, reason=str(error))
            return
        queue.producer = (queue.producer + 1) & INDEX_MASK

    def catch_up(self, vector: int) -> None:
        """Send a vector's interrupt if an armed queue of it has events that wait for software."""
        for queue in self._queues.values():
            if queue.vector == vector and queue.armed and queue.waiting:
                self._fire(queue)

    def _fire(self, queue: EventQueue) -> None:
        """Interrupt, unless a fault loses it: then the queue stays armed for the next event."""
        if queue.vector in self._faults.vectors and self._faults.loses_interrupt(queue.vector):
            return
        queue.armed = queue.always_armed
        self._bus.interrupt(queue.vector)
