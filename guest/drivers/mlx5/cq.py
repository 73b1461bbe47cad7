"""Completion queues (ib/cq.c, inc/cq.h)."""

from __future__ import annotations

import struct
import threading
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
from bluebridge.guest.drivers.mlx5.adapter import Adapter, Resettable, page_list
from bluebridge.guest.drivers.mlx5.event_queues import CompChannel
from bluebridge.guest.errors import VerbsError
from bluebridge.guest.verbs.enums import WcFlags, WcOpcode, WcStatus
from bluebridge.guest.verbs.values import Wc

ENTRY_FORMAT: Final = struct.Struct(">24xI4xII4xI6xBBIHxB")
"""Source, owner, immediate, length; vendor and syndrome of errors; QPN, index, opcode and owner."""
_NUMBER: Final = 0xFFFFFF
_LOG_SIZE: Final = 6
_UNWRITTEN: Final = CqeOpcode.INVALID << 4
_SOLICITED: Final = 1 << 24
_RESPONSES: Final = {
    int(CqeOpcode.RESPONSE_WRITE_IMM): (WcOpcode.RECV_RDMA_WITH_IMM, WcFlags.WITH_IMM),
    int(CqeOpcode.RESPONSE_SEND): (WcOpcode.RECV, WcFlags(0)),
    int(CqeOpcode.RESPONSE_SEND_IMM): (WcOpcode.RECV, WcFlags.WITH_IMM),
    int(CqeOpcode.RESPONSE_SEND_INV): (WcOpcode.RECV, WcFlags.WITH_INV),
}
_STATUSES: Final = {int(code): WcStatus[BY_NAME[code.name].verbs] for code in Syndrome}


class Cq:
    """A completion queue of at least `entries` completions.

    Its events go to `channel`; without one, errors of the queue go to event queue `async_eqn`.
    """

    def __init__(
        self, adapter: Adapter, entries: int, channel: CompChannel | None, async_eqn: int
    ) -> None:
        log = max(1, entries.bit_length())  # one more than asked for, as Linux does
        if entries < 1 or log >= adapter.capability("log_max_cq_size"):
            raise VerbsError(f"a CQ of {entries} entries is not possible")
        self.channel = channel
        self._adapter = adapter
        self._owners = adapter.owners
        self._ring = adapter.bus.write64
        self._log = log
        self._mask = (1 << log) - 1
        self._ci = 0
        self._arm_sn = 1
        self._lock = threading.Lock()
        self._memory = adapter.bus.allocate(max(4096, CQE_SIZE << log))
        self._data = self._memory.view
        for at in range(OWNER_OFFSET, CQE_SIZE << log, CQE_SIZE):
            self._data[at] = _UNWRITTEN | OWNER_BIT
        self._record = adapter.bus.allocate(8, 8)
        self._record_words = self._record.view.cast("I")
        self._doorbell = adapter.uar * UAR_BYTES + CQ_DOORBELL
        context = CQC.pack(
            log_size=log,
            uar=adapter.uar,
            eqn=async_eqn if channel is None else channel.eqn,
            doorbell_record=self._record.address,
        )
        data = (bytes(ENTRY) + bytes(context)).ljust(LIST, b"\0")
        pages = page_list(self._memory.address, len(self._data))
        self.cqn = adapter.commands.make(Opcode.CREATE_CQ, data + pages)
        adapter.completion_queues[self.cqn] = self

    def poll(self, limit: int = 16) -> list[Wc]:
        """Return up to `limit` completions, oldest first; an empty list when there are none."""
        done: list[Wc] = []
        with self._lock:
            ci = first = self._ci
            while len(done) < limit and self._valid(ci):
                wc = self._completion((ci & self._mask) << _LOG_SIZE)
                ci += 1
                if wc is not None:
                    done.append(wc)
            if ci != first:
                self._consumed(ci)
        return done

    def req_notify(self, solicited_only: bool = False) -> None:
        """Ask for one event at the next completion, or the next solicited or failed one.

        The event comes at once when completions are waiting that were not polled yet.
        """
        if self.channel is None:
            raise VerbsError("this CQ has no completion channel")
        command = _SOLICITED if solicited_only else 0
        word = (self._arm_sn & 3) << 28 | command | self._ci & _NUMBER
        self._record_words[1] = swap32(word)
        self._ring(0, self._doorbell, word << 32 | self.cqn)

    def notified(self) -> None:
        """Count an event of this queue: the next arming carries the next sequence number."""
        self._arm_sn += 1

    def destroy(self) -> None:
        """Take the queue back from the device; its queue pairs must be gone."""
        if self._adapter.completion_queues.pop(self.cqn, None) is None:
            return
        self._adapter.commands.run(Opcode.DESTROY_CQ, number=self.cqn)
        self._record_words.release()
        self._record.free()
        self._memory.free()

    def discard(self, user_index: int) -> None:
        """Drop unread completions of a queue pair that was reset (ib/cq.c: __mlx5_ib_cq_clean).

        Later completions move up into the gaps and get the owner bit of their new place.
        """
        data = self._data
        with self._lock:
            last = self._ci
            while last - self._ci <= self._mask and self._valid(last):
                last += 1
            removed = 0
            for index in range(last - 1, self._ci - 1, -1):
                offset = (index & self._mask) << _LOG_SIZE
                fields = ENTRY_FORMAT.unpack_from(data, offset)
                if fields[1] & _NUMBER == user_index:
                    self._return_receive(fields)
                    removed += 1
                elif removed:
                    target = ((index + removed) & self._mask) << _LOG_SIZE
                    owner = data[target + OWNER_OFFSET] & OWNER_BIT
                    kept = data[offset + OWNER_OFFSET] & ~OWNER_BIT
                    data[target : target + OWNER_OFFSET] = data[offset : offset + OWNER_OFFSET]
                    data[target + OWNER_OFFSET] = owner | kept
            if removed:
                self._consumed(self._ci + removed)

    def _valid(self, index: int) -> bool:
        owner = self._data[((index & self._mask) << _LOG_SIZE) + OWNER_OFFSET]
        return owner & 0xF0 != _UNWRITTEN and owner & OWNER_BIT == (index >> self._log) & 1

    def _consumed(self, index: int) -> None:
        self._ci = index
        self._record_words[0] = swap32(index & _NUMBER)

    def _return_receive(self, fields: tuple[int, ...]) -> None:
        opcode, owner = fields[8] >> 4, self._owners.get(fields[1] & _NUMBER)
        if owner is not None and opcode not in (CqeOpcode.REQUEST, CqeOpcode.REQUEST_ERROR):
            owner.return_receive(fields[7])

    def _completion(self, offset: int) -> Wc | None:
        """Return the completion of an entry; None if its queue pair is gone."""
        fields = ENTRY_FORMAT.unpack_from(self._data, offset)
        source, named, imm, length, vendor, syndrome, _, index, owner = fields
        qp: Resettable | None = self._owners.get(named & _NUMBER)
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
            sender = source & _NUMBER
            return Wc(wr_id, WcStatus.SUCCESS, kind, qp.qpn, length, imm, flags, sender)
        status = _STATUSES.get(syndrome, WcStatus.GENERAL_ERR)
        if opcode == CqeOpcode.REQUEST_ERROR:
            wr_id, kind = qp.complete_send(index), WcOpcode.SEND
        else:
            wr_id, kind = qp.complete_recv(index), WcOpcode.RECV
        return Wc(wr_id, status, kind, qp.qpn, vendor_err=vendor)
