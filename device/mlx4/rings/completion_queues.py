"""Completion queues as contexts and doorbells of a ConnectX-3 have them.

Rules: Linux `ib/cq.c`, `mlx4/cq.c: mlx4_cq_completion`.
"""

from __future__ import annotations

from collections.abc import Iterator

from bluebridge.device.layout.mlx4.commands import Status
from bluebridge.device.layout.mlx4.contexts import CQC, RING_UNIT
from bluebridge.device.layout.mlx4.cqe import CQE_SIZE, OPCODE_RESIZE, OWNER_BIT
from bluebridge.device.layout.mlx4.eqe import COMP_EQE, CQ_ERROR_EQE, DATA_OFFSET, EventType
from bluebridge.device.mlx4.rings.clock import stamped
from bluebridge.device.mlx4.rings.event_queues import EventQueues
from bluebridge.device.mlx4.rings.ring_buffer import OwnedBuffer, RingPages
from bluebridge.device.mlx4.settings.parameters import CommandError, Parameters
from bluebridge.device.pci.bus import HostBus
from bluebridge.device.rings.completion_ring import (
    FOR_COUNT,
    INDEX_MASK,
    MAX_LOG_SIZE,
    NOT_ARMED,
    CompletionRing,
    CompletionRings,
)


class CompletionQueue(CompletionRing):
    """One completion queue of entries of `stride` bytes."""

    def __init__(
        self,
        bus: HostBus,
        eqs: EventQueues,
        cqn: int,
        context: bytes,
        buffer: OwnedBuffer,
        stride: int,
    ) -> None:
        get = CQC.get
        log_size, record = get(context, "log_size"), get(context, "doorbell_record") & ~7
        super().__init__(bus, cqn, buffer, log_size, stride, CQE_SIZE, OWNER_BIT, record)
        self._eqs = eqs
        self._event = bytes(COMP_EQE.pack(type=EventType.COMP, cqn=cqn))
        self._context = context
        self.overwrites = bool(get(context, "overrun_ignore"))
        self.timestamps = bool(get(context, "timestamps"))
        self.eqn = get(context, "eqn")
        self.uar = get(context, "uar")
        self.period = get(context, "period")
        self.max_count = get(context, "max_count")

    def stamp(self, cqe: bytes, when: int) -> bytes:
        return stamped(cqe, when)

    def announce(self) -> None:
        self._eqs.post(self.eqn, self._event)

    def report(self, syndrome: int) -> None:
        event = CQ_ERROR_EQE.pack(cqn=self.cqn, syndrome=syndrome)
        self._eqs.post_async(EventType.CQ_ERROR, bytes(event[DATA_OFFSET:-4]))

    def query(self) -> bytes:
        """Return the present context (QUERY_CQ)."""
        context = bytearray(self._context)
        CQC.set(context, "period", self.period)
        CQC.set(context, "max_count", self.max_count)
        CQC.set(context, "last_notified", self.notified)
        CQC.set(context, "consumer_index", self.consumer)
        CQC.set(context, "producer_index", self.producer)
        return bytes(context)

    def resize(self, buffer: OwnedBuffer, context: bytes) -> Iterator[None]:
        """Move to another buffer, as `move` does; it is prepared in portions.

        `context` says where it is and how large; entries go on coming into the old one meanwhile
        (libmlx4 `cq.c: mlx4_cq_resize_copy_cqes`, Linux `ib/cq.c: mlx4_ib_cq_resize_copy_cqes`).
        """
        log_size = CQC.get(context, "log_size")
        self.check_move(log_size)
        following = self.producer + 1
        yield from buffer.fill_owner(self.stride, self.cqn, following)
        while missed := (self.producer + 1 - following) & INDEX_MASK:  # while others had a turn
            known, following = following, following + missed
            yield from buffer.fill_owner(self.stride, self.cqn, following, known)
        self.move(buffer, log_size, OPCODE_RESIZE)
        moved = bytearray(self._context)
        for name in ("log_size", "page_offset", "log_page_size", "mtt_addr"):
            CQC.set(moved, name, CQC.get(context, name))
        self._context = bytes(moved)


class CompletionQueues(CompletionRings[CompletionQueue]):
    """The completion queues of one HCA."""

    def __init__(
        self, bus: HostBus, pages: RingPages, eqs: EventQueues, parameters: Parameters
    ) -> None:
        super().__init__()
        self._bus = bus
        self._pages = pages
        self._eqs = eqs
        self._parameters = parameters

    def create(self, cqn: int, context: bytes, *, fill: bool) -> Iterator[None]:
        """Make a queue (SW2HW_CQ), in portions; `fill` gives every entry to hardware.

        Raises `CommandError`: BAD_INDEX, BAD_RES_STATE, BAD_PARAM, BAD_RESOURCE, ICM_ERROR.
        """
        if cqn >> self._parameters.log_cqs:
            raise CommandError(Status.BAD_INDEX, f"CQ {cqn:#x}")
        if cqn in self._queues:
            raise CommandError(Status.BAD_RES_STATE, f"CQ {cqn:#x} is in use")
        if self._eqs.get(CQC.get(context, "eqn")) is None:
            raise CommandError(Status.BAD_RESOURCE, f"EQ {CQC.get(context, 'eqn'):#x}")
        if CQC.get(context, "collapsed"):
            raise CommandError(Status.BAD_PARAM, "collapsed CQs are not offered")
        buffer = self.buffer_of(context)
        if fill:
            yield from buffer.fill_owner(self._stride, cqn)
        self._queues[cqn] = CompletionQueue(
            self._bus, self._eqs, cqn, context, buffer, self._stride
        )

    def buffer_of(self, context: bytes) -> OwnedBuffer:
        """Return the ring that a CQ context describes; raises `CommandError`."""
        log_size = CQC.get(context, "log_size")
        if log_size > MAX_LOG_SIZE:
            raise CommandError(Status.BAD_PARAM, f"2**{log_size} completions")
        shift = CQC.get(context, "log_page_size") + 12
        start = CQC.get(context, "page_offset") * RING_UNIT
        if start % self._stride:
            raise CommandError(Status.BAD_PARAM, f"a CQ that begins at {start:#x} of its page")
        mtt_addr = CQC.get(context, "mtt_addr")
        return self._pages.buffer(mtt_addr, shift, self._stride << log_size, start)

    @property
    def _stride(self) -> int:
        """The size of an entry of any queue in bytes, as set by INIT_HCA."""
        return CQE_SIZE << self._parameters.large_cqes

    def destroy(self, cqn: int) -> None:
        """Destroy a queue (HW2SW_CQ), which gets no entry and no event from now on."""
        queue = self._queues.pop(cqn, None)
        if queue is not None:
            queue.broken = True  # a queue pair may still hold it

    def doorbell(self, page: int, value: int) -> None:
        """Take the 64-bit CQ doorbell of a UAR page.

        `value` has sn, command and CQN in its upper half, the consumer index in its lower one.

        A page rings only for queues whose context names it.
        """
        queue = self._queues.get(value >> 32 & INDEX_MASK)
        if queue is not None and queue.uar == page:
            command, index = value >> 56 & 3, value & INDEX_MASK
            if command == FOR_COUNT:
                queue.arm_for(index)
            elif command != NOT_ARMED:
                queue.arm(value >> 60 & 3, command, index)
