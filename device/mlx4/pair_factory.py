"""The making of queue pairs: rings where the context says, engines by role.

A queue pair's halves are engines of their own: `SendQueue` walks the ring and feeds an engine by
role (`Requester`, `DatagramSender`, `EthernetSender`); `Responder` answers connected peers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bluebridge.device.ethernet.sender import EthernetSender
from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.mlx4.contexts import QPC, WORK_RING_UNIT
from bluebridge.device.mlx4.armed_faults import ArmedFaults
from bluebridge.device.mlx4.pairs import HcaPair, ring_geometry, role_of
from bluebridge.device.mlx4.ports.reports import special_base
from bluebridge.device.mlx4.rings.completion_queues import CompletionQueues
from bluebridge.device.mlx4.rings.completions import CompletionWriter
from bluebridge.device.mlx4.rings.event_queues import EventQueues
from bluebridge.device.mlx4.rings.receive_queues import ReceiveRing, SharedReceiveRings
from bluebridge.device.mlx4.rings.ring_buffer import RingPages
from bluebridge.device.mlx4.rings.send_queue import SendRing
from bluebridge.device.mlx4.rings.work_requests import (
    ConnectedReader,
    DatagramReader,
    EntryReader,
    FrameReader,
    PacketReader,
)
from bluebridge.device.pci.bus import HostBus
from bluebridge.device.rdma.by_packets.receiver import PacketReceiver
from bluebridge.device.rdma.by_packets.sender import PacketSender
from bluebridge.device.rdma.connected.requester import Requester
from bluebridge.device.rdma.connected.responder import Responder
from bluebridge.device.rdma.datagrams.sender import DatagramSender
from bluebridge.device.rdma.memory.regions import MemoryRegions
from bluebridge.device.rdma.memory.scatter_gather import LocalMemory
from bluebridge.device.rdma.pairs.engines import ReceiveEngine
from bluebridge.device.rdma.pairs.queue_pair import QueuePair
from bluebridge.device.rdma.ports.counters import InterfaceCounters
from bluebridge.device.rdma.ports.port import Port
from bluebridge.device.rdma.vocabulary import CONNECTED, DATAGRAMS, Role


class PairFactory:
    """The maker of the queue pairs of one HCA, with their engines and rings."""

    def __init__(
        self,
        *,
        bus: HostBus,
        pages: RingPages,
        regions: MemoryRegions,
        eqs: EventQueues,
        cqs: CompletionQueues,
        srqs: SharedReceiveRings,
        ports: Sequence[Port],
        counters: InterfaceCounters,
        faults: ArmedFaults,
        packets: bool,
    ) -> None:
        self._bus = bus
        self._pages = pages
        self._regions = regions
        self._eqs = eqs
        self._cqs = cqs
        self._srqs = srqs
        self._ports = ports
        self._counters = counters
        self._faults = faults
        self._by_packets = packets

    def make(self, qpn: int, context: bytearray, failed: Callable[[QueuePair], None]) -> HcaPair:
        """Return a new queue pair with its engines and rings, in no state yet.

        `failed` is called when it goes to ERR. Raises `CommandError`: BAD_PARAM, ICM_ERROR,
        EXCEED_LIM.
        """
        role = role_of(qpn, context, special_base(self._ports[0]))
        qp = HcaPair(
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

    def _completions(self, qpn: int, context: bytearray) -> CompletionWriter:
        sends, receives = QPC.get(context, "cqn_send"), QPC.get(context, "cqn_recv")
        return CompletionWriter(self._bus, self._cqs, self._eqs, qpn, sends, receives, self._faults)

    def _attach_engines(self, qp: HcaPair) -> None:
        qp.responder = ReceiveEngine()
        if qp.connected and self._by_packets:
            qp.engine, qp.responder = PacketSender(qp), PacketReceiver(qp)
        elif qp.connected:
            qp.engine, qp.responder = Requester(qp), Responder(qp)
        elif qp.role in DATAGRAMS:
            qp.engine = DatagramSender(qp)
        else:
            qp.engine = EthernetSender(qp)
        if not qp.connected:
            qp.engine.next_psn = QPC.get(qp.context, "next_send_psn")

    def _attach_rings(self, qp: HcaPair) -> None:
        """Find both rings in the one buffer that the context names."""
        get, context = QPC.get, qp.context
        sends, receives, length = ring_geometry(context, qp.role)
        shift = get(context, "log_page_size") + 12
        start = get(context, "page_offset") * WORK_RING_UNIT
        buffer = self._pages.buffer(get(context, "mtt_addr"), shift, length, start)
        qp.sq = SendRing(
            self._bus,
            qp,
            qp.engine,
            _reader_of(qp.role),
            buffer,
            base=sends.base,
            log_size=sends.log_size,
            shift=sends.shift,
            what=What.UD_WQE if qp.role is Role.UD else What.SQ_WQE,
        )
        if receives is not None:
            record = get(context, "doorbell_record") & ~3
            qp.rq = ReceiveRing(self._bus, qp.qpn, qp.pd, buffer, *receives, record)


def _reader_of(role: Role) -> EntryReader:
    """Return the reader of send entries for queue pairs with this role."""
    if role in CONNECTED:
        return ConnectedReader()
    if role is Role.UD:
        return DatagramReader()
    return PacketReader() if role in DATAGRAMS else FrameReader()
