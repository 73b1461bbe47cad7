"""Ethernet queue pairs: frames out with the offloads of mlx4_en, frames in by A0 steering."""

from __future__ import annotations

from typing import TYPE_CHECKING

from device.fabric.messages import Frame
from device.hca.completion import complete_frame, fail_receive
from device.hca.copy import copy_views, note_runs
from device.hca.flush import enter_error
from device.hca.local_memory import gather, scatter_runs
from device.hca.memory_regions import AccessError
from device.hca.offload import fill_ip_checksum, fill_l4_checksum, insert_vlan
from device.hca.role import Role
from device.hca.unconnected import UnconnectedSender
from device.hca.wqe import SendWqe, WqeError, parse_data
from device.layout.buslog import Kind, What
from device.layout.mlx4.contexts import RSS, RSS_OFFSET, QpState
from device.layout.mlx4.cqe import Syndrome
from device.layout.mlx4.wqe import CTRL_SIZE, INSERT_CVLAN, IP_CSUM, TCP_UDP_CSUM
from device.layout.net.ethernet import (
    BROADCAST,
    ETHERTYPE_ROCE,
    ETHERTYPE_VLAN,
    HEADER_SIZE,
    MIN_FRAME,
)
from device.pci.bus import DmaError

if TYPE_CHECKING:
    from device.hca.device import Hca
    from device.hca.port import Port
    from device.hca.qp import QueuePair

MAX_FRAME = 9728
TYPE_OFFSET = 12
TAG_SIZE = 4
_ROCE = ETHERTYPE_ROCE.to_bytes(2, "big")
_VLAN = ETHERTYPE_VLAN.to_bytes(2, "big")
_RECEIVING = (QpState.RTR, QpState.RTS, QpState.SQD)


class EthernetSender(UnconnectedSender):
    """The send engine of Ethernet queue pairs: a frame per entry."""

    __slots__ = ()

    def _send(self, wqe: SendWqe, raw: bytes) -> None:
        qp = self._qp
        parse_data(wqe, raw, CTRL_SIZE)
        if not HEADER_SIZE <= wqe.length <= MAX_FRAME:
            raise WqeError(f"a frame of {wqe.length} bytes")
        frame = bytearray().join(gather(qp, wqe.parts, note=True, what=What.FRAME))
        if wqe.flags & IP_CSUM:
            fill_ip_checksum(frame)
        if wqe.flags & TCP_UDP_CSUM:
            fill_l4_checksum(frame)
        if wqe.word1 >> 8 & INSERT_CVLAN:
            insert_vlan(frame, wqe.word1 >> 16)
        if len(frame) < MIN_FRAME:
            frame += bytes(MIN_FRAME - len(frame))
        counters = qp.port.counters
        counters.tx_frames += 1
        counters.tx_octets += len(frame)
        counters.tx_broadcast += frame[:6] == BROADCAST
        counters.tx_multicast += frame[0] & 1 and frame[:6] != BROADCAST
        qp.port.send(Frame(bytes(frame)))


def receive_frame(hca: Hca, port: Port, data: bytes) -> None:
    """A frame from the fabric: to the queue pair that steering names, or dropped."""
    counters = port.counters
    if len(data) < HEADER_SIZE or data[TYPE_OFFSET:HEADER_SIZE] == _ROCE:
        return
    qp = _steer(hca, port, data)
    if qp is None or qp.state not in _RECEIVING:
        counters.rx_dropped += 1
        return
    counters.rx_frames += 1
    counters.rx_octets += len(data)
    counters.rx_broadcast += data[:6] == BROADCAST
    counters.rx_multicast += data[0] & 1 and data[:6] != BROADCAST
    if not _deliver(qp, data):
        counters.rx_dropped += 1


def _steer(hca: Hca, port: Port, data: bytes) -> QueuePair | None:
    """The queue pair of a frame; the port's filters do not count for one that wants all."""
    steering = port.steering
    if steering.promiscuous is not None:
        qpn: int | None = steering.promiscuous
    elif not port.admits(data):
        qpn = None
    elif data[0] & 1:
        qpn = steering.multicast
    else:
        qpn = steering.unicast if data[:6] in port.mac_addresses else None
    qp = None if qpn is None else hca.qps.get(qpn)
    if qp is not None and qp.role is Role.RSS:  # any entry is a legal choice
        qp = hca.qps.get(RSS.get(qp.context, "base_qpn", RSS_OFFSET))
    return qp


def _deliver(qp: QueuePair, data: bytes) -> bool:
    """Scatter a frame into the next receive; whether it went to software."""
    vlan = None
    if qp.strip_vlan and data[TYPE_OFFSET:HEADER_SIZE] == _VLAN:
        vlan = int.from_bytes(data[HEADER_SIZE : HEADER_SIZE + 2], "big")
        data = data[:TYPE_OFFSET] + data[TYPE_OFFSET + TAG_SIZE :]
    queue = qp.receives
    try:
        wqe = queue.take() if queue is not None else None
    except DmaError:
        wqe = None
    if wqe is None:
        return False
    if len(data) > sum(sge[2] for sge in wqe.sges):
        fail_receive(qp, wqe.index, Syndrome.LOCAL_LENGTH_ERR)
        return False
    try:
        runs = scatter_runs(qp, wqe.sges, len(data), wqe.pd)
        views = qp.hca.bus.views(runs)
    except (AccessError, DmaError) as error:
        qp.hca.bus.note(Kind.NOTE, f"QP {qp.qpn:#x} receive: {error}", obj=qp.qpn)
        fail_receive(qp, wqe.index, Syndrome.LOCAL_PROT_ERR)
        enter_error(qp)
        return False
    copy_views(views, [memoryview(data)])
    note_runs(qp.hca.bus, Kind.DMA_WRITE, runs, views, What.FRAME, qp.qpn)
    # no checksum status: software verifies, which is always correct
    complete_frame(qp, wqe.index, len(data), vlan, 0, 0)
    return True
