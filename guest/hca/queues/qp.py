"""Queue pairs (ib/qp.c): memory, states, posting."""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence

from bluebridge.device.layout.fields import Value
from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.contexts import QPC, QPC_MAILBOX_OFFSET
from bluebridge.device.layout.mlx4.uar import PAGE_SIZE, SEND_DOORBELL
from bluebridge.guest.hca.posting.blueflame import BlueFlame
from bluebridge.guest.hca.posting.byte_order import swap32
from bluebridge.guest.hca.posting.gsi import GsiPosting
from bluebridge.guest.hca.posting.operations import (
    FLAGS,
    IMMEDIATE,
    INVALID,
    OVERHEAD,
    RKEY,
    builders_of,
    operations,
)
from bluebridge.guest.hca.posting.wqe import write_receive
from bluebridge.guest.hca.queues.cq import Cq
from bluebridge.guest.hca.queues.qp_context import constant_fields, mailbox, transition
from bluebridge.guest.hca.queues.qp_geometry import Geometry, log2
from bluebridge.guest.hca.queues.srq import Srq
from bluebridge.guest.hca.resources.adapter import Adapter
from bluebridge.guest.verbs.enums import AccessFlags, QpState, QpType
from bluebridge.guest.verbs.errors import VerbsError
from bluebridge.guest.verbs.interface import EthernetPort
from bluebridge.guest.verbs.objects import CompletionQueue, SharedReceiveQueue
from bluebridge.guest.verbs.requests import QpInit, SendWr
from bluebridge.guest.verbs.values import AddressVector, QpAttr, RecvWr

_CTRL_REST = struct.Struct(">III")
_NO_MAILBOX = 2
_DEVICE_STATES = {
    0: QpState.RESET,
    1: QpState.INIT,
    2: QpState.RTR,
    3: QpState.RTS,
    4: QpState.SQE,
    5: QpState.SQD,
    6: QpState.ERR,
    7: QpState.SQD,
}


class Qp:
    """A queue pair of protection domain `pdn`, whose frames leave through `port`.

    `state` is what software set last, `query_state` asks the device. With `blueflame` posts go
    through it where they may.
    """

    def __init__(
        self,
        adapter: Adapter,
        pdn: int,
        init: QpInit,
        port: EthernetPort,
        blueflame: BlueFlame | None,
    ) -> None:
        self._adapter = adapter
        self.type = init.type
        self.send_cq, self.recv_cq = _own_cq(init.send_cq), _own_cq(init.recv_cq)
        self.srq = _own_srq(init.srq)
        self.state = QpState.RESET
        self._gsi = GsiPosting(port) if init.type is QpType.GSI else None
        builders = builders_of(init.type, pdn, self._gsi)
        self._operations = operations(init.type, builders, init.signal_all)
        self._lock = threading.Lock()
        self._recv_lock = threading.Lock()
        self._size(init)
        self.qpn = self._allocate_number()
        length = (self._sq_count << self._sq_shift) + (self._rq_count << self._rq_shift)
        self._memory = adapter.bus.allocate(max(4096, -(-length // 4096) * 4096))
        self._data = self._memory.view
        self._words = self._data.cast("I")
        self._mtt = adapter.icm.allocate_mtt_contiguous(self._memory.address, len(self._data))
        self._record = adapter.bus.allocate(4, 4)
        self._record_word = self._record.view.cast("I")
        self._ring = adapter.bus.write32
        self._doorbell = adapter.uar * PAGE_SIZE + SEND_DOORBELL
        self._doorbell_value = self.qpn << 8
        self._blueflame = blueflame
        self._fixed = self._fixed_fields(pdn)
        self._sq_head = self._sq_tail = self._rq_head = self._rq_tail = 0
        self._sq_ids: list[int] = []
        self._rq_ids: list[int] = []
        self._clear()
        adapter.queue_pairs[self.qpn] = self

    # -- states ------------------------------------------------------------------------------

    def modify(self, attr: QpAttr) -> None:
        """Change state and attributes; raises `VerbsError`."""
        target = self.state if attr.state is None else attr.state
        opcode = transition(self.state, target)
        if opcode is Opcode.TORST_QP:
            self._adapter.commands.run(opcode, self.qpn, _NO_MAILBOX)
            self.state = target
            self._clear()
            return
        data = mailbox(self.type, opcode, attr, self._fixed, self._memory_fields())
        self._adapter.commands.run(opcode, self.qpn, data=data)
        self.state = target

    def modify_init(self, access: AccessFlags | int = 0, qkey: int | None = None) -> None:
        """RESET to INIT with what peers may do; datagram queue pairs need a Q_Key."""
        self.modify(QpAttr(QpState.INIT, access=access, qkey=qkey))

    def modify_rtr(
        self,
        address_vector: AddressVector | None = None,
        dest_qpn: int | None = None,
        rq_psn: int = 0,
        *,
        path_mtu: int = 1024,
        max_dest_rd_atomic: int = 16,
        min_rnr_timer: int = 12,
    ) -> None:
        """INIT to RTR; address vector and peer belong to connected queue pairs."""
        attr = QpAttr(QpState.RTR)
        if self.type in (QpType.RC, QpType.UC):
            attr.address_vector, attr.dest_qpn = address_vector, dest_qpn
            attr.rq_psn, attr.path_mtu = rq_psn, path_mtu
        if self.type is QpType.RC:
            attr.max_dest_rd_atomic, attr.min_rnr_timer = max_dest_rd_atomic, min_rnr_timer
        self.modify(attr)

    def modify_rts(
        self,
        sq_psn: int = 0,
        *,
        timeout: int = 14,
        retry_count: int = 7,
        rnr_retry: int = 7,
        max_rd_atomic: int = 16,
    ) -> None:
        """RTR to RTS; the parameters but the PSN are those of an RC queue pair."""
        attr = QpAttr(QpState.RTS, sq_psn=sq_psn)
        if self.type is QpType.RC:
            attr.timeout, attr.retry_count = timeout, retry_count
            attr.rnr_retry, attr.max_rd_atomic = rnr_retry, max_rd_atomic
        self.modify(attr)

    def modify_err(self) -> None:
        """To ERR: everything posted is flushed."""
        self.modify(QpAttr(QpState.ERR))

    def modify_reset(self) -> None:
        """To RESET: everything posted is forgotten, unread completions too."""
        self.modify(QpAttr(QpState.RESET))

    def query_state(self) -> QpState:
        """The state the device has the queue pair in."""
        data = self._adapter.commands.query(Opcode.QUERY_QP, self.qpn)
        return _DEVICE_STATES[QPC.get(data, "state", QPC_MAILBOX_OFFSET)]

    def destroy(self) -> None:
        """Reset and give everything back; a second call does nothing."""
        if self._adapter.queue_pairs.get(self.qpn) is not self:
            return
        self.modify_reset()
        del self._adapter.queue_pairs[self.qpn]
        self._adapter.icm.free_mtt(self._mtt)
        self._words.release()
        self._record_word.release()
        self._record.free()
        self._memory.free()
        if self.type is not QpType.GSI:
            self._adapter.numbers.queue_pairs.free(self.qpn)

    # -- posting ------------------------------------------------------------------------------

    def post_send(self, wrs: SendWr | Sequence[SendWr]) -> None:
        """Post one request or a chain, with one doorbell, or one through BlueFlame if that is on.

        Raises `VerbsError` at the first request that does not fit; those before it are posted.
        """
        requests = (wrs,) if isinstance(wrs, SendWr) else wrs
        with self._lock:
            first = self._sq_head
            try:
                for wr in requests:
                    self._post_one(wr)
            finally:
                if self._sq_head != first and not self._sent(requests, first):
                    self._ring(2, self._doorbell, self._doorbell_value)

    def post_recv(self, wrs: RecvWr | Sequence[RecvWr]) -> None:
        """Post one receive request or several; raises `VerbsError` like `post_send`."""
        requests = (wrs,) if isinstance(wrs, RecvWr) else wrs
        if not self._rq_count:
            raise VerbsError("this queue pair has no receive queue of its own")
        with self._recv_lock:
            try:
                for wr in requests:
                    self._receive_one(wr)
            finally:
                self._record_word[0] = swap32(self._rq_head & 0xFFFF)

    def complete_send(self, index: int) -> int:
        """Retire send entries up to the one with 16-bit `index`; its wr_id."""
        tail = self._sq_tail + ((index - self._sq_tail) & 0xFFFF)
        self._sq_tail = tail + 1
        return self._sq_ids[tail & self._sq_mask]

    def complete_recv(self, index: int) -> int:
        """Retire the oldest receive entry, or SRQ entry `index`; its wr_id."""
        if self.srq is not None:
            return self.srq.complete(index)
        tail = self._rq_tail
        self._rq_tail = tail + 1
        return self._rq_ids[tail & (self._rq_count - 1)]

    def return_receive(self, index: int) -> None:
        """Give SRQ entry `index` back, whose completion nobody will read."""
        if self.srq is not None:
            self.srq.complete(index)

    def _allocate_number(self) -> int:
        """A number for a new queue pair; QP1 exists once."""
        numbers = self._adapter.numbers
        if self.type is not QpType.GSI:
            return numbers.queue_pairs.allocate()
        if numbers.gsi_qpn in self._adapter.queue_pairs:
            raise VerbsError("QP1 is in use already")
        return numbers.gsi_qpn

    def _fixed_fields(self, pdn: int) -> dict[str, Value]:
        """Context fields that every transition repeats: numbers, sizes and SRQ."""
        values: dict[str, Value] = {
            **constant_fields(self.type),
            "pd": pdn,
            "local_qpn": self.qpn,
            "uar": self._adapter.uar,
            "cqn_send": self.send_cq.cqn,
            "cqn_recv": self.recv_cq.cqn,
            "log_sq_size": log2(self._sq_count),
            "log_sq_stride": self._sq_shift - 4,
            "log_rq_size": log2(self._rq_count),
            "log_rq_stride": self._rq_shift - 4,
        }
        if self.srq is not None:
            values |= {"use_srq": 1, "srqn": self.srq.srqn, "rsvd_ic": 1}
        return values

    def _memory_fields(self) -> dict[str, Value]:
        """Context fields that tell where the queues are: RESET to INIT only."""
        values: dict[str, Value] = {"mtt_addr": self._mtt.address}
        if self._rq_count:
            values["doorbell_record"] = self._record.address
        return values

    def _size(self, init: QpInit) -> None:
        """Lay the queues out; posting reads these numbers from the object itself, for speed."""
        geometry = Geometry.of(init, self._adapter.limits)
        self._sq_shift, self._rq_shift = geometry.sq_shift, geometry.rq_shift
        self._sq_count, self._rq_count = geometry.sq_count, geometry.rq_count
        self._sq_offset, self._rq_offset = geometry.sq_offset, geometry.rq_offset
        self._sq_mask = self._sq_count - 1
        self._send_sges, self._max_recv_sge = geometry.send_sges, geometry.recv_sges

    def _clear(self) -> None:
        """Empty queues, as they must be on leaving RESET."""
        self.recv_cq.discard(self.qpn)
        if self.send_cq is not self.recv_cq:
            self.send_cq.discard(self.qpn)
        self._sq_head = self._sq_tail = 0
        self._rq_head = self._rq_tail = 0
        self._sq_ids = [0] * self._sq_count
        self._rq_ids = [0] * max(1, self._rq_count)
        for slot in range(self._sq_count):
            self._words[(self._sq_offset + (slot << self._sq_shift)) >> 2] = INVALID
        self._record_word[0] = 0

    def _post_one(self, wr: SendWr) -> None:
        head = self._sq_head
        if head - self._sq_tail > self._sq_mask:
            raise VerbsError(f"the send queue of {self._sq_count} entries is full")
        operation = self._operations.get(wr.opcode)
        if operation is None:
            raise VerbsError(f"{wr.opcode!r} is not possible on {self.type.name} queue pairs")
        builder, first_words, word, last_kind = operation
        if wr.inline_data is not None or len(wr.sg_list) > self._send_sges:
            self._check(wr)
        slot = head & self._sq_mask
        offset = self._sq_offset + (slot << self._sq_shift)
        size = (builder(wr, self._data, offset + 16) - offset) >> 4
        fence, flags = FLAGS[int(wr.send_flags)]
        word |= flags
        last = 0
        if last_kind == IMMEDIATE:
            last = wr.imm
        elif last_kind == RKEY:
            last = wr.invalidate_rkey
        elif self._gsi is not None:
            more, last = self._gsi.control_words(wr)
            word |= more
        _CTRL_REST.pack_into(self._data, offset + 4, size | fence, word, last)
        self._sq_ids[slot] = wr.wr_id
        # One 32-bit store makes the entry valid; everything else of it is written by now.
        self._words[offset >> 2] = first_words[1 if head & self._sq_count else 0]
        self._sq_head = head + 1

    def _sent(self, requests: Sequence[SendWr], index: int) -> bool:
        """Whether BlueFlame took what was posted, so that no doorbell is needed."""
        if self._blueflame is None or len(requests) != 1:
            return False
        start = self._sq_offset + ((index & self._sq_mask) << self._sq_shift)
        entry = self._data[start : start + (1 << self._sq_shift)]
        return self._blueflame.send(requests[0], entry, self.qpn, index)

    def _check(self, wr: SendWr) -> None:
        """Refuse what does not fit into an entry, before a byte of it is written."""
        room = (1 << self._sq_shift) - OVERHEAD[self.type]
        payload = wr.inline_data
        if payload is None:
            raise VerbsError(f"{len(wr.sg_list)} pieces do not fit into a send entry")
        length = len(payload)
        if length + 4 * (length // 60 + 2) + 12 > room:
            raise VerbsError(f"{length} inline bytes do not fit into a send entry")

    def _receive_one(self, wr: RecvWr) -> None:
        head = self._rq_head
        if head - self._rq_tail >= self._rq_count:
            raise VerbsError(f"the receive queue of {self._rq_count} entries is full")
        if len(wr.sg_list) > self._max_recv_sge:
            raise VerbsError(f"{len(wr.sg_list)} pieces, the queue takes {self._max_recv_sge}")
        slot = head & (self._rq_count - 1)
        offset = self._rq_offset + (slot << self._rq_shift)
        write_receive(self._data, offset, wr, self._max_recv_sge)
        self._rq_ids[slot] = wr.wr_id
        self._rq_head = head + 1


def _own_cq(cq: CompletionQueue) -> Cq:
    """The completion queue of a new queue pair; raises `VerbsError` for another provider's."""
    if not isinstance(cq, Cq):
        raise VerbsError("the completion queue is not one of this device")
    return cq


def _own_srq(srq: SharedReceiveQueue | None) -> Srq | None:
    """The shared receive queue of a new queue pair, if it has one."""
    if srq is not None and not isinstance(srq, Srq):
        raise VerbsError("the shared receive queue is not one of this device")
    return srq
