"""Shared receive queues as contexts of a ConnectX-3 describe them."""

from __future__ import annotations

from bluebridge.device.layout.mlx4.commands import Status
from bluebridge.device.layout.mlx4.contexts import SRQC, WORK_RING_UNIT
from bluebridge.device.layout.mlx4.eqe import EventType
from bluebridge.device.mlx4.rings.event_queues import EventQueues
from bluebridge.device.mlx4.rings.ring_buffer import RingPages
from bluebridge.device.mlx4.settings.parameters import CommandError, Parameters
from bluebridge.device.pci.bus import HostBus
from bluebridge.device.rdma.pairs.queues import SharedReceiveQueues
from bluebridge.device.rings.shared_receive_ring import NEXT_SIZE, SharedRing


class SharedReceiveRing(SharedRing):
    """One SRQ as its context describes it; raises `CommandError` for one that makes no sense."""

    def __init__(
        self, bus: HostBus, eqs: EventQueues, pages: RingPages, srqn: int, context: bytes
    ) -> None:
        get = SRQC.get
        log_size, shift = get(context, "log_size"), get(context, "log_stride") + 4
        if 1 << shift <= NEXT_SIZE:
            raise CommandError(Status.BAD_PARAM, "an SRQ entry has room for a segment")
        buffer = pages.buffer(
            get(context, "mtt_addr"),
            get(context, "log_page_size") + 12,
            1 << (log_size + shift),
            get(context, "page_offset") * WORK_RING_UNIT,
        )
        record = get(context, "doorbell_record") & ~3
        super().__init__(bus, srqn, get(context, "pd"), buffer, log_size, shift, record)
        self._eqs = eqs
        self._context = context
        self.xrcd = get(context, "xrcd")
        self.cqn = get(context, "cqn")

    def announce(self) -> None:
        self._eqs.post_numbered(EventType.SRQ_LIMIT, self.srqn)

    def query(self) -> bytes:
        """Return the present context (QUERY_SRQ)."""
        context = bytearray(self._context)
        SRQC.set(context, "srqn", self.srqn)
        SRQC.set(context, "limit_watermark", self.limit)
        SRQC.set(context, "wqe_counter", self.consumed)
        return bytes(context)


class SharedReceiveRings(SharedReceiveQueues):
    """The shared receive queues of one HCA."""

    def __init__(
        self, bus: HostBus, pages: RingPages, eqs: EventQueues, parameters: Parameters
    ) -> None:
        self._bus = bus
        self._pages = pages
        self._eqs = eqs
        self._parameters = parameters
        self._queues: dict[int, SharedReceiveRing] = {}

    def reset(self) -> None:
        """Forget all queues."""
        self._queues.clear()

    def numbers(self) -> list[int]:
        """The numbers of all queues, oldest first."""
        return list(self._queues)

    def get(self, srqn: int) -> SharedReceiveRing | None:
        """Return the queue `srqn`; None unless hardware owns it."""
        return self._queues.get(srqn)

    def create(self, srqn: int, context: bytes) -> None:
        """Make a queue (SW2HW_SRQ).

        Raises `CommandError`: BAD_INDEX, BAD_RES_STATE, BAD_PARAM, ICM_ERROR.
        """
        if srqn >> self._parameters.log_srqs:
            raise CommandError(Status.BAD_INDEX, f"SRQ {srqn:#x}")
        if srqn in self._queues:
            raise CommandError(Status.BAD_RES_STATE, f"SRQ {srqn:#x} is in use")
        self._queues[srqn] = SharedReceiveRing(self._bus, self._eqs, self._pages, srqn, context)

    def destroy(self, srqn: int) -> None:
        """Destroy a queue (HW2SW_SRQ); queue pairs that name it receive nothing any more."""
        self._queues.pop(srqn, None)
