"""Event queues as contexts and doorbells of a ConnectX-3 have them.

Rules: Linux `mlx4/eq.c: mlx4_create_eq, next_eqe_sw`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bluebridge.device.armed_faults import ArmedFaults
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.mlx4.commands import Status
from bluebridge.device.layout.mlx4.contexts import (
    EQ_STATE_ALWAYS_ARMED,
    EQ_STATE_ARMED,
    EQ_STATE_FIRED,
    EQC,
    RING_UNIT,
)
from bluebridge.device.layout.mlx4.eqe import DATA_OFFSET, DATA_SIZE, EQE_SIZE, EventType
from bluebridge.device.layout.mlx4.uar import EQ_ARM
from bluebridge.device.mlx4.rings.ring_buffer import RingPages
from bluebridge.device.mlx4.settings.parameters import CommandError, Parameters
from bluebridge.device.pci.bus import HostBus
from bluebridge.device.rings.event_ring import MAX_LOG_SIZE, EventRing, EventRings

EVENT_TYPES: Final = 64
OWNER_HARDWARE: Final = 0x80


class EventQueues(EventRings):
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
        super().__init__(bus, faults, EQE_SIZE, OWNER_HARDWARE)
        self._pages = pages
        self._parameters = parameters
        self._vectors = vectors
        self._map: dict[int, int] = {}

    def reset(self) -> None:
        """Forget all queues and the event map."""
        super().reset()
        self._map.clear()

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
        self._queues[eqn] = EventRing(
            eqn,
            buffer,
            1 << log_size,
            vector,
            context,
            armed=state != EQ_STATE_FIRED,
            always_armed=state == EQ_STATE_ALWAYS_ARMED,
            overwrites=bool(EQC.get(context, "overrun_ignore")),
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
        queue = self._queues.get(eqn)
        if queue is not None:
            self.remove(queue)

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
        self.append(queue, eqe)

    def doorbell(self, eqn: int, value: int) -> None:
        """Take a write to an EQ doorbell: consumer index, and bit 31 to arm."""
        queue = self._queues.get(eqn)
        if queue is not None:
            self.consume(queue, value, bool(value & EQ_ARM))

    def overflow(self, queue: EventRing) -> None:
        """Tell software once that an event has no room, in the queue itself if that has some."""
        if self._map.get(EventType.EQ_OVERFLOW) != queue.eqn:
            self.post_numbered(EventType.EQ_OVERFLOW, queue.eqn)

    def recover(self, queue: EventRing) -> None:
        """Tell it in this very queue, which had no room for that until now."""
        if self._map.get(EventType.EQ_OVERFLOW) == queue.eqn:
            self.post_numbered(EventType.EQ_OVERFLOW, queue.eqn)
