"""Makes queue pairs: rings where the context says, engines by role.

A queue pair's halves are engines of their own: `SendQueue` walks the ring and feeds an engine by
role (`Requester`, `DatagramSender`, `EthernetSender`); `Responder` answers connected peers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.mlx4.contexts import QPC, WORK_RING_UNIT
from bluebridge.device.mlx4.connected.requester import Requester
from bluebridge.device.mlx4.connected.responder import Responder
from bluebridge.device.mlx4.connected.xrc_responder import XrcResponder
from bluebridge.device.mlx4.datagrams.sender import DatagramSender
from bluebridge.device.mlx4.ethernet.sender import EthernetSender
from bluebridge.device.mlx4.pairs.queue_pair import QueuePair
from bluebridge.device.mlx4.pairs.ring_geometry import ring_geometry
from bluebridge.device.mlx4.pairs.role import DATAGRAMS, Role, role_of
from bluebridge.device.mlx4.pairs.unconnected_responder import UnconnectedResponder
from bluebridge.device.mlx4.ports.interface_counters import InterfaceCounters
from bluebridge.device.mlx4.ports.port import Port
from bluebridge.device.mlx4.rings.completion_queues import CompletionQueues
from bluebridge.device.mlx4.rings.completions import Completions
from bluebridge.device.mlx4.rings.event_queues import EventQueues
from bluebridge.device.mlx4.rings.receive_queue import ReceiveQueue
from bluebridge.device.mlx4.rings.ring_buffer import RingPages
from bluebridge.device.mlx4.rings.send_queue import SendQueue
from bluebridge.device.mlx4.rings.shared_receive_queues import SharedReceiveQueues
from bluebridge.device.pci.bus import HostBus
from bluebridge.device.rdma.memory.regions import MemoryRegions
from bluebridge.device.rdma.memory.scatter_gather import LocalMemory


class PairFactory:
    """Gives each new queue pair of one HCA what it and its engines work with."""

    def __init__(
        self,
        *,
        bus: HostBus,
        pages: RingPages,
        regions: MemoryRegions,
        eqs: EventQueues,
        cqs: CompletionQueues,
        srqs: SharedReceiveQueues,
        ports: Sequence[Port],
        counters: InterfaceCounters,
    ) -> None:
        self._bus = bus
        self._pages = pages
        self._regions = regions
        self._eqs = eqs
        self._cqs = cqs
        self._srqs = srqs
        self._ports = ports
        self._counters = counters

    def make(self, qpn: int, context: bytearray, failed: Callable[[QueuePair], None]) -> QueuePair:
        """A queue pair with its engines and rings, and no state set yet.

        `failed` is called when it goes to ERR. Raises `CommandError`: BAD_PARAM, ICM_ERROR,
        EXCEED_LIM.
        """
        role = role_of(qpn, context, self._ports[0].special_qpn_base)
        qp = QueuePair(
            qpn,
            role,
            context,
            bus=self._bus,
            regions=self._regions,
            memory=self._memory(qpn, context),
            completions=self._completions(qpn, context),
            srqs=self._srqs,
            ports=self._ports,
            counters=self._counters,
            failed=failed,
        )
        self._attach_engines(qp)
        if role is not Role.RSS:
            self._attach_rings(qp)
        return qp

    def _memory(self, qpn: int, context: bytearray) -> LocalMemory:
        pd, reserved = QPC.get(context, "pd"), bool(QPC.get(context, "reserved_lkey"))
        return LocalMemory(self._bus, self._regions, pd, qpn, reserved_lkey=reserved)

    def _completions(self, qpn: int, context: bytearray) -> Completions:
        sends, receives = QPC.get(context, "cqn_send"), QPC.get(context, "cqn_recv")
        return Completions(self._bus, self._cqs, self._eqs, qpn, sends, receives)

    def _attach_engines(self, qp: QueuePair) -> None:
        qp.responder = UnconnectedResponder()
        if qp.connected:
            qp.engine = Requester(qp)
            xrc = qp.role is Role.XRC
            qp.responder = XrcResponder(qp, self._srqs) if xrc else Responder(qp)
        elif qp.role in DATAGRAMS:
            qp.engine = DatagramSender(qp)
        else:
            qp.engine = EthernetSender(qp)

    def _attach_rings(self, qp: QueuePair) -> None:
        """Find both rings in the one buffer that the context names."""
        get, context = QPC.get, qp.context
        sends, receives, length = ring_geometry(context, qp.role)
        shift = get(context, "log_page_size") + 12
        start = get(context, "page_offset") * WORK_RING_UNIT
        buffer = self._pages.buffer(get(context, "mtt_addr"), shift, length, start)
        qp.sq = SendQueue(
            self._bus,
            qp.completions,
            qp,
            qp.engine,
            buffer,
            base=sends.base,
            log_size=sends.log_size,
            shift=sends.shift,
            what=What.UD_WQE if qp.role is Role.UD else What.SQ_WQE,
        )
        if receives is not None:
            record = get(context, "doorbell_record") & ~3
            qp.rq = ReceiveQueue(self._bus, qp.qpn, qp.pd, buffer, *receives, record)
