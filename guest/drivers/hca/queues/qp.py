"""Queue pairs, their states and contexts (ib/qp.c: __mlx4_ib_modify_qp)."""

from __future__ import annotations

from contextlib import ExitStack

from bluebridge.device.layout.fields import Value
from bluebridge.device.layout.mlx4.commands import TRANSITIONS, Opcode, OptPar
from bluebridge.device.layout.mlx4.contexts import (
    QPC,
    QPC_MAILBOX_OFFSET,
    ROCE_MODE_V2,
    ServiceType,
)
from bluebridge.device.layout.net.ip import ROCE_V2
from bluebridge.device.layout.net.roce import MTU_BYTES
from bluebridge.guest.drivers.common.qp_attributes import attributes, own
from bluebridge.guest.drivers.common.shared_receives import log2
from bluebridge.guest.drivers.hca.posting.blueflame import BlueFlame
from bluebridge.guest.drivers.hca.queues.cq import Cq
from bluebridge.guest.drivers.hca.queues.work_queues import Srq, WorkQueues
from bluebridge.guest.drivers.hca.resources.adapter import Adapter
from bluebridge.guest.errors import VerbsError
from bluebridge.guest.verbs.enums import QpState, QpType
from bluebridge.guest.verbs.interface import EthernetPort
from bluebridge.guest.verbs.values import QpAttr, QpInit, RoceAddress

SERVICES = {
    QpType.RC: ServiceType.RC,
    QpType.UC: ServiceType.UC,
    QpType.UD: ServiceType.UD,
    QpType.GSI: ServiceType.MLX,
    QpType.RAW_ETH: ServiceType.MLX,
}
_CODES = {size: code for code, size in MTU_BYTES.items()}
_MESSAGE_LIMITS = {QpType.UD: 5 << 5 | 13, QpType.GSI: 0xAB, QpType.RAW_ETH: 0xFF}
_LOG_LONGEST_MESSAGE = 30
_MIGRATED = 3
_ACK_FREQUENCY = 8
_SCHEDULE = 0x83
_PORT_SHIFT = 6  # of the schedule queue
_LINK_ETHERNET = 1
_COUNTER_SINK = 0xFF

_STATES = (
    QpState.RESET,
    QpState.INIT,
    QpState.RTR,
    QpState.RTS,
    QpState.SQE,
    QpState.SQD,
    QpState.ERR,
    QpState.SQD,
)
"""States by their number in a context; the last one is that of a queue that drains."""
_OPCODES: dict[tuple[QpState, QpState], Opcode] = {
    (_STATES[source], _STATES[change.target]): Opcode(opcode)
    for opcode, change in TRANSITIONS.items()
    for source in change.sources
}

Values = dict[str, Value]

_NO_MAILBOX = 2


def transition(current: QpState, target: QpState) -> Opcode:
    """Return the command for a transition; `VerbsError` when the state machine has none."""
    opcode = _OPCODES.get((current, target))
    if opcode is None:
        raise VerbsError(f"a queue pair cannot go from {current.name} to {target.name}")
    return opcode


def mailbox(
    kind: QpType, opcode: Opcode, attr: QpAttr, fixed: Values, memory: Values, port: int
) -> bytes:
    """Return the input mailbox of a transition: optional-parameter mask and context.

    `fixed` are the fields that every transition repeats, `memory` those that locate the queues,
    which only RESET to INIT takes. `port` is that of the queue pair, from 1 on.
    """
    values: Values = dict(fixed)
    if opcode is Opcode.RST2INIT_QP:
        values |= {
            "fast_reg_enable": 1,
            "reserved_lkey": 1,
            "pri_sched_queue": _of_port(port),
            **memory,
        }
    if opcode is Opcode.INIT2RTR_QP:
        values |= _receiver(kind, attr, _of_port(port))
    mask = 0
    for name, part in attributes(attr):
        values |= part
        mask |= 1 << OptPar[name]
    if opcode is Opcode.RST2INIT_QP:
        mask = 0
    if attr.rq_psn is not None:
        values["next_recv_psn"] = attr.rq_psn
    if attr.sq_psn is not None:
        values["next_send_psn"] = attr.sq_psn
    return mask.to_bytes(4, "big") + bytes(QPC_MAILBOX_OFFSET - 4) + bytes(QPC.pack(values))


def _of_port(port: int) -> int:
    return (port - 1) << _PORT_SHIFT


def _receiver(kind: QpType, attr: QpAttr, port: int) -> Values:
    if kind in _MESSAGE_LIMITS:
        return {
            "mtu_msgmax": _MESSAGE_LIMITS[kind], "pri_sched_queue": _SCHEDULE | port,
            "pri_counter_index": _COUNTER_SINK, "pri_link_type": _LINK_ETHERNET, "pri_grh": 1,
            "pri_feup": 0x80 if kind is QpType.GSI else 0,
        }  # fmt: skip
    to = attr.address_vector
    if not isinstance(to, RoceAddress) or attr.dest_qpn is None or attr.path_mtu not in _CODES:
        raise VerbsError("RTR needs an address vector, path_mtu (256 … 4096) and dest_qpn")
    return {
        "mtu": _CODES[attr.path_mtu],
        "msg_max": _LOG_LONGEST_MESSAGE,
        "remote_qpn": attr.dest_qpn,
        **_path(to, port),
    }


def _path(to: RoceAddress, port: int) -> Values:
    return {
        "pri_counter_index": _COUNTER_SINK,
        "pri_grh": 1,
        "pri_mylmc": 0,  # index into the port's MAC table
        "pri_link_type": _LINK_ETHERNET,
        "pri_mgid_index": to.sgid_index,
        "pri_hop_limit": to.hop_limit,
        "pri_tclass": to.traffic_class,
        "pri_flow_label": to.flow_label,
        "pri_rgid": to.dgid,
        "pri_sched_queue": _SCHEDULE | port | to.service_level << 3,
        "pri_dmac": to.dmac,
    }


class Qp(WorkQueues):
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
        srq = None if init.srq is None else own(Srq, init.srq)
        self.send_cq, self.recv_cq = own(Cq, init.send_cq), own(Cq, init.recv_cq)
        self.state = QpState.RESET
        self._adapter = adapter
        self._size(init, adapter)
        qpn = _allocate_number(adapter, init.type, port.number)
        self.port_number = port.number
        self._port = port
        with ExitStack() as undo:
            if init.type is not QpType.GSI:
                undo.callback(adapter.numbers.queue_pairs.free, qpn)
            super().__init__(adapter, qpn, pdn, init, port, blueflame, srq)
            undo.pop_all()
        self._fixed = self._fixed_fields(pdn)
        self._clear(self.qpn)
        adapter.queue_pairs[qpn] = self

    # -- states ------------------------------------------------------------------------------

    def modify(self, attr: QpAttr) -> None:
        target = self.state if attr.state is None else attr.state
        opcode = transition(self.state, target)
        if opcode is Opcode.TORST_QP:
            self._adapter.commands.run(opcode, self.qpn, _NO_MAILBOX)
            self.state = target
            self._clear(self.qpn)
            return
        fixed = self._fixed | self._mode(attr)
        memory: dict[str, Value] = {"mtt_addr": self.mtt.address}
        if self._rq_count:
            memory["doorbell_record"] = self._record.address
        data = mailbox(self.type, opcode, attr, fixed, memory, self.port_number)
        self._adapter.commands.run(opcode, self.qpn, data=data)
        self.state = target

    def query_state(self) -> QpState:
        """Ask the device for the state of the queue pair."""
        data = self._adapter.commands.query(Opcode.QUERY_QP, self.qpn)
        return _STATES[QPC.get(data, "state", QPC_MAILBOX_OFFSET)]

    def destroy(self) -> None:
        """Reset the queue pair and free its resources; a second call does nothing."""
        if self._adapter.queue_pairs.get(self.qpn) is not self:
            return
        self.modify_reset()
        del self._adapter.queue_pairs[self.qpn]
        self._free_memory()
        if self.type is not QpType.GSI:
            self._adapter.numbers.queue_pairs.free(self.qpn)

    def _fixed_fields(self, pdn: int) -> dict[str, Value]:
        """Return the context fields that every transition repeats: numbers, sizes and SRQ."""
        values: dict[str, Value] = {
            "service": SERVICES[self.type], "pm_state": _MIGRATED, "ack_freq": _ACK_FREQUENCY,
            "pd": pdn, "local_qpn": self.qpn,
            "uar": self._adapter.uar, "cqn_send": self.send_cq.cqn, "cqn_recv": self.recv_cq.cqn,
            "log_sq_size": log2(self._sq_count), "log_sq_stride": self.sq_shift - 4,
            "log_rq_size": log2(self._rq_count), "log_rq_stride": self._rq_shift - 4,
        }  # fmt: skip
        if self.srq is not None:
            values |= {"use_srq": 1, "srqn": self.srq.srqn, "invalid_credits": 1}
        return values

    def _mode(self, attr: QpAttr) -> dict[str, Value]:
        """Return the RoCE version of a connection that gets its path (ib/qp.c: gid_type_to_qpc)."""
        to = attr.address_vector
        if isinstance(to, RoceAddress) and self._port.roce_version(to.sgid_index) == ROCE_V2:
            return {"roce_mode": ROCE_MODE_V2}
        return {}


def _allocate_number(adapter: Adapter, kind: QpType, port: int) -> int:
    """Return a number for a new queue pair; QP1 exists once for each port."""
    if kind is not QpType.GSI:
        return adapter.numbers.queue_pairs.allocate()
    number = adapter.numbers.gsi_qpn(port)
    if number in adapter.queue_pairs:
        raise VerbsError("QP1 is in use already")
    return number
