"""Completion queues (ib/cq.c, core/cq.c, inc/cq.h)."""

from __future__ import annotations

import struct
import threading
from typing import Final

from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.contexts import CQC
from bluebridge.device.layout.mlx4.cqe import (
    CQE_SIZE,
    FAILURES,
    IS_SEND_BIT,
    OPCODE_ERROR,
    OPCODE_MASK,
    OWNER_BIT,
    OWNER_OFFSET,
    RecvOpcode,
)
from bluebridge.device.layout.mlx4.uar import CQ_ARM_NEXT, CQ_ARM_SOLICITED, CQ_DOORBELL, PAGE_SIZE
from bluebridge.device.layout.mlx4.wqe import SendOpcode
from bluebridge.guest.bus.byte_order import swap32
from bluebridge.guest.drivers.hca.queues.event_queues import CompChannel
from bluebridge.guest.drivers.hca.resources.adapter import Adapter
from bluebridge.guest.errors import VerbsError
from bluebridge.guest.verbs.enums import WcFlags, WcOpcode, WcStatus
from bluebridge.guest.verbs.values import Wc

SENT = struct.Struct(">I16xIH6x")  # of a send that succeeded: qpn, bytes, index
ENTRY = struct.Struct(">III2x6sIHBB3xB")  # qpn, immediate, source, smac, bytes, index, error …
_NUMBER: Final = 0xFFFFFF
_GRH: Final = 1 << 31

_SEND_OPCODES = {
    SendOpcode.NOP: WcOpcode.NOP,
    SendOpcode.SEND_INVAL: WcOpcode.SEND,
    SendOpcode.SEND: WcOpcode.SEND,
    SendOpcode.SEND_IMM: WcOpcode.SEND,
    SendOpcode.RDMA_WRITE: WcOpcode.RDMA_WRITE,
    SendOpcode.RDMA_WRITE_IMM: WcOpcode.RDMA_WRITE,
    SendOpcode.RDMA_READ: WcOpcode.RDMA_READ,
    SendOpcode.ATOMIC_CS: WcOpcode.COMP_SWAP,
    SendOpcode.ATOMIC_FA: WcOpcode.FETCH_ADD,
    SendOpcode.MASKED_ATOMIC_CS: WcOpcode.MASKED_COMP_SWAP,
    SendOpcode.MASKED_ATOMIC_FA: WcOpcode.MASKED_FETCH_ADD,
    SendOpcode.FAST_REG_MR: WcOpcode.REG_MR,
    SendOpcode.LOCAL_INVAL: WcOpcode.LOCAL_INV,
}
_RECV_KINDS = {
    RecvOpcode.RDMA_WRITE_WITH_IMM: (WcOpcode.RECV_RDMA_WITH_IMM, WcFlags.WITH_IMM),
    RecvOpcode.SEND: (WcOpcode.RECV, WcFlags(0)),
    RecvOpcode.SEND_WITH_IMM: (WcOpcode.RECV, WcFlags.WITH_IMM),
    RecvOpcode.SEND_WITH_INVALIDATE: (WcOpcode.RECV, WcFlags.WITH_INV),
}
_SEND_BY_NUMBER = {int(key): value for key, value in _SEND_OPCODES.items()}
_RECV_BY_NUMBER = {int(key): value for key, value in _RECV_KINDS.items()}
_GRH_FLAGS = {int(key): flags | WcFlags.GRH for key, (_, flags) in _RECV_KINDS.items()}
_STATUS_BY_NUMBER = {int(code): WcStatus[each.verbs] for code, each in FAILURES.items()}
_SUCCESS = WcStatus.SUCCESS


class Cq:
    """A completion queue of at least `entries` completions.

    Its events go to `channel`; without one, errors of the queue go to event queue `async_eqn`.
    """

    def __init__(
        self, adapter: Adapter, entries: int, channel: CompChannel | None, async_eqn: int
    ) -> None:
        log = max(1, entries.bit_length())  # one more than asked for, as Linux does
        if entries < 1 or log >= adapter.capability("log_max_cqes"):
            raise VerbsError(f"a CQ of {entries} entries is not possible")
        self.channel = channel
        self._adapter = adapter
        self._queue_pairs = adapter.queue_pairs
        self._ring = adapter.bus.write64
        self._log = log
        self._mask = (1 << log) - 1
        self._ci = 0
        self._arm_sn = 1
        self._lock = threading.Lock()
        self.cqn = adapter.numbers.completion_queues.allocate()
        self._memory = adapter.bus.allocate(max(4096, CQE_SIZE << log))
        self._data = self._memory.view
        self._record = adapter.bus.allocate(8, 8)
        self._record_words = self._record.view.cast("I")
        self._mtt = adapter.icm.allocate_mtt_contiguous(self._memory.address, len(self._data))
        self._doorbell = adapter.uar * PAGE_SIZE + CQ_DOORBELL
        context = CQC.pack(
            log_size=log,
            uar=adapter.uar,
            eqn=async_eqn if channel is None else channel.eqn,
            mtt_addr=self._mtt.address,
            doorbell_record=self._record.address,
        )
        adapter.completion_queues[self.cqn] = self
        adapter.commands.run(Opcode.SW2HW_CQ, self.cqn, data=context)

    def poll(self, limit: int = 16) -> list[Wc]:
        """Return up to `limit` completions, oldest first; an empty list when there are none."""
        done: list[Wc] = []
        data, mask, log = self._data, self._mask, self._log
        self._lock.acquire()
        try:
            ci = first = self._ci
            while len(done) < limit:
                offset = (ci & mask) << 5
                owner = data[offset + OWNER_OFFSET]
                if owner >> 7 != (ci >> log) & 1:
                    break
                ci += 1
                wc = self._sent(offset, owner) or self._completion(offset)
                if wc is not None:
                    done.append(wc)
            if ci != first:
                self._ci = ci
                self._record_words[0] = swap32(ci & _NUMBER)
        finally:
            self._lock.release()
        return done

    def req_notify(self, solicited_only: bool = False) -> None:
        """Ask for one event at the next completion, or the next solicited or failed one.

        The event comes at once when completions are waiting that were not polled yet.
        """
        if self.channel is None:
            raise VerbsError("this CQ has no completion channel")
        command = CQ_ARM_SOLICITED if solicited_only else CQ_ARM_NEXT
        ci = self._ci & _NUMBER
        high = (self._arm_sn & 3) << 28 | command << 24
        self._record_words[1] = swap32(high | ci)
        self._ring(2, self._doorbell, (high | self.cqn) << 32 | ci)

    def notified(self) -> None:
        """Count an event of this queue: the next arming carries the next sequence number."""
        self._arm_sn += 1

    def destroy(self) -> None:
        """Take the queue back from the device; its queue pairs must be gone."""
        if self._adapter.completion_queues.pop(self.cqn, None) is None:
            return
        self._adapter.commands.run(Opcode.HW2SW_CQ, self.cqn, 1)
        self._adapter.icm.free_mtt(self._mtt)
        self._record_words.release()
        self._record.free()
        self._memory.free()
        self._adapter.numbers.completion_queues.free(self.cqn)

    def discard(self, qpn: int) -> None:
        """Drop unread completions of a queue pair that was reset (ib/cq.c: __mlx4_ib_cq_clean).

        Later completions move up into the gaps and get the lap bit of their new place.
        """
        data = self._data
        with self._lock:
            last = self._ci
            while last - self._ci <= self._mask and self._valid(last):
                last += 1
            removed = 0
            for index in range(last - 1, self._ci - 1, -1):
                offset = (index & self._mask) << 5
                (word,) = struct.unpack_from(">I", data, offset)
                if word & _NUMBER == qpn:
                    self._return_srq_entry(qpn, offset)
                    removed += 1
                elif removed:
                    target = ((index + removed) & self._mask) << 5
                    owner = data[target + OWNER_OFFSET] & OWNER_BIT
                    kept = data[offset + OWNER_OFFSET] & ~OWNER_BIT
                    data[target : target + OWNER_OFFSET] = data[offset : offset + OWNER_OFFSET]
                    data[target + OWNER_OFFSET] = owner | kept
            if removed:
                self._ci += removed
                self._record_words[0] = swap32(self._ci & _NUMBER)

    def _valid(self, index: int) -> bool:
        owner = self._data[((index & self._mask) << 5) + OWNER_OFFSET]
        return owner >> 7 == (index >> self._log) & 1

    def _return_srq_entry(self, qpn: int, offset: int) -> None:
        qp = self._queue_pairs.get(qpn)
        if qp is None or self._data[offset + OWNER_OFFSET] & IS_SEND_BIT:
            return
        (index,) = struct.unpack_from(">H", self._data, offset + 0x18)
        qp.return_receive(index)

    def _sent(self, offset: int, owner: int) -> Wc | None:
        """Return the completion of a send that succeeded; None for any other entry."""
        opcode = owner & OPCODE_MASK
        if not owner & IS_SEND_BIT or opcode == OPCODE_ERROR:
            return None
        number, count, index = SENT.unpack_from(self._data, offset)
        qp = self._queue_pairs.get(number & _NUMBER)
        if qp is None:
            return None
        return Wc(qp.complete_send(index), _SUCCESS, _SEND_BY_NUMBER[opcode], qp.qpn, count)

    def _completion(self, offset: int) -> Wc | None:
        """Return the completion of any other entry; None if its queue pair is gone."""
        qpn, imm, source, smac, count, index, vendor, syndrome, owner = ENTRY.unpack_from(
            self._data, offset
        )
        qp = self._queue_pairs.get(qpn & _NUMBER)
        if qp is None:
            return None
        opcode = owner & OPCODE_MASK
        if owner & IS_SEND_BIT:
            wr_id = qp.complete_send(index)
        else:
            wr_id = qp.complete_recv(index)
            if opcode != OPCODE_ERROR:
                kind, flags = _RECV_BY_NUMBER[opcode]
                if not source:
                    return Wc(wr_id, _SUCCESS, kind, qp.qpn, count, imm, flags)
                if source & _GRH:
                    flags = _GRH_FLAGS[opcode]
                return Wc(wr_id, _SUCCESS, kind, qp.qpn, count, imm, flags, source & _NUMBER, smac)
        status = _STATUS_BY_NUMBER.get(syndrome, WcStatus.GENERAL_ERR)
        kind = WcOpcode.SEND if owner & IS_SEND_BIT else WcOpcode.RECV
        return Wc(wr_id, status, kind, qp.qpn, vendor_err=vendor)
