"""Event queues as contexts and doorbells of a ConnectX-5 have them.

Rules: Linux `core/eq.c: create_map_eq`, `core/lib/eq.h`.
"""

from __future__ import annotations

from typing import Final

from bluebridge.device.armed_faults import ArmedFaults
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
from bluebridge.device.mlx5.settings.capabilities import LOG_MAX_EQS
from bluebridge.device.mlx5.settings.refused import Refused
from bluebridge.device.pci.bus import HostBus
from bluebridge.device.rings.event_ring import MAX_LOG_SIZE, EventRing, EventRings

MAX_QUEUES: Final = 1 << LOG_MAX_EQS
EVENT_TYPES: Final = 64


class EventQueues(EventRings):
    """The event queues of one adapter, whose MSI-X table has `vectors` entries."""

    def __init__(self, bus: HostBus, pages: PageLists, vectors: int, faults: ArmedFaults) -> None:
        super().__init__(bus, faults, EQE_BYTES, 1)
        self._pages = pages
        self._vectors = vectors

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
        shift, offset = EQC.get(context, "log_page_size"), EQC.get(context, "page_offset")
        buffer = self._pages.ring(pages, shift, EQE_BYTES << log_size, offset)
        self._queues[eqn] = EventRing(eqn, buffer, 1 << log_size, vector, context, mask)
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
        self.remove(self._found(eqn))

    def _found(self, eqn: int) -> EventRing:
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
                self.append(queue, eqe)
        if not taken:
            self._bus.tell(Fact.NO_EQ, event=event)

    def post(self, eqn: int, eqe: bytes | bytearray) -> None:
        """Append an event of 64 bytes, whose owner bit is set here, and interrupt if armed."""
        queue = self._queues.get(eqn)
        if queue is None:
            self._bus.tell(Fact.NO_EQ, event=eqe[1], eqn=eqn)
        else:
            self.append(queue, eqe)

    def doorbell(self, value: int, *, arm: bool) -> None:
        """Take a store to an EQ doorbell: the queue's number and its consumer index."""
        queue = self._queues.get(value >> 24)
        if queue is not None:
            self.consume(queue, value, arm)

    def overflow(self, queue: EventRing) -> None:
        """Do nothing: software is not told."""

    def recover(self, queue: EventRing) -> None:
        """Do nothing: software is not told."""
