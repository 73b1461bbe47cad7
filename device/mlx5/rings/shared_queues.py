"""Shared receive queues: RMPs, and those of XRC, whose numbers are of one range.

Linux `ib/srq_cmd.c`: both kinds stand in one table of the driver.
"""

from __future__ import annotations

from typing import Final

from bluebridge.device.layout.mlx5.commands import Status
from bluebridge.device.layout.mlx5.contexts import RMPC, WQ, WQ_OFFSET, QueueType
from bluebridge.device.layout.mlx5.event_queues import DATA_BYTES, DATA_OFFSET, QUEUE_EQE, EventType
from bluebridge.device.layout.mlx5.objects import ENTRY, LIST
from bluebridge.device.layout.mlx5.queue_pairs import (
    KERNEL_USER_INDEX,
    LOG_RECEIVE_UNIT,
    RMP_READY,
    XRC_SRQC,
)
from bluebridge.device.layout.mlx5.user_contexts import RING_UMEM
from bluebridge.device.layout.mlx5.wqe import SEGMENT_BYTES
from bluebridge.device.mlx5.numbers import Numbers, Table
from bluebridge.device.mlx5.rings.page_lists import Place
from bluebridge.device.mlx5.rings.surroundings import Surroundings
from bluebridge.device.mlx5.settings.refused import Refused
from bluebridge.device.rdma.pairs.queues import SharedReceiveQueues
from bluebridge.device.rings.queue_buffer import QueueBuffer
from bluebridge.device.rings.shared_receive_ring import NEXT_SIZE, SharedRing

FIRST_QUEUE: Final = 0x100
MAX_QUEUES: Final = 1 << 16
MAX_LOG_SIZE: Final = 15
MAX_SHIFT: Final = 11
SRQ_EVENT: Final = 3
NO_CQ: Final = -1


class SharedReceiveRing(SharedRing):
    """One shared receive queue; `shown_index` is what completions of XRC name it by."""

    def __init__(
        self,
        around: Surroundings,
        srqn: int,
        context: bytes,
        buffer: QueueBuffer,
        log_size: int,
        shift: int,
        record: int,
    ) -> None:
        pd = WQ.get(context, "pd", WQ_OFFSET)
        super().__init__(around.bus, srqn, pd, buffer, log_size, shift, record & ~3)
        self._eqs = around.eqs
        self.context = context
        self.xrcd = 0
        self.cqn = NO_CQ
        self.shown_index = KERNEL_USER_INDEX

    def announce(self) -> None:
        eqe = QUEUE_EQE.pack(kind=SRQ_EVENT, number=self.srqn)
        data = bytes(eqe[DATA_OFFSET : DATA_OFFSET + DATA_BYTES])
        self._eqs.post_async(EventType.SRQ_LIMIT, data)

    def query(self) -> bytes:
        """Return the present context."""
        context = bytearray(self.context)
        RMPC.set(context, "state", RMP_READY)
        WQ.set(context, "limit", self.limit, WQ_OFFSET)
        WQ.set(context, "hardware_counter", self.consumed, WQ_OFFSET)
        return bytes(context)


class XrcReceiveRing(SharedReceiveRing):
    """A shared receive queue of XRC, whose context has another form."""

    def __init__(
        self,
        around: Surroundings,
        srqn: int,
        context: bytes,
        buffer: QueueBuffer,
        log_size: int,
        shift: int,
    ) -> None:
        get = XRC_SRQC.get
        record = get(context, "doorbell_record")
        super().__init__(around, srqn, bytes(RMPC.size), buffer, log_size, shift, record)
        self.context = context
        self.pd = get(context, "pd")
        self.xrcd = get(context, "xrcd")
        self.cqn = get(context, "cqn")
        user_index = get(context, "user_index")
        self.shown_index = srqn if user_index == KERNEL_USER_INDEX else user_index

    def query(self) -> bytes:
        """Return the present context."""
        context = bytearray(self.context)
        XRC_SRQC.set(context, "limit", self.limit)
        XRC_SRQC.set(context, "counter", self.consumed)
        return bytes(context)


class SharedReceiveRings(SharedReceiveQueues):
    """The shared receive queues of one adapter."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._numbers = Numbers("SRQ", FIRST_QUEUE, MAX_QUEUES)
        self._queues: Table[SharedReceiveRing] = Table("SRQ", self._numbers)

    def reset(self) -> None:
        """Forget all queues."""
        self._queues.reset()

    def __len__(self) -> int:
        return len(self._queues)

    def numbers(self) -> list[int]:
        """The numbers of all queues, oldest first."""
        return list(self._queues)

    def get(self, srqn: int) -> SharedReceiveRing | None:
        return self._queues.get(srqn)

    def known(self, srqn: int) -> SharedReceiveRing:
        """Return the queue `srqn`; raises `Refused` (BAD_RES) without one."""
        return self._queues.known(srqn)

    def create_pool(self, context: bytes, listed: bytes) -> int:
        """Make an RMP (CREATE_RMP); returns its number. Raises `Refused`."""
        get = WQ.get
        log_size, shift = get(context, "log_size", WQ_OFFSET), get(context, "log_stride", WQ_OFFSET)
        kind, plain = get(context, "type", WQ_OFFSET), bool(RMPC.get(context, "plain"))
        if kind not in (QueueType.LINKED_LIST, QueueType.CYCLIC):
            raise Refused(Status.BAD_PARAM, f"an RMP of type {kind} is not offered")
        if plain and kind != QueueType.CYCLIC:
            raise Refused(Status.BAD_PARAM, "entries of a linked list say which is next")
        offset = get(context, "page_offset", WQ_OFFSET)
        pages = get(context, "log_page_size", WQ_OFFSET)
        place = self._around.pages.place(WQ, context, listed, pages, offset, WQ_OFFSET)
        buffer = self._buffer(place, log_size, shift, 0 if plain else NEXT_SIZE)
        record = self._around.pages.record(WQ, context, WQ_OFFSET)
        number = self._numbers.take()
        queue = SharedReceiveRing(self._around, number, context, buffer, log_size, shift, record)
        queue.cyclic = kind == QueueType.CYCLIC
        queue.head = 0 if plain else NEXT_SIZE
        self._queues[number] = queue
        return number

    def create_xrc(self, data: bytes) -> int:
        """Make a queue by the input of CREATE_XRC_SRQ; returns its number. Raises `Refused`."""
        get, context = XRC_SRQC.get, data[ENTRY : ENTRY + XRC_SRQC.size]
        if get(context, "signature") or get(context, "cyclic"):
            raise Refused(Status.BAD_PARAM, "entries of an SRQ are a linked list, not signed")
        log_size, shift = get(context, "log_size"), get(context, "log_stride") + LOG_RECEIVE_UNIT
        offset, pages = get(context, "page_offset"), get(context, "log_page_size")
        place = self._around.pages.place(RING_UMEM, data, data[LIST:], pages, offset)
        buffer = self._buffer(place, log_size, shift)
        number = self._numbers.take()
        self._queues[number] = XrcReceiveRing(
            self._around, number, context, buffer, log_size, shift
        )
        return number

    def _buffer(
        self, place: Place, log_size: int, shift: int, head: int = NEXT_SIZE
    ) -> QueueBuffer:
        if log_size > MAX_LOG_SIZE:
            raise Refused(Status.BAD_PARAM, f"a queue of 2**{log_size} entries")
        if 1 << shift < head + SEGMENT_BYTES or shift > MAX_SHIFT:
            raise Refused(Status.BAD_PARAM, f"entries of 2**{shift} bytes")
        return self._around.pages.buffer(place, 1 << (log_size + shift))

    def destroy(self, srqn: int) -> None:
        """Destroy a queue, from which nothing is taken any more. Raises `Refused` (BAD_RES)."""
        self._queues.remove(srqn)
