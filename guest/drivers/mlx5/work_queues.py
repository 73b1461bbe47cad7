"""Queues of work requests in memory: sends, receives, shared receives (ib/wr.c, ib/srq.c)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from bluebridge.device.layout.mlx5.commands import Opcode
from bluebridge.device.layout.mlx5.contexts import RMPC, WQ, WQ_OFFSET
from bluebridge.device.layout.mlx5.init_segment import SEND_DOORBELL, UAR_BYTES
from bluebridge.device.layout.mlx5.objects import CONTEXT, MODIFY_QUEUE
from bluebridge.device.layout.mlx5.queue_pairs import RMP_LIMIT, RMP_READY
from bluebridge.device.layout.mlx5.wqe import BLOCK_BYTES, CQE_REQUEST
from bluebridge.guest.bus.byte_order import swap32
from bluebridge.guest.drivers.common.receive_queue import Receives
from bluebridge.guest.drivers.common.shared_receives import SharedReceives, log2
from bluebridge.guest.drivers.mlx5.adapter import PAGE, Adapter, page_list
from bluebridge.guest.drivers.mlx5.wqe import KEY_CHANGE_BYTES, OPERATIONS, OVERHEAD, write_entry
from bluebridge.guest.errors import VerbsError
from bluebridge.guest.verbs.enums import QpType, WcOpcode
from bluebridge.guest.verbs.values import QpInit, SendWr

_COUNTER: Final = 0xFFFF
_LONGEST: Final = 1024
"""Bytes of the longest entry (`max_wqe_sz_sq`)."""


def wq_context(values: dict[str, int], head: bytes | bytearray) -> bytes:
    """Return the context of an SQ, RQ or RMP: its own fields in `head`, then the work queue."""
    return bytes(head)[:WQ_OFFSET] + bytes(WQ.pack(dict(values)))


class Srq(SharedReceives):
    """A queue of receive requests that several queue pairs take from: an RMP."""

    def __init__(self, adapter: Adapter, pdn: int, max_wr: int, max_sge: int) -> None:
        super().__init__(adapter.bus, max_wr, max_sge, adapter.capability("log_max_srq_size"))
        self._adapter = adapter
        self._work = {
            "pd": pdn, "doorbell_record": self._record.address, "log_stride": self.shift,
            "log_size": self._log,
        }  # fmt: skip
        context = wq_context(self._work, RMPC.pack(state=RMP_READY))
        pages = page_list(self._memory.address, len(self.data))
        with ExitStack() as undo:
            undo.callback(self._free_memory)
            self.srqn = adapter.commands.make(Opcode.CREATE_RMP, bytes(CONTEXT) + context + pages)
            undo.pop_all()

    def arm_limit(self, limit: int) -> None:
        """Ask for one SRQ_LIMIT event when fewer than `limit` requests are left."""
        head = MODIFY_QUEUE.pack(state=RMP_READY, number=self.srqn, fields=RMP_LIMIT)
        context = wq_context({**self._work, "limit": limit}, RMPC.pack(state=RMP_READY))
        self._adapter.commands.run(Opcode.MODIFY_RMP, bytes(head) + context)

    def destroy(self) -> None:
        """Take the queue back from the device; its queue pairs must be gone."""
        self._adapter.commands.run(Opcode.DESTROY_RMP, number=self.srqn)
        self._free_memory()


class WorkQueues(Receives):
    """Sends and receives of a queue pair in one buffer, receives first; `srq` may replace them.

    `send_number` is that of the queue pair or SQ, which doorbells and entries carry.
    """

    def __init__(self, adapter: Adapter, init: QpInit, srq: Srq | None) -> None:
        self._size(init, adapter)
        super().__init__(adapter.bus, init, srq, self._sends_at + self._sends)
        self.send_number = 0
        self._operations = OPERATIONS[init.type]
        self._always = CQE_REQUEST if init.signal_all else 0
        self._lock = threading.Lock()
        self._ring = adapter.bus.write64
        self._doorbell = adapter.uar * UAR_BYTES + SEND_DOORBELL
        self._blueflame = adapter.blueflame
        self._entry = bytearray(_LONGEST + BLOCK_BYTES)
        self._length = 0
        self._block = self._last = 0
        self._sq_head = self._sq_tail = 0
        self._sent: list[tuple[int, int, WcOpcode]] = []
        self._empty()

    def post_send(self, wrs: SendWr | Sequence[SendWr]) -> None:
        """Post one request or a chain, with one doorbell, or one through BlueFlame if that is on.

        Raises `VerbsError` at the first request that does not fit; those before it are posted.
        """
        requests = (wrs,) if isinstance(wrs, SendWr) else wrs
        with self._lock:
            first = self._block
            try:
                for wr in requests:
                    self._post_one(wr)
            finally:
                if self._block != first:
                    self._record_words[1] = swap32(self._block & _COUNTER)
                    if not self._stored(requests):
                        self._ring(0, self._doorbell, self._last)

    def opcode_of(self, index: int) -> WcOpcode:
        """Return the operation of the send entry that begins at block `index`."""
        return self._sent[index & self._sq_mask][2]

    def complete_send(self, index: int) -> int:
        """Retire send entries up to the one at 16-bit block `index`; returns its wr_id."""
        wr_id, number, _ = self._sent[index & self._sq_mask]
        self._sq_tail = number + 1
        return wr_id

    def _size(self, init: QpInit, adapter: Adapter) -> None:
        """Set where the queues lie in their memory; `VerbsError` when the device cannot have them.

        The send queue has room for as many entries as were asked for, each of the largest size.
        """
        most = 1 << adapter.capability("log_max_qp_size")
        if not 1 <= init.max_send_wr <= most or init.max_recv_wr > most:
            raise VerbsError(f"queues hold 1 to {most} requests")
        inline = (4 + init.max_inline + 15) & ~15 if init.max_inline else 0
        size = OVERHEAD[init.type] + max(16 * max(1, init.max_send_sge), inline)
        if init.type in (QpType.RC, QpType.UC):
            size = max(size, KEY_CHANGE_BYTES)
        longest = min(_LONGEST, adapter.capability("max_wqe_sz_sq"))
        if size > longest or init.max_recv_sge * 16 > adapter.capability("max_wqe_sz_rq"):
            raise VerbsError("too many pieces or inline bytes for one queue entry")
        blocks = -(-size // BLOCK_BYTES)
        self._sq_count = 1 << log2(init.max_send_wr)
        self.log_sends = log2(self._sq_count * blocks)
        if 1 << self.log_sends > most:
            raise VerbsError(f"send queues have at most {most} blocks of {BLOCK_BYTES} bytes")
        self._sends = BLOCK_BYTES << self.log_sends
        self._sq_mask = (1 << self.log_sends) - 1
        self._room = blocks * BLOCK_BYTES - OVERHEAD[init.type]
        has_receives = init.srq is None and init.max_recv_wr > 0
        self._rq_shift = max(4, log2(16 * max(1, init.max_recv_sge)))
        # An SQ of its own begins at a page.
        least = (PAGE if init.type is QpType.RAW_ETH else BLOCK_BYTES) >> self._rq_shift
        self._rq_count = 1 << log2(max(init.max_recv_wr, least)) if has_receives else 0
        self._most_receives = 1 << log2(init.max_recv_wr)
        self._rq_offset = 0
        self._sends_at = self._rq_count << self._rq_shift
        self._max_recv_sge = (1 << self._rq_shift) // 16

    def _pages(self, start: int, length: int) -> bytes:
        """Return the list of pages of a part of the buffer, which begins at a page."""
        return page_list(self._memory.address + start, -(-length // PAGE) * PAGE)

    def _empty(self) -> None:
        super()._empty()
        self._block = self._last = 0
        self._sq_head = self._sq_tail = 0
        self._sent = [(0, 0, WcOpcode.SEND)] * (1 << self.log_sends)

    def _post_one(self, wr: SendWr) -> None:
        head = self._sq_head
        if head - self._sq_tail >= self._sq_count:
            raise VerbsError(f"the send queue of {self._sq_count} entries is full")
        operation = self._operations.get(wr.opcode)
        if operation is None:
            raise VerbsError(f"{wr.opcode!r} is not possible on {self.type.name} queue pairs")
        self._check(wr)
        entry, block = self._entry, self._block
        end = write_entry(wr, operation, entry, block, self.send_number, self._always)
        self._store(entry, block & self._sq_mask, end)
        self._length = end
        self._sent[block & self._sq_mask] = (wr.wr_id, head, operation.done)
        self._last = int.from_bytes(entry[:8], "big")
        self._block = block + -(-end // BLOCK_BYTES)
        self._sq_head = head + 1

    def _store(self, entry: bytearray, slot: int, end: int) -> None:
        """Copy an entry into the ring, at whose end it may go on at the beginning."""
        at, first = self._sends_at, slot * BLOCK_BYTES
        before = min(end, self._sends - first)
        self.data[at + first : at + first + before] = entry[:before]
        if before < end:
            self.data[at : at + end - before] = entry[before:end]

    def _stored(self, requests: Sequence[SendWr]) -> bool:
        """Return True if BlueFlame took what was posted: one request with inline data."""
        register = self._blueflame
        if register is None or len(requests) != 1 or not requests[0].inline_data:
            return False
        if not register.takes(self._length):
            return False
        register.store(self._entry[: self._length])
        return True

    def _check(self, wr: SendWr) -> None:
        """Raise `VerbsError` for a request too large for an entry, before any byte is written."""
        payload = wr.inline_data
        if payload is None:
            if 16 * len(wr.sg_list) > self._room:
                raise VerbsError(f"{len(wr.sg_list)} pieces do not fit into a send entry")
        elif 4 + len(payload) > self._room:
            raise VerbsError(f"{len(payload)} inline bytes do not fit into a send entry")
