"""A queue pair of Ethernet frames: an SQ, an RQ, and the TIR that frames take to it.

Linux `ib/qp.c: create_raw_packet_qp, modify_raw_packet_qp`.
"""

from __future__ import annotations

import contextlib
from contextlib import ExitStack
from typing import Final

from bluebridge.device.layout.mlx5.commands import Opcode
from bluebridge.device.layout.mlx5.contexts import (
    RQC,
    SQC,
    TIRC,
    TISC,
    Dispatch,
    QueueState,
    QueueType,
)
from bluebridge.device.layout.mlx5.objects import CONTEXT, MODIFY_QUEUE
from bluebridge.guest.drivers.common.qp_attributes import own
from bluebridge.guest.drivers.common.shared_receives import log2
from bluebridge.guest.drivers.mlx5.adapter import Adapter
from bluebridge.guest.drivers.mlx5.cq import Cq
from bluebridge.guest.drivers.mlx5.ports import NO_TIR, Port
from bluebridge.guest.drivers.mlx5.work_queues import WorkQueues, wq_context
from bluebridge.guest.errors import DeviceLost
from bluebridge.guest.verbs.enums import QpState
from bluebridge.guest.verbs.transitions import check_step
from bluebridge.guest.verbs.values import QpAttr, QpInit

_LOG_BLOCK: Final = 6
_QUEUE_STATES: Final = {
    QpState.RESET: QueueState.RST,
    QpState.INIT: QueueState.RST,
    QpState.RTR: QueueState.RST,
    QpState.RTS: QueueState.RDY,
    QpState.ERR: QueueState.ERR,
}
"""The state of the SQ in each state of the queue pair; the RQ is ready in RTR already."""


class FrameQp(WorkQueues):
    """A queue pair of frames of protection domain `pdn` on `port`; its number is that of its SQ."""

    def __init__(self, adapter: Adapter, pdn: int, init: QpInit, port: Port) -> None:
        self.send_cq, self.recv_cq = own(Cq, init.send_cq), own(Cq, init.recv_cq)
        self.state = QpState.RESET
        self.port_number = port.number
        self._adapter = adapter
        self._port = port
        super().__init__(adapter, init, None)
        self.user_index = adapter.name_owner(self)
        self._rq, self.tir = 0, NO_TIR
        with ExitStack() as undo:
            undo.callback(self._free)
            self._make(pdn, undo)
            self._objects = undo.pop_all()
        self._sq_state = self._rq_state = QueueState.RST
        adapter.queue_pairs[self.qpn] = self

    def modify(self, attr: QpAttr) -> None:
        target = self.state if attr.state is None else attr.state
        check_step(self.state, target)
        wanted = _QUEUE_STATES[target]
        receives = QueueState.RDY if target is QpState.RTR else wanted
        if self._rq_count:
            if receives is QueueState.ERR and self._rq_state is QueueState.RST:
                self._change_rq(QueueState.RDY)  # only a queue that ran fails
            self._change_rq(receives)
        if wanted is not QueueState.ERR or self._sq_state is QueueState.RDY:
            self._change(Opcode.MODIFY_SQ, self.send_number, self._sq_state, wanted)
            self._sq_state = wanted
        self.state = target
        if target is QpState.RESET:
            self._clear(self.user_index)

    def query_state(self) -> QpState:
        """Return the state that software set: the two queues have no more of it."""
        return self.state

    def destroy(self) -> None:
        """Reset the queue pair and free its resources; a second call does nothing."""
        if self._adapter.queue_pairs.get(self.qpn) is not self:
            return
        with contextlib.suppress(DeviceLost):  # the states of a lost device's queues do not matter
            self.modify_reset()
        self._port.release(self.tir)
        del self._adapter.queue_pairs[self.qpn]
        self._objects.close()

    def _make(self, pdn: int, undo: ExitStack) -> None:
        """Make the device's objects; `undo` destroys them in the opposite order."""

        def make(opcode: Opcode, gone: Opcode, data: bytes = b"") -> int:
            number = self._adapter.commands.make(opcode, data)
            undo.callback(self._adapter.commands.run, gone, number=number)
            return number

        self._domain = make(Opcode.ALLOC_TRANSPORT_DOMAIN, Opcode.DEALLOC_TRANSPORT_DOMAIN)
        tis = TISC.pack(transport_domain=self._domain)
        head = bytes(CONTEXT)
        self._tis = make(Opcode.CREATE_TIS, Opcode.DESTROY_TIS, head + bytes(tis))
        self.send_number = make(Opcode.CREATE_SQ, Opcode.DESTROY_SQ, self._sq(pdn))
        self.qpn = self.send_number
        if self._rq_count:
            self._rq = make(Opcode.CREATE_RQ, Opcode.DESTROY_RQ, self._receives(pdn))
            tir = TIRC.pack(dispatch=Dispatch.DIRECT, rqn=self._rq, transport_domain=self._domain)
            self.tir = make(Opcode.CREATE_TIR, Opcode.DESTROY_TIR, head + bytes(tir))

    def _free(self) -> None:
        del self._adapter.owners[self.user_index]
        self._free_memory()

    def _sq(self, pdn: int) -> bytes:
        work = {
            "type": QueueType.CYCLIC, "pd": pdn, "uar": self._adapter.uar,
            "doorbell_record": self._record.address, "log_stride": _LOG_BLOCK,
            "log_size": self.log_sends,
        }  # fmt: skip
        context = SQC.pack(
            cqn=self.send_cq.cqn, flush_in_error=1, user_index=self.user_index, tis_count=1,
            tisn=self._tis,
        )  # fmt: skip
        pages = self._pages(self._sends_at, self._sends)
        return bytes(CONTEXT) + wq_context(work, context) + pages

    def _receives(self, pdn: int) -> bytes:
        work = {
            "type": QueueType.CYCLIC, "pd": pdn, "doorbell_record": self._record.address,
            "log_stride": self._rq_shift, "log_size": log2(self._rq_count),
        }  # fmt: skip
        context = RQC.pack(
            cqn=self.recv_cq.cqn, flush_in_error=1, no_vlan_strip=1, user_index=self.user_index
        )
        return bytes(CONTEXT) + wq_context(work, context) + self._pages(0, self._sends_at)

    def _change_rq(self, wanted: QueueState) -> None:
        self._change(Opcode.MODIFY_RQ, self._rq, self._rq_state, wanted)
        self._rq_state = wanted

    def _change(self, opcode: Opcode, number: int, known: QueueState, wanted: QueueState) -> None:
        if known is wanted:
            return
        head = MODIFY_QUEUE.pack(state=known, number=number)
        table = SQC if opcode is Opcode.MODIFY_SQ else RQC
        self._adapter.commands.run(opcode, bytes(head) + bytes(table.pack(state=wanted)))
