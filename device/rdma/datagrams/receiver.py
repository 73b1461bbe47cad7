"""The receiving of datagrams: for a UD queue pair, QP0, QP1, or the members of a group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bluebridge.device.fabric.addresses import is_group
from bluebridge.device.fabric.messages import Datagram
from bluebridge.device.fabric.sizes import size_of
from bluebridge.device.frames.frame import FrameHeaders
from bluebridge.device.frames.receiving import findings
from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.net.ip import IPOIB_HEADER_SIZE
from bluebridge.device.layout.net.roce import GRH_SIZE, GSI_QKEY, GSI_QPN, SMI_QPN
from bluebridge.device.pci.bus import DmaError
from bluebridge.device.rdma.datagrams.sender import MAX_PAYLOAD
from bluebridge.device.rdma.memory.region import AccessError
from bluebridge.device.rdma.pairs.queue_pair import QueuePair
from bluebridge.device.rdma.ports.counters import Trouble
from bluebridge.device.rdma.ports.port import Port
from bluebridge.device.rdma.ports.steering import Steering
from bluebridge.device.rdma.vocabulary import DATAGRAMS, RECEIVING, CompletionStatus, Role
from bluebridge.device.rdma.work import ReceiveWork

NO_GRH: Final = bytes(GRH_SIZE)
MAX_MAD: Final = 256


class DatagramReceiver:
    """Gives the datagrams of the fabric to the queue pairs of one HCA, as its `steering` decides.

    `find` returns the queue pair with a number, None without one.
    """

    def __init__(self, find: Callable[[int], QueuePair | None], steering: Steering) -> None:
        self._find = find
        self._steering = steering

    def receive(self, port: Port, message: Datagram) -> int:
        """Deliver a datagram that came in by `port`; one that nobody wants is dropped.

        Returns how many members its group or its rule has, 0 if it is for one queue pair.
        """
        if is_group(message.route.dmac):
            own = message.route.smac in port.mac_addresses
            members = self._steering.group(port, message)
            for qpn, refuses_own in members:
                if not (own and refuses_own and qpn == message.source_qpn):
                    self._deliver(port, qpn, message)
            return len(members)
        if message.target_qpn == SMI_QPN and message.source_qpn != SMI_QPN:
            return 0  # subnet management is between QP0s, not with a user's queue pair
        claimed = self._steering.datagram(port, message)
        if claimed is not None:
            for qpn, _ in claimed:
                self._deliver(port, qpn, message)
            return len(claimed)
        special = {SMI_QPN: port.tables.smi_qpn, GSI_QPN: port.tables.gsi_qpn}
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
        pkey_index = port.pkey_index(qp.pkey_index, message)
        if pkey_index is None:
            _drop(qp, "P_Key")
            return
        work = _take(qp)
        if work is None:
            qp.diagnostics.add(Trouble.DATAGRAM_WITHOUT_RECEIVE)
            _drop(qp, "no receive")
        elif _store(qp, work, message):
            found = None
            if qp.completions.inspects:
                packet = message.payload
                found = findings(packet, FrameHeaders(packet, IPOIB_HEADER_SIZE), message.good)
            bits = port.path_bits(message)
            qp.completions.complete_datagram(
                work.index, message, port.link, bits, pkey_index, found
            )


def _drop(qp: QueuePair, why: str) -> None:
    qp.bus.tell(Fact.DATAGRAM_DROPPED, qpn=qp.qpn, reason=why)


def _admits_key(qp: QueuePair, message: Datagram) -> bool:
    """Return True if a queue pair accepts the Q_Key: QP0 has none, QP1 a well-known one."""
    if qp.role is Role.SMI:
        return True
    return message.qkey == (GSI_QKEY if qp.role is Role.GSI else qp.qkey)


def _take(qp: QueuePair) -> ReceiveWork | None:
    queue = qp.receives
    try:
        return queue.take() if queue is not None else None
    except DmaError:
        return None


def _store(qp: QueuePair, work: ReceiveWork, message: Datagram) -> bool:
    """Scatter GRH and payload; returns False when that failed and the queue pair is in error."""
    length = GRH_SIZE + len(message.payload)
    if length > sum(sge[2] for sge in work.sges):
        return _fail(qp, work, CompletionStatus.LOCAL_LENGTH_ERR)
    what = What.PAYLOAD if qp.role is Role.UD else What.MAD
    try:
        qp.memory.store(work.sges, length, [message.grh or NO_GRH, message.payload], work.pd, what)
    except (AccessError, DmaError):
        return _fail(qp, work, CompletionStatus.LOCAL_PROT_ERR)
    packets, size = size_of(message)
    qp.traffic.received(packets, size)
    return True


def _fail(qp: QueuePair, work: ReceiveWork, status: CompletionStatus) -> bool:
    qp.completions.fail_receive(work.index, status)
    qp.enter_error()
    return False
