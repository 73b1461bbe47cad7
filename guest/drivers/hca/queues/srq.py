"""Shared receive queues (ib/srq.c)."""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence

from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.contexts import SRQC
from bluebridge.guest.drivers.bus.byte_order import swap32
from bluebridge.guest.drivers.hca.posting.wqe import write_receive
from bluebridge.guest.drivers.hca.resources.adapter import Adapter
from bluebridge.guest.errors import VerbsError
from bluebridge.guest.verbs.values import RecvWr

NEXT = struct.Struct(">2xH12x")


class Srq:
    """A queue of receive requests that several queue pairs take from.

    Free entries form a list linked through the entries themselves; one entry stays unused, as in
    Linux, so that head and tail of that list never meet.
    """

    def __init__(self, adapter: Adapter, pdn: int, max_wr: int, max_sge: int) -> None:
        self._adapter = adapter
        self._log = max_wr.bit_length()
        self.shift = (max(32, 16 + 16 * max_sge) - 1).bit_length()
        too_long = self._log > adapter.capability("log_max_srq_wqes")
        if max_wr < 1 or max_sge < 1 or too_long or self.shift > 11:
            raise VerbsError(f"an SRQ of {max_wr} requests of {max_sge} pieces is not possible")
        self._max_sge = (1 << self.shift) // 16 - 1
        count = 1 << self._log
        self.srqn = adapter.numbers.shared_receive_queues.allocate()
        self._memory = adapter.bus.allocate(max(4096, count << self.shift))
        self.data = self._memory.view
        self._record = adapter.bus.allocate(4, 4)
        self.record_word = self._record.view.cast("I")
        self.mtt = adapter.icm.allocate_mtt_contiguous(self._memory.address, len(self.data))
        for index in range(count):
            NEXT.pack_into(self.data, index << self.shift, (index + 1) & (count - 1))
        self._head, self._tail = 0, count - 1
        self._posted = 0
        self._wr_ids = [0] * count
        self._lock = threading.Lock()
        context = SRQC.pack(
            log_size=self._log,
            srqn=self.srqn,
            log_stride=self.shift - 4,
            mtt_addr=self.mtt.address,
            pd=pdn,
            doorbell_record=self._record.address,
        )
        adapter.commands.run(Opcode.SW2HW_SRQ, self.srqn, data=context)

    def post_recv(self, wrs: RecvWr | Sequence[RecvWr]) -> None:
        """Post receive requests; raises `VerbsError` at the first that does not fit."""
        requests = (wrs,) if isinstance(wrs, RecvWr) else wrs
        with self._lock:
            try:
                for wr in requests:
                    self._post(wr)
            finally:
                self.record_word[0] = swap32(self._posted & 0xFFFF)

    def arm_limit(self, limit: int) -> None:
        """Ask for one SRQ_LIMIT event when fewer than `limit` requests are left."""
        self._adapter.commands.run(Opcode.ARM_SRQ, self.srqn, param=limit)

    def complete(self, index: int) -> int:
        """Take entry `index` back after its completion; returns its wr_id."""
        with self._lock:
            NEXT.pack_into(self.data, self._tail << self.shift, index)
            self._tail = index
            return self._wr_ids[index]

    def destroy(self) -> None:
        """Take the queue back from the device; its queue pairs must be gone."""
        self._adapter.commands.run(Opcode.HW2SW_SRQ, self.srqn, 1)
        self._adapter.icm.free_mtt(self.mtt)
        self.record_word.release()
        self._record.free()
        self._memory.free()
        self._adapter.numbers.shared_receive_queues.free(self.srqn)

    def _post(self, wr: RecvWr) -> None:
        if len(wr.sg_list) > self._max_sge:
            raise VerbsError(f"{len(wr.sg_list)} pieces, the queue takes {self._max_sge}")
        if self._head == self._tail:
            raise VerbsError("the shared receive queue is full")
        offset = self._head << self.shift
        self._wr_ids[self._head] = wr.wr_id
        (self._head,) = NEXT.unpack_from(self.data, offset)
        write_receive(self.data, offset + 16, wr, self._max_sge)
        self._posted += 1
