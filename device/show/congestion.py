"""Rows that describe what queue pairs on a wire of packets see of congestion."""

from __future__ import annotations

from collections.abc import Sequence

from bluebridge.device.rdma.by_packets.dcqcn import LAB
from bluebridge.device.rdma.by_packets.sender import PacketSender
from bluebridge.device.rdma.queue_pairs import QueuePairs
from bluebridge.device.show.table import Row


class CongestionTable:
    """The connected queue pairs of an HCA, by QPN; none where messages travel whole."""

    def __init__(self, qps: QueuePairs) -> None:
        self._qps = qps

    def numbers(self) -> Sequence[int]:
        """Return the QPNs."""
        return [number for number in self._qps.numbers() if self._engine(number) is not None]

    def find(self, number: int) -> int | None:
        """Return `number` if there is such a queue pair, else None."""
        return None if self._engine(number) is None else number

    def row(self, number: int) -> Row | None:
        """Return counts of marks and reports, and the rate in Mb/s."""
        qp, engine = self._qps.get(number), self._engine(number)
        if qp is None or engine is None:
            return None
        seen, pacer = engine.congestion, engine.pacer
        control = None if pacer is None else pacer.control
        return {
            "lqpn": number,
            "rqpn": qp.remote_qpn,
            "ce-seen": seen.marks,
            "cnps-sent": seen.sent,
            "cnps-received": seen.received,
            "rate": LAB.line_rate if control is None else round(control.rate, 1),
            "target": LAB.line_rate if control is None else round(control.target, 1),
            "alpha": 0.0 if control is None else round(control.alpha, 3),
            "limited": control is not None and control.limited,
        }

    def _engine(self, number: int) -> PacketSender | None:
        qp = self._qps.get(number)
        return qp.engine if qp is not None and isinstance(qp.engine, PacketSender) else None
