"""Datagrams in: for a UD queue pair, QP0, QP1, or the members of a group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bluebridge.device import pieces
from bluebridge.device.fabric.addresses import LinkLayer, is_group
from bluebridge.device.fabric.messages import Datagram
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.mlx4.contexts import RECEIVING
from bluebridge.device.layout.mlx4.cqe import CompletionStatus, RecvOpcode
from bluebridge.device.layout.net.roce import GRH_SIZE, GSI_QKEY, GSI_QPN, SMI_QPN
from bluebridge.device.mlx4.datagrams.datagram_fields import steered
from bluebridge.device.mlx4.datagrams.ipoib import found
from bluebridge.device.mlx4.datagrams.sender import MAX_PAYLOAD
from bluebridge.device.mlx4.pairs.queue_pair import QueuePair
from bluebridge.device.mlx4.pairs.role import DATAGRAMS, Role
from bluebridge.device.mlx4.ports.multicast_groups import MulticastGroups
from bluebridge.device.mlx4.ports.port import Port
from bluebridge.device.mlx4.rings.receive_queue import ReceiveWqe
from bluebridge.device.mlx4.settings.parameters import Parameters
from bluebridge.device.mlx4.steering.registrations import Registrations
from bluebridge.device.pci.bus import DmaError
from bluebridge.device.rdma.memory.rights import AccessError
from bluebridge.device.rdma.memory.transfer import note_runs

NO_GRH: Final = bytes(GRH_SIZE)
MAX_MAD: Final = 256


class DatagramReceiver:
    """Gives the datagrams of the fabric to the queue pairs of one HCA.

    `find` is the queue pair with a number, if there is one; `groups` are the multicast groups,
    `rules` those of flow steering where `parameters` say that it is on.
    """

    def __init__(
        self,
        find: Callable[[int], QueuePair | None],
        groups: MulticastGroups,
        rules: Registrations,
        parameters: Parameters,
    ) -> None:
        self._find = find
        self._groups = groups
        self._rules = rules
        self._parameters = parameters

    def receive(self, port: Port, message: Datagram) -> int:
        """A datagram that came in by `port`; what nobody wants is dropped.

        Returns how many members its group or its rule has, 0 if it is for one queue pair.
        """
        if is_group(message.route.dmac):
            own = message.route.smac in port.mac_addresses
            if self._parameters.flow_steering:
                members = steered(port, message)
            else:
                members = self._groups.members(message.route.dgid)
            for qpn, refuses_own in members:
                if not (own and refuses_own and qpn == message.source_qpn):
                    self._deliver(port, qpn, message)
            return len(members)
        if message.target_qpn == SMI_QPN and message.source_qpn != SMI_QPN:
            return 0  # subnet management is between QP0s, not with a user's queue pair
        if self._parameters.flow_steering and message.target_qpn in self._rules.datagram_range:
            members = steered(port, message)
            for qpn, _ in members:
                self._deliver(port, qpn, message)
            return len(members)
        special = {SMI_QPN: port.smi_qpn, GSI_QPN: port.gsi_qpn}
        self._deliver(port, special.get(message.target_qpn, message.target_qpn), message)
        return 0

    def _deliver(self, port: Port, qpn: int, message: Datagram) -> None:
        qp = self._find(qpn)
        if qp is None or qp.role not in DATAGRAMS or qp.state not in RECEIVING:
            return
        if qp.port is not port:
            return
        limit = MAX_PAYLOAD if qp.role is Role.UD else MAX_MAD
        if not _admits_key(qp, message) or len(message.payload) > limit:
            _drop(qp, "Q_Key or length")
            return
        pkey_index = port.pkey_index(qp.context, message)
        if pkey_index is None:
            _drop(qp, "P_Key")
            return
        wqe = _take(qp)
        if wqe is None:
            _drop(qp, "no receive")
        elif _store(qp, wqe, message):
            address, checksum = message.route.smac, 0
            if self._parameters.ipoib_checksums and port.link is LinkLayer.INFINIBAND:
                behind, checksum = found(message)
                address += behind
            _complete(qp, wqe.index, message, pkey_index, address, checksum)


def _drop(qp: QueuePair, why: str) -> None:
    qp.bus.note(Kind.NOTE, f"QP {qp.qpn:#x}: datagram dropped, {why}", obj=qp.qpn)


def _admits_key(qp: QueuePair, message: Datagram) -> bool:
    """QP0 has no Q_Key, QP1 a well-known one."""
    if qp.role is Role.SMI:
        return True
    return message.qkey == (GSI_QKEY if qp.role is Role.GSI else qp.qkey)


def _take(qp: QueuePair) -> ReceiveWqe | None:
    queue = qp.receives
    try:
        return queue.take() if queue is not None else None
    except DmaError:
        return None


def _store(qp: QueuePair, wqe: ReceiveWqe, message: Datagram) -> bool:
    """Scatter GRH and payload; whether that went, else the queue pair is in error."""
    length = GRH_SIZE + len(message.payload)
    if length > sum(sge[2] for sge in wqe.sges):
        return _fail(qp, wqe, CompletionStatus.LOCAL_LENGTH_ERR)
    try:
        runs = qp.memory.scatter(wqe.sges, length, wqe.pd)
        views = qp.bus.views(runs)
    except (AccessError, DmaError):
        return _fail(qp, wqe, CompletionStatus.LOCAL_PROT_ERR)
    pieces.copy(views, [message.grh or NO_GRH, message.payload])
    qp.traffic.received(1, len(message.payload))
    what = What.PAYLOAD if qp.role is Role.UD else What.MAD
    note_runs(qp.bus, Kind.DMA_WRITE, runs, views, what, qp.qpn)
    return True


def _fail(qp: QueuePair, wqe: ReceiveWqe, status: CompletionStatus) -> bool:
    qp.completions.fail_receive(wqe.index, status)
    qp.enter_error()
    return False


def _complete(
    qp: QueuePair, index: int, message: Datagram, pkey_index: int, address: bytes, checksum: int
) -> None:
    """The completion names the sender: software answers to what it reads here."""
    source, sl_vid = qp.port.sender_of(message)
    immediate = message.immediate
    qp.completions.complete_datagram(
        index,
        RecvOpcode.SEND if immediate is None else RecvOpcode.SEND_WITH_IMM,
        GRH_SIZE + len(message.payload),
        pkey_index if immediate is None else immediate,
        source,
        address,
        sl_vid,
        message.solicited,
        checksum,
    )
