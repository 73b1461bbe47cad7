"""The parts of one HCA and how they are connected."""

from __future__ import annotations

from collections.abc import Sequence

from bluebridge.device.fabric.addresses import LinkLayer
from bluebridge.device.fabric.interface import Fabric
from bluebridge.device.fabric.subnet.topology import CHANNEL_ADAPTER, Node
from bluebridge.device.layout.mlx4.capabilities import RESERVED_LKEY
from bluebridge.device.layout.mlx4.commands import Status
from bluebridge.device.mlx4.armed_faults import ArmedFaults
from bluebridge.device.mlx4.memory.icm import AUXILIARY_PAGES, FIRMWARE_PAGES, Icm, LentPages
from bluebridge.device.mlx4.memory.protection_table import PD_BITS, ProtectionTable
from bluebridge.device.mlx4.pair_factory import PairFactory
from bluebridge.device.mlx4.pairs import HcaPair, spreader_of
from bluebridge.device.mlx4.ports.multicast_groups import MulticastGroups
from bluebridge.device.mlx4.ports.reports import PortEventWriter
from bluebridge.device.mlx4.registers.doorbells import UserAccessRegion
from bluebridge.device.mlx4.rings.completion_queues import CompletionQueues
from bluebridge.device.mlx4.rings.event_queues import EventQueues
from bluebridge.device.mlx4.rings.receive_queues import SharedReceiveRings
from bluebridge.device.mlx4.rings.ring_buffer import RingPages
from bluebridge.device.mlx4.settings.capabilities import INTERFACE_COUNTERS
from bluebridge.device.mlx4.settings.config import HcaConfig
from bluebridge.device.mlx4.settings.parameters import CommandError, Parameters
from bluebridge.device.mlx4.steering import Registrations
from bluebridge.device.pci.bus import HostBus
from bluebridge.device.rdma.memory.regions import MemoryRegions
from bluebridge.device.rdma.ports.counters import InterfaceCounters
from bluebridge.device.rdma.ports.infiniband_port import InfinibandPort
from bluebridge.device.rdma.ports.port import Port
from bluebridge.device.rdma.queue_pairs import QueuePairs
from bluebridge.device.rdma.vocabulary import Role


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
        self.faults = ArmedFaults(bus)
        self.eqs = EventQueues(
            bus, self.ring_pages, self.parameters, config.msix_vectors, self.faults
        )
        self.cqs = CompletionQueues(bus, self.ring_pages, self.eqs, self.parameters)
        self.srqs = SharedReceiveRings(bus, self.ring_pages, self.eqs, self.parameters)
        self.regions = MemoryRegions(self.parameters, reserved_lkey=RESERVED_LKEY, pd_bits=PD_BITS)
        self.mpt = ProtectionTable(self.icm, self.parameters, self.regions)
        self.multicast = MulticastGroups(self.parameters)
        self.rules = Registrations(self.parameters)
        self.ports = tuple(self._port(n, fabric) for n, fabric in enumerate(fabrics, 1))
        self._factory = PairFactory(
            bus=bus,
            pages=self.ring_pages,
            regions=self.regions,
            eqs=self.eqs,
            cqs=self.cqs,
            srqs=self.srqs,
            ports=self.ports,
            counters=self.counters,
            faults=self.faults,
            packets=config.features.packets,
        )
        self.qps = QueuePairs(bus, self.parameters, self.regions, self.multicast)
        self.uar = UserAccessRegion(
            bus, config.features, self.parameters, qps=self.qps, cqs=self.cqs, eqs=self.eqs
        )
        self.faults.has_pair = lambda qpn: self.qps.get(qpn) is not None
        self._describe()
        for port in self.ports:
            port.rerouted.append(self.qps.reroute)
            port.attach(self.qps.receive)

    def _port(self, number: int, fabric: Fabric) -> Port:
        events, mac = PortEventWriter(self.eqs), self.config.mac_of(number)
        if self.config.link is LinkLayer.INFINIBAND:
            guid = self.config.port_guid(number)
            return InfinibandPort(number, fabric, mac, self.bus, events, node=self.node, guid=guid)
        return Port(number, fabric, mac, self.bus, events)

    def _describe(self) -> None:
        self.node.description = self.config.node_description.encode("utf-8")

    @property
    def initialised(self) -> bool:
        """True while an INIT_HCA is in force, that is until the next reset or CLOSE_HCA."""
        return self.parameters.initialised

    def port_of(self, number: int) -> Port:
        """Return the port that a command names, from 1 on; raises `CommandError` (BAD_INDEX)."""
        if not 1 <= number <= len(self.ports):
            raise CommandError(Status.BAD_INDEX, f"port {number}")
        return self.ports[number - 1]

    def create_pair(self, qpn: int, context: bytearray) -> None:
        """Make a queue pair for RST2INIT_QP.

        Raises `CommandError` (BAD_PARAM, ICM_ERROR, EXCEED_LIM) and what `QueuePairs.check_free`
        raises.
        """
        self.qps.check_free(qpn)
        qp = self._factory.make(qpn, context, self.qps.failed.add)
        self.qps.add(qp, spreader_of(context) if qp.role is Role.RSS else None)

    def pair(self, qpn: int) -> HcaPair | None:
        """Return the queue pair with exactly this number, generation bits included, or None."""
        qp = self.qps.get(qpn)
        return qp if isinstance(qp, HcaPair) else None

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
