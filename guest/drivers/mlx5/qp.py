"""Queue pairs, their states and contexts (ib/qp.c: __mlx5_ib_modify_qp)."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

from bluebridge.device.layout.fields import Value
from bluebridge.device.layout.mlx5.commands import Opcode
from bluebridge.device.layout.mlx5.queue_pairs import (
    QP_CONTEXT,
    QP_IN,
    QPC,
    OptPar,
    Receives,
    Service,
)
from bluebridge.device.layout.mlx5.queue_pairs import QpState as CardState
from bluebridge.device.layout.net.roce import GSI_QPN, MTU_BYTES
from bluebridge.guest.drivers.common.qp_attributes import attributes, own
from bluebridge.guest.drivers.common.shared_receives import log2
from bluebridge.guest.drivers.mlx5.adapter import Adapter
from bluebridge.guest.drivers.mlx5.cq import Cq
from bluebridge.guest.drivers.mlx5.work_queues import Srq, WorkQueues
from bluebridge.guest.drivers.mlx5.wqe import FIRST_UDP_PORT
from bluebridge.guest.errors import VerbsError
from bluebridge.guest.verbs.enums import QpState, QpType
from bluebridge.guest.verbs.transitions import check_step
from bluebridge.guest.verbs.values import QpAttr, QpInit, RoceAddress

SERVICES: Final = {
    QpType.RC: Service.RC,
    QpType.UC: Service.UC,
    QpType.UD: Service.UD,
    QpType.GSI: Service.QP1,
}
_CODES: Final = {size: code for code, size in MTU_BYTES.items()}
_LOG_LONGEST_MESSAGE: Final = 30
_DATAGRAM_MTU: Final = 4096
_LOG_DATAGRAM: Final = 12
_MIGRATED: Final = 3
_PORT: Final = 1
_STATES: Final = {
    CardState.RST: QpState.RESET,
    CardState.INIT: QpState.INIT,
    CardState.RTR: QpState.RTR,
    CardState.RTS: QpState.RTS,
    CardState.SQER: QpState.SQE,
    CardState.SQD: QpState.SQD,
    CardState.ERR: QpState.ERR,
}
_OPCODES: Final = {
    (QpState.RESET, QpState.INIT): Opcode.RST2INIT_QP,
    (QpState.INIT, QpState.INIT): Opcode.INIT2INIT_QP,
    (QpState.INIT, QpState.RTR): Opcode.INIT2RTR_QP,
    (QpState.RTR, QpState.RTS): Opcode.RTR2RTS_QP,
    (QpState.RTS, QpState.RTS): Opcode.RTS2RTS_QP,
}
"""The commands of transitions that carry a context."""
Values = dict[str, Value]


class Qp(WorkQueues):
    """A queue pair of protection domain `pdn`.

    `state` is what software set last, `query_state` asks the device.
    """

    port_number = _PORT

    def __init__(self, adapter: Adapter, pdn: int, init: QpInit) -> None:
        srq = None if init.srq is None else own(Srq, init.srq)
        self.send_cq, self.recv_cq = own(Cq, init.send_cq), own(Cq, init.recv_cq)
        self.state = QpState.RESET
        self._adapter = adapter
        if init.type is QpType.GSI and GSI_QPN in adapter.queue_pairs:
            raise VerbsError("QP1 is in use already")
        super().__init__(adapter, init, srq)
        self.user_index = adapter.name_owner(self)
        self._kind = SERVICES[init.type]
        values = self._fields(pdn)
        data = QP_IN.pack(context=bytes(QPC.pack(values)))
        pages = self._pages(0, len(self.data))
        with ExitStack() as undo:
            undo.callback(self._free)
            self.send_number = adapter.commands.make(Opcode.CREATE_QP, bytes(data) + pages)
            undo.pop_all()
        self.qpn = GSI_QPN if init.type is QpType.GSI else self.send_number
        adapter.queue_pairs[self.qpn] = self

    def modify(self, attr: QpAttr) -> None:
        target = self.state if attr.state is None else attr.state
        check_step(self.state, target)
        if target in (QpState.RESET, QpState.ERR):
            opcode = Opcode.TORST_QP if target is QpState.RESET else Opcode.TOERR_QP
            self._adapter.commands.run(opcode, number=self.send_number)
            self.state = target
            if target is QpState.RESET:
                self._clear(self.user_index)
            return
        opcode = _OPCODES[self.state, target]
        mask, values = 0, self._always_set(opcode, attr)
        for name, part in attributes(attr):
            values |= part
            if opcode is not Opcode.RST2INIT_QP:
                mask |= OptPar[name]
        data = QP_IN.pack(mask=mask, context=bytes(QPC.pack(values)))
        self._adapter.commands.run(opcode, data, number=self.send_number)
        self.state = target

    def query_state(self) -> QpState:
        """Ask the device for the state of the queue pair."""
        output = QP_CONTEXT + QPC.size
        data = self._adapter.commands.run(Opcode.QUERY_QP, number=self.send_number, output=output)
        return _STATES[CardState(QPC.get(data, "state", QP_CONTEXT))]

    def destroy(self) -> None:
        """Reset the queue pair and free its resources; a second call does nothing."""
        if self._adapter.queue_pairs.get(self.qpn) is not self:
            return
        if self.state is not QpState.RESET:
            self.modify_reset()
        self._adapter.commands.run(Opcode.DESTROY_QP, number=self.send_number)
        del self._adapter.queue_pairs[self.qpn]
        self._free()

    def _free(self) -> None:
        del self._adapter.owners[self.user_index]
        self._free_memory()

    def _fields(self, pdn: int) -> Values:
        """Return the fields of the context that CREATE_QP sets for good."""
        values: Values = {
            "service": self._kind, "migration": _MIGRATED, "pd": pdn, "uar": self._adapter.uar,
            "user_index": self.user_index, "cqn_send": self.send_cq.cqn,
            "cqn_recv": self.recv_cq.cqn, "doorbell_record": self._record.address,
            "log_sq_size": self.log_sends, "rq_type": Receives.NONE, "reserved_lkey": 1,
        }  # fmt: skip
        if self.type is QpType.RC:
            values["fast_register"] = 1
        if self.srq is not None:
            values |= {"rq_type": Receives.SHARED, "srqn": self.srq.srqn}
        elif self._rq_count:
            values |= {
                "rq_type": Receives.OWN, "log_rq_size": log2(self._rq_count),
                "log_rq_stride": self._rq_shift - 4,
            }  # fmt: skip
        return values

    def _always_set(self, opcode: Opcode, attr: QpAttr) -> Values:
        if opcode is Opcode.RST2INIT_QP:
            return {"migration": _MIGRATED, "pri_port": _PORT}
        if opcode is Opcode.RTR2RTS_QP:
            return {"next_send_psn": attr.sq_psn or 0}
        if opcode is not Opcode.INIT2RTR_QP:
            return {}
        if self.type in (QpType.UD, QpType.GSI):
            return {"mtu": _CODES[_DATAGRAM_MTU], "log_message": _LOG_DATAGRAM}
        to = attr.address_vector
        if not isinstance(to, RoceAddress) or attr.dest_qpn is None or attr.path_mtu not in _CODES:
            raise VerbsError("RTR needs an address vector, path_mtu (256 … 4096) and dest_qpn")
        return {
            "mtu": _CODES[attr.path_mtu], "log_message": _LOG_LONGEST_MESSAGE,
            "remote_qpn": attr.dest_qpn, "next_recv_psn": attr.rq_psn or 0,
            "pri_source": to.sgid_index, "pri_hop_limit": to.hop_limit,
            "pri_tclass": to.traffic_class, "pri_dscp": to.traffic_class >> 2,
            "pri_flow_label": to.flow_label, "pri_rgid": to.dgid, "pri_rmac": to.dmac,
            "pri_udp_port": FIRST_UDP_PORT, "pri_priority": to.service_level, "pri_port": _PORT,
        }  # fmt: skip
