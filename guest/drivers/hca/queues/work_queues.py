"""Queues of work requests in memory, those of a queue pair and shared ones (ib/qp.c, ib/srq.c)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack

from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.contexts import SRQC
from bluebridge.device.layout.mlx4.uar import PAGE_SIZE, SEND_DOORBELL
from bluebridge.guest.drivers.common.receive_queue import Receives
from bluebridge.guest.drivers.common.shared_receives import SharedReceives, log2
from bluebridge.guest.drivers.hca.posting.blueflame import BlueFlame
from bluebridge.guest.drivers.hca.posting.operations import (
    FLAGS,
    IMMEDIATE,
    INVALID,
    OVERHEAD,
    RKEY,
    GsiPosting,
    builders_of,
    operations,
)
from bluebridge.guest.drivers.hca.resources.adapter import Adapter
from bluebridge.guest.errors import VerbsError
from bluebridge.guest.verbs.enums import QpType
from bluebridge.guest.verbs.interface import EthernetPort
from bluebridge.guest.verbs.values import QpInit, SendWr


class Srq(SharedReceives):
    """A queue of receive requests that several queue pairs take from."""

    def __init__(self, adapter: Adapter, pdn: int, max_wr: int, max_sge: int) -> None:
        super().__init__(adapter.bus, max_wr, max_sge, adapter.capability("log_max_srq_wqes"))
        self._adapter = adapter
        with ExitStack() as undo:
            undo.callback(self._free_memory)
            self.srqn = adapter.numbers.shared_receive_queues.allocate()
            undo.callback(adapter.numbers.shared_receive_queues.free, self.srqn)
            self.mtt = adapter.icm.allocate_mtt_contiguous(self._memory.address, len(self.data))
            undo.callback(adapter.icm.free_mtt, self.mtt)
            context = SRQC.pack(
                log_size=self._log,
                srqn=self.srqn,
                log_stride=self.shift - 4,
                mtt_addr=self.mtt.address,
                pd=pdn,
                doorbell_record=self._record.address,
            )
            adapter.commands.run(Opcode.SW2HW_SRQ, self.srqn, data=context)
            self._parts = undo.pop_all()

    def arm_limit(self, limit: int) -> None:
        """Ask for one SRQ_LIMIT event when fewer than `limit` requests are left."""
        self._adapter.commands.run(Opcode.ARM_SRQ, self.srqn, param=limit)

    def destroy(self) -> None:
        """Take the queue back from the device; its queue pairs must be gone."""
        self._adapter.commands.run(Opcode.HW2SW_SRQ, self.srqn, 1)
        self._parts.close()


class WorkQueues(Receives):
    """Send and receive entries of queue pair `qpn`; receives may come from `srq` instead.

    Numbers that posting needs are attributes of this object, as what it posts to is.
    """

    def __init__(
        self,
        adapter: Adapter,
        qpn: int,
        pdn: int,
        init: QpInit,
        port: EthernetPort,
        blueflame: BlueFlame | None,
        srq: Srq | None,
    ) -> None:
        length = (self._sq_count << self.sq_shift) + (self._rq_count << self._rq_shift)
        super().__init__(adapter.bus, init, srq, length)
        self.qpn = qpn
        self._gsi = GsiPosting(port) if init.type is QpType.GSI else None
        builders = builders_of(init.type, pdn, port.number, self._gsi)
        self._operations = operations(init.type, builders, init.signal_all)
        self._lock = threading.Lock()
        self._room = (1 << self.sq_shift) - OVERHEAD[init.type]
        self._icm = adapter.icm
        with ExitStack() as undo:
            undo.callback(Receives._free_memory, self)
            self.mtt = adapter.icm.allocate_mtt_contiguous(self._memory.address, len(self.data))
            undo.pop_all()
        self._words = self.data.cast("I")
        self._ring = adapter.bus.write32
        self._doorbell = adapter.uar * PAGE_SIZE + SEND_DOORBELL
        self._doorbell_value = qpn << 8
        self._blueflame = blueflame
        self._sq_head = self._sq_tail = 0
        self._sq_ids: list[int] = []

    def post_send(self, wrs: SendWr | Sequence[SendWr]) -> None:
        """Post one request or a chain, with one doorbell, or one through BlueFlame if that is on.

        Raises `VerbsError` at the first request that does not fit; those before it are posted.
        """
        requests = (wrs,) if isinstance(wrs, SendWr) else wrs
        self._lock.acquire()
        first = self._sq_head
        try:
            for wr in requests:
                self._post_one(wr)
        finally:
            try:
                if self._sq_head != first and not self._sent(requests, first):
                    self._ring(2, self._doorbell, self._doorbell_value)
            finally:
                self._lock.release()

    def complete_send(self, index: int) -> int:
        """Retire send entries up to the one with 16-bit `index`; returns its wr_id."""
        tail = self._sq_tail + ((index - self._sq_tail) & 0xFFFF)
        self._sq_tail = tail + 1
        return self._sq_ids[tail & self._sq_mask]

    def _size(self, init: QpInit, adapter: Adapter) -> None:
        """Set where the queues lie in their memory; `VerbsError` when the device cannot have them.

        Each has 2^n entries of 2^m bytes; that with the larger ones comes first (ib/qp.c:
        set_kernel_sq_size).
        """
        cap = adapter.capability
        most = 1 << cap("log_max_qp_wqes")
        if not 1 <= init.max_send_wr <= most or init.max_recv_wr > most:
            raise VerbsError(f"queues hold 1 to {most} requests")
        # Inline data loses four bytes at each 64-byte line and is padded at its end.
        inline = init.max_inline + 4 * (init.max_inline // 60 + 2) + 12 if init.max_inline else 0
        overhead = OVERHEAD[init.type]
        size = overhead + max(16 * max(1, init.max_send_sge), inline)
        if size > cap("max_sq_desc") or init.max_recv_sge * 16 > cap("max_rq_desc"):
            raise VerbsError("too many pieces or inline bytes for one queue entry")
        has_receives = init.srq is None and init.max_recv_wr > 0
        self.sq_shift, self._sq_count = max(6, log2(size)), 1 << log2(init.max_send_wr)
        self._rq_shift = max(4, log2(16 * max(1, init.max_recv_sge)))
        self._rq_count = self._most_receives = 1 << log2(init.max_recv_wr) if has_receives else 0
        receives_first = self._rq_count > 0 and self._rq_shift > self.sq_shift
        self._sq_offset = self._rq_count << self._rq_shift if receives_first else 0
        self._rq_offset = 0 if receives_first else self._sq_count << self.sq_shift
        self._sq_mask = self._sq_count - 1
        self._send_sges = ((1 << self.sq_shift) - overhead) >> 4
        self._max_recv_sge = (1 << self._rq_shift) // 16

    def _empty(self) -> None:
        super()._empty()
        self._sq_head = self._sq_tail = 0
        self._sq_ids = [0] * self._sq_count
        for slot in range(self._sq_count):
            self._words[(self._sq_offset + (slot << self.sq_shift)) >> 2] = INVALID

    def _free_memory(self) -> None:
        self._icm.free_mtt(self.mtt)
        self._words.release()
        super()._free_memory()

    def _post_one(self, wr: SendWr) -> None:
        head = self._sq_head
        if head - self._sq_tail > self._sq_mask:
            raise VerbsError(f"the send queue of {self._sq_count} entries is full")
        operation = self._operations.get(wr.opcode)
        if operation is None:
            raise VerbsError(f"{wr.opcode!r} is not possible on {self.type.name} queue pairs")
        if wr.inline_data is not None or len(wr.sg_list) > self._send_sges:
            self._check(wr)
        slot = head & self._sq_mask
        offset = self._sq_offset + (slot << self.sq_shift)
        fence, flags = FLAGS[wr.send_flags]
        flags |= operation.flags
        last = 0
        if operation.last_kind == IMMEDIATE:
            last = wr.imm
        elif operation.last_kind == RKEY:
            last = wr.invalidate_rkey
        elif self._gsi is not None:
            more, last = self._gsi.control_words(wr)
            flags |= more
        operation.builder.write(wr, self.data, offset, fence, flags, last)
        self._sq_ids[slot] = wr.wr_id
        # One 32-bit store makes the entry valid; everything else of it is written by now.
        lap = head & self._sq_count
        self._words[offset >> 2] = operation.valid1 if lap else operation.valid0
        self._sq_head = head + 1

    def _sent(self, requests: Sequence[SendWr], index: int) -> bool:
        """Return True if BlueFlame took what was posted, so that no doorbell is needed."""
        if self._blueflame is None or len(requests) != 1:
            return False
        start = self._sq_offset + ((index & self._sq_mask) << self.sq_shift)
        entry = self.data[start : start + (1 << self.sq_shift)]
        return self._blueflame.send(requests[0], entry, self.qpn, index)

    def _check(self, wr: SendWr) -> None:
        """Raise `VerbsError` for a request too large for an entry, before any byte is written."""
        payload = wr.inline_data
        if payload is None:
            raise VerbsError(f"{len(wr.sg_list)} pieces do not fit into a send entry")
        length = len(payload)
        if length + 4 * (length // 60 + 2) + 12 > self._room:
            raise VerbsError(f"{length} inline bytes do not fit into a send entry")
