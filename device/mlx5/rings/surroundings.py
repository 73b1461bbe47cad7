"""The parts of an adapter that its queues are made with."""

from __future__ import annotations

from bluebridge.device.armed_faults import ArmedFaults
from bluebridge.device.ethernet.sender import Returns
from bluebridge.device.mlx5.rings.completion_queues import CompletionQueues
from bluebridge.device.mlx5.rings.event_queues import EventQueues
from bluebridge.device.mlx5.rings.page_lists import PageLists
from bluebridge.device.pci.bus import HostBus
from bluebridge.device.rdma.memory.regions import MemoryRegions
from bluebridge.device.rdma.ports.counters import InterfaceCounter
from bluebridge.device.rdma.ports.port import Port


class Surroundings:
    """Parts of the adapter that each queue uses: bus, rings' pages, keys, event queues, port.

    `comes_back` says of sent frames whether they do.
    """

    def __init__(
        self,
        bus: HostBus,
        pages: PageLists,
        regions: MemoryRegions,
        cqs: CompletionQueues,
        eqs: EventQueues,
        port: Port,
        faults: ArmedFaults,
        comes_back: Returns,
    ) -> None:
        self.bus = bus
        self.faults = faults
        self.pages = pages
        self.regions = regions
        self.cqs = cqs
        self.eqs = eqs
        self.port = port
        self.comes_back = comes_back
        self.traffic = InterfaceCounter()
