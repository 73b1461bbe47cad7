"""Queue pairs and their states (ib/qp.c); `work_queues` has their two queues."""

from __future__ import annotations

from bluebridge.device.layout.fields import Value
from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.contexts import QPC, QPC_MAILBOX_OFFSET, ROCE_MODE_V2
from bluebridge.device.layout.net.ip import ROCE_V2
from bluebridge.guest.drivers.hca.posting.blueflame import BlueFlame
from bluebridge.guest.drivers.hca.queues.cq import Cq
from bluebridge.guest.drivers.hca.queues.qp_context import constant_fields, mailbox, transition
from bluebridge.guest.drivers.hca.queues.qp_geometry import Geometry, log2
from bluebridge.guest.drivers.hca.queues.srq import Srq
from bluebridge.guest.drivers.hca.queues.work_queues import WorkQueues
from bluebridge.guest.drivers.hca.resources.adapter import Adapter
from bluebridge.guest.verbs.enums import QpState, QpType
from bluebridge.guest.verbs.errors import VerbsError
from bluebridge.guest.verbs.interface import EthernetPort
from bluebridge.guest.verbs.values import (
    CompletionQueue,
    QpAttr,
    QpInit,
    RoceAddress,
    SharedReceiveQueue,
)

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
        srq = _own_srq(init.srq)
        self.send_cq, self.recv_cq = _own_cq(init.send_cq), _own_cq(init.recv_cq)
        self.state = QpState.RESET
        self._adapter = adapter
        geometry = Geometry.of(init, adapter.limits)
        qpn = _allocate_number(adapter, init.type, port.number)
        self.port_number = port.number
        self._port = port
        super().__init__(adapter, qpn, pdn, init, geometry, port, blueflame, srq)
        self._fixed = self._fixed_fields(pdn)
        self._clear()
        adapter.queue_pairs[qpn] = self

    # -- states ------------------------------------------------------------------------------

    def modify(self, attr: QpAttr) -> None:
        target = self.state if attr.state is None else attr.state
        opcode = transition(self.state, target)
        if opcode is Opcode.TORST_QP:
            self._adapter.commands.run(opcode, self.qpn, _NO_MAILBOX)
            self.state = target
            self._clear()
            return
        fixed = self._fixed | self._mode(attr)
        data = mailbox(self.type, opcode, attr, fixed, self._memory_fields(), self.port_number)
        self._adapter.commands.run(opcode, self.qpn, data=data)
        self.state = target

    def query_state(self) -> QpState:
        """Ask the device for the state of the queue pair."""
        data = self._adapter.commands.query(Opcode.QUERY_QP, self.qpn)
        return _DEVICE_STATES[QPC.get(data, "state", QPC_MAILBOX_OFFSET)]

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
            **constant_fields(self.type),
            "pd": pdn,
            "local_qpn": self.qpn,
            "uar": self._adapter.uar,
            "cqn_send": self.send_cq.cqn,
            "cqn_recv": self.recv_cq.cqn,
            "log_sq_size": log2(self._sq_count),
            "log_sq_stride": self.sq_shift - 4,
            "log_rq_size": log2(self._rq_count),
            "log_rq_stride": self._rq_shift - 4,
        }
        if self.srq is not None:
            values |= {"use_srq": 1, "srqn": self.srq.srqn, "invalid_credits": 1}
        return values

    def _mode(self, attr: QpAttr) -> dict[str, Value]:
        """Return the RoCE version of a connection that gets its path (ib/qp.c: gid_type_to_qpc)."""
        to = attr.address_vector
        if isinstance(to, RoceAddress) and self._port.roce_version(to.sgid_index) == ROCE_V2:
            return {"roce_mode": ROCE_MODE_V2}
        return {}

    def _memory_fields(self) -> dict[str, Value]:
        """Return the context fields that locate the queues, which only RESET to INIT has."""
        values: dict[str, Value] = {"mtt_addr": self.mtt.address}
        if self._rq_count:
            values["doorbell_record"] = self._record.address
        return values

    def _clear(self) -> None:
        """Empty both queues, as they must be on leaving RESET."""
        self.recv_cq.discard(self.qpn)
        if self.send_cq is not self.recv_cq:
            self.send_cq.discard(self.qpn)
        self._empty()


def _own_cq(cq: CompletionQueue) -> Cq:
    """Return the completion queue of a new queue pair as a `Cq`; `VerbsError` if it is none."""
    if not isinstance(cq, Cq):
        raise VerbsError("the completion queue is not one of this device")
    return cq


def _own_srq(srq: SharedReceiveQueue | None) -> Srq | None:
    """Return the shared receive queue of a new queue pair as an `Srq`, or None if it has none."""
    if srq is not None and not isinstance(srq, Srq):
        raise VerbsError("the shared receive queue is not one of this device")
    return srq


def _allocate_number(adapter: Adapter, kind: QpType, port: int) -> int:
    """Return a number for a new queue pair; QP1 exists once for each port."""
    if kind is not QpType.GSI:
        return adapter.numbers.queue_pairs.allocate()
    number = adapter.numbers.gsi_qpn(port)
    if number in adapter.queue_pairs:
        raise VerbsError("QP1 is in use already")
    return number
