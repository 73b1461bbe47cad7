"""Completion queues (ib/cq.c, core/cq.c, inc/cq.h)."""

from __future__ import annotations

import struct
from contextlib import ExitStack
from typing import Final

from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.contexts import CQC
from bluebridge.device.layout.mlx4.cqe import (
    FAILURES,
    IS_SEND_BIT,
    OPCODE_ERROR,
    OPCODE_MASK,
    OWNER_BIT,
    RecvOpcode,
)
from bluebridge.device.layout.mlx4.uar import CQ_ARM_NEXT, CQ_ARM_SOLICITED, CQ_DOORBELL, PAGE_SIZE
from bluebridge.device.layout.mlx4.wqe import SendOpcode
from bluebridge.guest.bus.byte_order import swap32
from bluebridge.guest.drivers.common.completion_ring import NUMBER, CompletionRing
from bluebridge.guest.drivers.hca.queues.event_queues import CompChannel
from bluebridge.guest.drivers.hca.resources.adapter import Adapter
from bluebridge.guest.errors import VerbsError
from bluebridge.guest.verbs.enums import WcFlags, WcOpcode, WcStatus
from bluebridge.guest.verbs.values import Wc

SENT = struct.Struct(">I16xIH6x")  # of a send that succeeded: qpn, bytes, index
ENTRY = struct.Struct(">III2x6sIHBB3xB")  # qpn, immediate, source, smac, bytes, index, error …
_SHIFT: Final = 5
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


class Cq(CompletionRing):
    """A completion queue of at least `entries` completions.

    Its events go to `channel`; without one, errors of the queue go to event queue `async_eqn`.
    """

    def __init__(
        self, adapter: Adapter, entries: int, channel: CompChannel | None, async_eqn: int
    ) -> None:
        log = max(1, entries.bit_length())  # one more than asked for, as Linux does
        if entries < 1 or log >= adapter.capability("log_max_cqes"):
            raise VerbsError(f"a CQ of {entries} entries is not possible")
        super().__init__(adapter.bus, channel, log, _SHIFT, OWNER_BIT, 0)
        self._adapter = adapter
        self._queue_pairs = adapter.queue_pairs
        self._ring = adapter.bus.write64
        self._doorbell = adapter.uar * PAGE_SIZE + CQ_DOORBELL
        with ExitStack() as undo:
            undo.callback(self._free)
            self.cqn = adapter.numbers.completion_queues.allocate()
            undo.callback(adapter.numbers.completion_queues.free, self.cqn)
            mtt = adapter.icm.allocate_mtt_contiguous(self._memory.address, len(self._data))
            undo.callback(adapter.icm.free_mtt, mtt)
            context = CQC.pack(
                log_size=log,
                uar=adapter.uar,
                eqn=async_eqn if channel is None else channel.eqn,
                mtt_addr=mtt.address,
                doorbell_record=self._record.address,
            )
            adapter.commands.run(Opcode.SW2HW_CQ, self.cqn, data=context)
            self._parts = undo.pop_all()
        adapter.completion_queues[self.cqn] = self

    def destroy(self) -> None:
        """Take the queue back from the device; its queue pairs must be gone."""
        if self._adapter.completion_queues.pop(self.cqn, None) is None:
            return
        self._adapter.commands.run(Opcode.HW2SW_CQ, self.cqn, 1)
        self._parts.close()

    def _arm(self, sequence: int, solicited_only: bool) -> None:
        command = CQ_ARM_SOLICITED if solicited_only else CQ_ARM_NEXT
        ci = self._ci & NUMBER
        high = sequence << 28 | command << 24
        self._record_words[1] = swap32(high | ci)
        self._ring(2, self._doorbell, (high | self.cqn) << 32 | ci)

    def _return_receive(self, number: int, offset: int) -> None:
        qp = self._queue_pairs.get(number)
        if qp is None or self._data[offset + self._last] & IS_SEND_BIT:
            return
        (index,) = struct.unpack_from(">H", self._data, offset + 0x18)
        qp.return_receive(index)

    def _completion(self, offset: int) -> Wc | None:
        owner = self._data[offset + self._last]
        opcode = owner & OPCODE_MASK
        if owner & IS_SEND_BIT and opcode != OPCODE_ERROR:
            number, count, index = SENT.unpack_from(self._data, offset)
            qp = self._queue_pairs.get(number & NUMBER)
            if qp is None:
                return None
            return Wc(qp.complete_send(index), _SUCCESS, _SEND_BY_NUMBER[opcode], qp.qpn, count)
        return self._other(offset)

    def _other(self, offset: int) -> Wc | None:
        """Return the completion of any entry but that of a send that succeeded."""
        qpn, imm, source, smac, count, index, vendor, syndrome, owner = ENTRY.unpack_from(
            self._data, offset
        )
        qp = self._queue_pairs.get(qpn & NUMBER)
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
                return Wc(wr_id, _SUCCESS, kind, qp.qpn, count, imm, flags, source & NUMBER, smac)
        status = _STATUS_BY_NUMBER.get(syndrome, WcStatus.GENERAL_ERR)
        kind = WcOpcode.SEND if owner & IS_SEND_BIT else WcOpcode.RECV
        return Wc(wr_id, status, kind, qp.qpn, vendor_err=vendor)
