"""The parts of one HCA and how they are connected; queue pairs with engines by role.

A queue pair's halves are engines of their own: `SendQueue` walks the ring and feeds an engine by
role (`PartSender`, `PacketSender`, `DatagramSender`, `EthernetSender`); `PartReceiver` and
`PacketReceiver` answer connected peers.
"""

from __future__ import annotations

from collections.abc import Sequence

from bluebridge.device.armed_faults import ArmedFaults
from bluebridge.device.ethernet.sender import EthernetSender
from bluebridge.device.fabric.addresses import LinkLayer
from bluebridge.device.fabric.interface import Fabric
from bluebridge.device.fabric.subnet.topology import CHANNEL_ADAPTER, Node
from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.mlx4.bar0 import MSIX_VECTORS
from bluebridge.device.layout.mlx4.capabilities import RESERVED_LKEY
from bluebridge.device.layout.mlx4.commands import Status
from bluebridge.device.layout.mlx4.contexts import QPC, WORK_RING_UNIT
from bluebridge.device.mlx4.memory.icm import AUXILIARY_PAGES, FIRMWARE_PAGES, Icm, LentPages
from bluebridge.device.mlx4.memory.protection_table import (
    FAST_PAGES,
    PAGE_SHIFTS,
    PD_BITS,
    ProtectionTable,
)
from bluebridge.device.mlx4.pairs import HcaPair, ring_geometry, role_of, spreader_of
from bluebridge.device.mlx4.ports.interface_counters import InterfaceCounters
from bluebridge.device.mlx4.ports.multicast_groups import MulticastGroups
from bluebridge.device.mlx4.ports.port_tables import PortTables
from bluebridge.device.mlx4.ports.reports import PortEventWriter, special_base
from bluebridge.device.mlx4.registers.doorbells import UserAccessRegion
from bluebridge.device.mlx4.rings.completion_queues import CompletionQueues
from bluebridge.device.mlx4.rings.completions import CompletionWriter
from bluebridge.device.mlx4.rings.event_queues import EventQueues
from bluebridge.device.mlx4.rings.faulty_entries import FaultyEntries
from bluebridge.device.mlx4.rings.ring_buffer import RingPages
from bluebridge.device.mlx4.rings.send_queue import SendRing
from bluebridge.device.mlx4.rings.shared_receive_queues import SharedReceiveRings
from bluebridge.device.mlx4.rings.work_requests import (
    ConnectedReader,
    DatagramReader,
    EntryReader,
    FrameReader,
    PacketReader,
)
from bluebridge.device.mlx4.settings.capabilities import INTERFACE_COUNTERS, MAX_FRAME, MAX_PAIRS
from bluebridge.device.mlx4.settings.config import NODE_DESCRIPTION, HcaConfig
from bluebridge.device.mlx4.settings.parameters import CommandError, Parameters
from bluebridge.device.mlx4.steering.receivers import CardSteering
from bluebridge.device.mlx4.steering.rules import Registrations
from bluebridge.device.pci.bus import HostBus
from bluebridge.device.queue_pairs import QueuePairs
from bluebridge.device.rdma.connected.packet_receiver import PacketReceiver
from bluebridge.device.rdma.connected.packet_sender import PacketSender
from bluebridge.device.rdma.connected.part_sender import PartSender
from bluebridge.device.rdma.connected.receiver import PartReceiver
from bluebridge.device.rdma.datagrams.sender import DatagramSender
from bluebridge.device.rdma.memory.regions import MemoryRegions
from bluebridge.device.rdma.memory.scatter_gather import LocalMemory
from bluebridge.device.rdma.pairs.engines import ReceiveEngine
from bluebridge.device.rdma.ports.infiniband_port import InfinibandPort
from bluebridge.device.rdma.ports.port import Port
from bluebridge.device.rdma.vocabulary import DATAGRAMS, Role
from bluebridge.device.rings.receive_ring import ReceiveRing


class Adapter:
    """The parts of one HCA with one port for each of `fabrics`, which firmware commands work on.

    Each part was given what it uses and knows nothing of the adapter. `uar` are the doorbell pages
    of BAR2, `parameters` those of INIT_HCA.
    """

    def __init__(self, bus: HostBus, fabrics: Sequence[Fabric], config: HcaConfig) -> None:
        self.bus = bus
        self.config = config
        self.parameters = Parameters()
        self.node = Node(CHANNEL_ADAPTER, config.node_guid, config.device_id, {})
        self.icm = Icm(bus, self.parameters)
        self.firmware_pages = LentPages(FIRMWARE_PAGES)
        self.auxiliary_pages = LentPages(AUXILIARY_PAGES)
        self.ring_pages = RingPages(bus, self.icm)
        self.counters = InterfaceCounters(INTERFACE_COUNTERS)
        self.faults = ArmedFaults(bus, FaultyEntries())
        self.eqs = EventQueues(bus, self.ring_pages, self.parameters, MSIX_VECTORS, self.faults)
        self.cqs = CompletionQueues(bus, self.ring_pages, self.eqs, self.parameters)
        self.srqs = SharedReceiveRings(bus, self.ring_pages, self.eqs, self.parameters)
        self.regions = MemoryRegions(
            reserved_lkey=RESERVED_LKEY,
            pd_bits=PD_BITS,
            page_shifts=PAGE_SHIFTS,
            most_pages=FAST_PAGES,
        )
        self.mpt = ProtectionTable(self.icm, self.parameters, self.regions)
        self.multicast = MulticastGroups(self.parameters)
        self.rules = Registrations(self.parameters)
        self.tables = tuple(PortTables(config.mac_of(n)) for n, _ in enumerate(fabrics, 1))
        self.steering = CardSteering(self.parameters, self.multicast, self.tables)
        self.ports = tuple(self._port(n, fabric) for n, fabric in enumerate(fabrics, 1))
        self.qps = QueuePairs(bus, self.regions, self.steering, MAX_PAIRS)
        self.steering.find = self.qps.get
        self.uar = UserAccessRegion(
            bus, config.features, self.parameters, qps=self.qps, cqs=self.cqs, eqs=self.eqs
        )
        self.faults.role_of = self._role
        self._describe()
        for port in self.ports:
            port.rerouted.append(self.qps.reroute)
            port.attach(self.qps.receive)

    def _port(self, number: int, fabric: Fabric) -> Port:
        events, tables = PortEventWriter(self.eqs), self.tables[number - 1]
        mac = tables.burned_in
        if self.config.link is LinkLayer.INFINIBAND:
            guid = self.config.port_guid(number)
            return InfinibandPort(
                number, fabric, mac, self.bus, events, tables, node=self.node, guid=guid
            )
        return Port(number, fabric, mac, self.bus, events, tables)

    def _role(self, qpn: int) -> Role | None:
        qp = self.qps.get(qpn)
        return None if qp is None else qp.role

    def _describe(self) -> None:
        self.node.description = NODE_DESCRIPTION.encode()

    def port_of(self, number: int) -> Port:
        """Return the port that a command names, from 1 on; raises `CommandError` (BAD_INDEX)."""
        if not 1 <= number <= len(self.ports):
            raise CommandError(Status.BAD_INDEX, f"port {number}")
        return self.ports[number - 1]

    def tables_of(self, port: Port) -> PortTables:
        """Return the tables that software has programmed into a port."""
        return self.tables[port.number - 1]

    def create_pair(self, qpn: int, context: bytearray) -> None:
        """Make a queue pair for RST2INIT_QP.

        Raises `CommandError` (BAD_PARAM, ICM_ERROR, EXCEED_LIM) and what `QueuePairs.check_free`
        raises.
        """
        self.qps.check_free(qpn)
        role = role_of(qpn, context, special_base(self.ports[0]))
        qp = HcaPair(
            qpn,
            role,
            context,
            bus=self.bus,
            regions=self.regions,
            memory=self._memory(qpn, context),
            completions=self._completions(qpn, context),
            srqs=self.srqs,
            ports=self.ports,
            counters=self.counters,
            failed=self.qps.failed.add,
        )
        self._attach_engines(qp)
        if role is not Role.RSS:
            self._attach_rings(qp)
        if role is Role.RSS:
            self.steering.spread(qpn, spreader_of(context))
        self.qps.add(qp)

    def _memory(self, qpn: int, context: bytearray) -> LocalMemory:
        pd, reserved = QPC.get(context, "pd"), bool(QPC.get(context, "reserved_lkey"))
        return LocalMemory(self.bus, self.regions, pd, qpn, reserved_lkey=reserved)

    def _completions(self, qpn: int, context: bytearray) -> CompletionWriter:
        sends, receives = QPC.get(context, "cqn_send"), QPC.get(context, "cqn_recv")
        writer = CompletionWriter(self.bus, self.cqs, self.eqs, qpn, sends, receives, self.faults)
        infiniband = self.config.link is LinkLayer.INFINIBAND
        writer.inspects = infiniband and self.parameters.ipoib_checksums
        return writer

    def _attach_engines(self, qp: HcaPair) -> None:
        qp.responder = ReceiveEngine()
        if qp.connected and self.config.network.packets:
            qp.engine, qp.responder = (
                PacketSender(qp, self.config.network.ack_timeout_factor),
                PacketReceiver(qp),
            )
        elif qp.connected:
            qp.engine, qp.responder = (
                PartSender(qp, fast_rnr=self.config.network.fast_rnr),
                PartReceiver(qp),
            )
        elif qp.role in DATAGRAMS:
            qp.engine = DatagramSender(qp)
        else:
            qp.engine = EthernetSender(qp, MAX_FRAME, self.steering.returns)
        if not qp.connected:
            qp.engine.next_psn = QPC.get(qp.context, "next_send_psn")

    def _attach_rings(self, qp: HcaPair) -> None:
        """Find both rings in the one buffer that the context names."""
        get, context = QPC.get, qp.context
        sends, receives, length = ring_geometry(context, qp.role)
        shift = get(context, "log_page_size") + 12
        start = get(context, "page_offset") * WORK_RING_UNIT
        buffer = self.ring_pages.buffer(get(context, "mtt_addr"), shift, length, start)
        qp.sq = SendRing(
            self.bus,
            qp,
            qp.engine,
            self._reader_of(qp),
            buffer,
            base=sends.base,
            log_size=sends.log_size,
            shift=sends.shift,
            page=get(context, "uar"),
            what=What.UD_WQE if qp.role is Role.UD else What.SQ_WQE,
            faults=self.faults,
        )
        if receives is not None:
            record = get(context, "doorbell_record") & ~3
            qp.rq = ReceiveRing(self.bus, qp.qpn, qp.pd, buffer, *receives, record)

    def _reader_of(self, qp: HcaPair) -> EntryReader:
        if qp.connected:
            return ConnectedReader(self.bus, qp.qpn)
        if qp.role is Role.UD:
            return DatagramReader()
        return PacketReader() if qp.role in DATAGRAMS else FrameReader()

    def pair(self, qpn: int) -> HcaPair | None:
        """Return the queue pair with exactly this number, generation bits included, or None."""
        qp = self.qps.get(qpn)
        return qp if isinstance(qp, HcaPair) else None

    def initialise(self, parameters: Parameters) -> None:
        """Take the parameters of an INIT_HCA: numbers name places in tables of these sizes."""
        self.parameters.take(parameters)
        self.regions.index_mask = (1 << parameters.log_mpts) - 1
        self.qps.index_bits = parameters.log_qps

    def clear(self) -> None:
        """Forget every object, as CLOSE_HCA does: no DMA and no interrupt from now on."""
        self.parameters.initialised = False  # first: whatever fails below, doorbells are over
        self.qps.reset()
        self.srqs.reset()
        self.mpt.reset()
        self.cqs.reset()
        self.eqs.reset()
        self.ring_pages.reset()
        self.multicast.reset()
        self.steering.reset()
        self.rules.reset()
        self.counters.reset()
        for port in self.ports:
            port.reset()
        self.uar.reset()
        self.parameters.clear()

    def reset(self) -> None:
        """Return to the state after power-on: no object, no mapping; the configuration stays."""
        self.clear()
        self.icm.reset()
        self.firmware_pages.take_back()
        self.auxiliary_pages.take_back()
        self._describe()

    def leave(self) -> None:
        """Forget every object and leave the fabrics for good."""
        self.clear()
        for port in self.ports:
            port.leave()
