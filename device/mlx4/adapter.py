"""The parts of one HCA, wired once."""

from __future__ import annotations

from collections.abc import Sequence

from bluebridge.device.fabric.addresses import LinkLayer
from bluebridge.device.fabric.interface import Fabric
from bluebridge.device.fabric.subnet.node import CHANNEL_ADAPTER, Node
from bluebridge.device.layout.mlx4.capabilities import RESERVED_LKEY
from bluebridge.device.layout.mlx4.commands import Status
from bluebridge.device.mlx4.memory.icm import Icm
from bluebridge.device.mlx4.memory.lent_pages import AUXILIARY_PAGES, FIRMWARE_PAGES, LentPages
from bluebridge.device.mlx4.memory.protection_entry import PD_BITS
from bluebridge.device.mlx4.memory.protection_table import ProtectionTable
from bluebridge.device.mlx4.pair_factory import PairFactory
from bluebridge.device.mlx4.ports.infiniband_port import InfinibandPort
from bluebridge.device.mlx4.ports.interface_counters import InterfaceCounters
from bluebridge.device.mlx4.ports.multicast_groups import MulticastGroups
from bluebridge.device.mlx4.ports.port import Port
from bluebridge.device.mlx4.queue_pairs import QueuePairs
from bluebridge.device.mlx4.registers.doorbells import UserAccessRegion
from bluebridge.device.mlx4.rings.completion_queues import CompletionQueues
from bluebridge.device.mlx4.rings.event_queues import EventQueues
from bluebridge.device.mlx4.rings.ring_buffer import RingPages
from bluebridge.device.mlx4.rings.shared_receive_queues import SharedReceiveQueues
from bluebridge.device.mlx4.settings.config import HcaConfig
from bluebridge.device.mlx4.settings.parameters import Parameters
from bluebridge.device.mlx4.settings.refusal import CommandError
from bluebridge.device.mlx4.steering.registrations import Registrations
from bluebridge.device.pci.bus import HostBus
from bluebridge.device.rdma.memory.regions import MemoryRegions


class Adapter:
    """The parts of one HCA with one port for each of `fabrics`: what firmware commands work on.

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
        self.counters = InterfaceCounters()
        self.eqs = EventQueues(bus, self.ring_pages, self.parameters, config.msix_vectors)
        self.cqs = CompletionQueues(bus, self.ring_pages, self.eqs, self.parameters)
        self.srqs = SharedReceiveQueues(bus, self.ring_pages, self.eqs, self.parameters)
        self.regions = MemoryRegions(self.parameters, reserved_lkey=RESERVED_LKEY, pd_bits=PD_BITS)
        self.mpt = ProtectionTable(self.icm, self.parameters, self.regions)
        self.multicast = MulticastGroups(self.parameters)
        self.rules = Registrations(self.parameters)
        self.ports = tuple(self._port(n, fabric) for n, fabric in enumerate(fabrics, 1))
        factory = PairFactory(
            bus=bus,
            pages=self.ring_pages,
            regions=self.regions,
            eqs=self.eqs,
            cqs=self.cqs,
            srqs=self.srqs,
            ports=self.ports,
            counters=self.counters,
        )
        self.qps = QueuePairs(
            bus, self.parameters, self.regions, self.multicast, self.rules, factory
        )
        self.uar = UserAccessRegion(
            bus, config.features, self.parameters, qps=self.qps, cqs=self.cqs, eqs=self.eqs
        )
        self._describe()
        for port in self.ports:
            port.rerouted.append(self.qps.reroute)
            port.attach(self.qps.receive)

    def _port(self, number: int, fabric: Fabric) -> Port:
        if self.config.link is LinkLayer.INFINIBAND:
            return InfinibandPort(number, fabric, self.config, self.bus, self.eqs, self.node)
        return Port(number, fabric, self.config, self.bus, self.eqs)

    def _describe(self) -> None:
        self.node.description = self.config.node_description.encode("utf-8")

    @property
    def initialised(self) -> bool:
        """Whether an INIT_HCA was accepted since the last reset or CLOSE_HCA."""
        return self.parameters.initialised

    def port_of(self, number: int) -> Port:
        """The port that a command names, from 1 on; raises `CommandError` (BAD_INDEX)."""
        if not 1 <= number <= len(self.ports):
            raise CommandError(Status.BAD_INDEX, f"port {number}")
        return self.ports[number - 1]

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
        """Power-on state: no object and no mapping; the configuration stays."""
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
