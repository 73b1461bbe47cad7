"""What a queue pair sees of congestion: marks on packets that arrive, reports in both directions.

A receiver of marked packets sends reports, CNPs (InfiniBand annex A17.9), to their sender: one for
the first, then at most one in an interval.
"""

from __future__ import annotations

from typing import Final

from bluebridge.device.fabric.messages import ConnectedPacket
from bluebridge.device.layout.net.roce import CONGESTION_SERVICE, BthOpcode
from bluebridge.device.packets.transport import TransportPacket
from bluebridge.device.rdma.by_packets.dcqcn import LAB
from bluebridge.device.rdma.pairs.queue_pair import QueuePair
from bluebridge.device.rdma.vocabulary import RECEIVING

INTERVAL: Final = LAB.report_interval / 1e6
"""Least seconds between two reports."""


class Congestion:
    """Counts of one queue pair: `marks` on packets that came, reports `sent` and `received`."""

    __slots__ = ("_qp", "_quiet", "marks", "received", "sent")

    def __init__(self, qp: QueuePair) -> None:
        self._qp = qp
        self._quiet = False  # since a report was sent a moment ago
        self.marks = self.sent = self.received = 0

    def marked(self) -> None:
        """Count a packet with a mark, and report it unless a report has just been sent."""
        self.marks += 1
        qp = self._qp
        if self._quiet or qp.state not in RECEIVING:
            return
        self._quiet = True
        self.sent += 1
        opcode = BthOpcode.CNP - CONGESTION_SERVICE
        report = TransportPacket(opcode, 0, service=CONGESTION_SERVICE)
        qp.port.send_packet(ConnectedPacket(qp.route, qp.remote_qpn, report, qp.qpn))
        qp.bus.call_later(INTERVAL, self._may_report)

    def _may_report(self) -> None:
        self._quiet = False
