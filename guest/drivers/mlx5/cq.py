"""Completion queues (ib/cq.c, inc/cq.h)."""

from __future__ import annotations

import struct
from contextlib import ExitStack
from typing import Final

from bluebridge.device.layout.failures import BY_NAME
from bluebridge.device.layout.mlx5.commands import Opcode
from bluebridge.device.layout.mlx5.contexts import CQC
from bluebridge.device.layout.mlx5.cqe import (
    CQE_SIZE,
    GRH_IN_BUFFER,
    OWNER_BIT,
    OWNER_OFFSET,
    CqeOpcode,
    Syndrome,
)
from bluebridge.device.layout.mlx5.init_segment import CQ_DOORBELL, UAR_BYTES
from bluebridge.device.layout.mlx5.objects import ENTRY, LIST
from bluebridge.guest.bus.byte_order import swap32
from bluebridge.guest.drivers.common.completion_ring import NUMBER, CompletionRing
from bluebridge.guest.drivers.mlx5.adapter import Adapter, Resettable, page_list
from bluebridge.guest.drivers.mlx5.event_queues import CompChannel
from bluebridge.guest.errors import VerbsError
from bluebridge.guest.verbs.enums import WcFlags, WcOpcode, WcStatus
from bluebridge.guest.verbs.values import Wc

ENTRY_FORMAT: Final = struct.Struct(">24xI4xII4xI6xBBIHxB")
"""Source, owner, immediate, length; vendor and syndrome of errors; QPN, index, opcode and owner."""
_SHIFT: Final = 6
_NAMED: Final = 32
_UNWRITTEN: Final = CqeOpcode.INVALID << 4
_SOLICITED: Final = 1 << 24
_RESPONSES: Final = {
    int(CqeOpcode.RESPONSE_WRITE_IMM): (WcOpcode.RECV_RDMA_WITH_IMM, WcFlags.WITH_IMM),
    int(CqeOpcode.RESPONSE_SEND): (WcOpcode.RECV, WcFlags(0)),
    int(CqeOpcode.RESPONSE_SEND_IMM): (WcOpcode.RECV, WcFlags.WITH_IMM),
    int(CqeOpcode.RESPONSE_SEND_INV): (WcOpcode.RECV, WcFlags.WITH_INV),
}
_STATUSES: Final = {int(code): WcStatus[BY_NAME[code.name].verbs] for code in Syndrome}


class Cq(CompletionRing):
    """A completion queue of at least `entries` completions.

    Its events go to `channel`; without one, errors of the queue go to event queue `async_eqn`.
    """

    def __init__(
        self, adapter: Adapter, entries: int, channel: CompChannel | None, async_eqn: int
    ) -> None:
        log = max(1, entries.bit_length())  # one more than asked for, as Linux does
        if entries < 1 or log >= adapter.capability("log_max_cq_size"):
            raise VerbsError(f"a CQ of {entries} entries is not possible")
        super().__init__(adapter.bus, channel, log, _SHIFT, OWNER_BIT, _NAMED)
        self._adapter = adapter
        self._owners = adapter.owners
        self._ring = adapter.bus.write64
        for at in range(OWNER_OFFSET, CQE_SIZE << log, CQE_SIZE):
            self._data[at] = _UNWRITTEN | OWNER_BIT
        self._doorbell = adapter.uar * UAR_BYTES + CQ_DOORBELL
        context = CQC.pack(
            log_size=log,
            uar=adapter.uar,
            eqn=async_eqn if channel is None else channel.eqn,
            doorbell_record=self._record.address,
        )
        data = (bytes(ENTRY) + bytes(context)).ljust(LIST, b"\0")
        pages = page_list(self._memory.address, len(self._data))
        with ExitStack() as undo:
            undo.callback(self._free)
            self.cqn = adapter.commands.make(Opcode.CREATE_CQ, data + pages)
            undo.pop_all()
        adapter.completion_queues[self.cqn] = self

    def destroy(self) -> None:
        """Take the queue back from the device; its queue pairs must be gone."""
        if self._adapter.completion_queues.pop(self.cqn, None) is None:
            return
        self._adapter.commands.run(Opcode.DESTROY_CQ, number=self.cqn)
        self._free()

    def _arm(self, sequence: int, solicited_only: bool) -> None:
        command = _SOLICITED if solicited_only else 0
        word = sequence << 28 | command | self._ci & NUMBER
        self._record_words[1] = swap32(word)
        self._ring(0, self._doorbell, word << 32 | self.cqn)

    def _return_receive(self, number: int, offset: int) -> None:
        *_, index, opcode = ENTRY_FORMAT.unpack_from(self._data, offset)
        owner = self._owners.get(number)
        if owner is not None and opcode >> 4 not in (CqeOpcode.REQUEST, CqeOpcode.REQUEST_ERROR):
            owner.return_receive(index)

    def _completion(self, offset: int) -> Wc | None:
        fields = ENTRY_FORMAT.unpack_from(self._data, offset)
        source, named, imm, length, vendor, syndrome, _, index, owner = fields
        qp: Resettable | None = self._owners.get(named & NUMBER)
        if qp is None:
            return None
        opcode = owner >> 4
        if opcode == CqeOpcode.REQUEST:
            kind = qp.opcode_of(index)
            return Wc(qp.complete_send(index), WcStatus.SUCCESS, kind, qp.qpn, length)
        if opcode in _RESPONSES:
            kind, flags = _RESPONSES[opcode]
            if source & GRH_IN_BUFFER:
                flags |= WcFlags.GRH
            wr_id = qp.complete_recv(index)
            sender = source & NUMBER
            return Wc(wr_id, WcStatus.SUCCESS, kind, qp.qpn, length, imm, flags, sender)
        status = _STATUSES.get(syndrome, WcStatus.GENERAL_ERR)
        if opcode == CqeOpcode.REQUEST_ERROR:
            wr_id, kind = qp.complete_send(index), WcOpcode.SEND
        else:
            wr_id, kind = qp.complete_recv(index), WcOpcode.RECV
        return Wc(wr_id, status, kind, qp.qpn, vendor_err=vendor)
