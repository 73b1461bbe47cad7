"""The function behind the PCI endpoint: routes accesses to the parts of the HCA."""

from __future__ import annotations

from collections.abc import Sequence

from bluebridge.device.fabric.interface import Fabric
from bluebridge.device.fabric.subnet.node import CHANNEL_ADAPTER, Node
from bluebridge.device.hca.commands.command import CommandError, Status
from bluebridge.device.hca.commands.register import CommandRegister
from bluebridge.device.hca.memory.icm import Icm
from bluebridge.device.hca.memory.regions import MemoryRegions
from bluebridge.device.hca.ports.infiniband_port import InfinibandPort
from bluebridge.device.hca.ports.multicast_groups import MulticastGroups
from bluebridge.device.hca.ports.port import Port
from bluebridge.device.hca.ports.traffic_counters import InterfaceCounters
from bluebridge.device.hca.queue_pairs import QueuePairs
from bluebridge.device.hca.registers.doorbells import UserAccessRegion
from bluebridge.device.hca.registers.health import Health
from bluebridge.device.hca.rings.completion_queues import CompletionQueues
from bluebridge.device.hca.rings.event_queues import EventQueues
from bluebridge.device.hca.rings.ring_buffer import RingPages
from bluebridge.device.hca.rings.shared_receive_queues import SharedReceiveQueues
from bluebridge.device.hca.settings import clock
from bluebridge.device.hca.settings.config import HcaConfig, Link
from bluebridge.device.hca.settings.parameters import Parameters
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.layout.mlx4 import bar0
from bluebridge.device.pci.bus import HostBus

BAR0, BAR2 = 0, 2
RESET_BYTES = bar0.RESET_VALUE.to_bytes(4, "big")


class Hca:
    """One ConnectX-3: a `Model` for its PCI endpoint, with one port for each of `fabrics`.

    `port` is the first of `ports`. The parts are attributes; `parameters` are those of INIT_HCA,
    `initialised` says whether one was accepted since the last reset or CLOSE_HCA.
    """

    def __init__(self, bus: HostBus, fabrics: Sequence[Fabric], config: HcaConfig) -> None:
        self.bus = bus
        self.config = config
        self.parameters = Parameters()
        self.initialised = False
        self.node = Node(CHANNEL_ADAPTER, config.node_guid, config.device_id, {})
        self.node_description = _description(config)
        self.icm = Icm(bus)
        self.ring_pages = RingPages()
        self.counters = InterfaceCounters()
        self.eqs = EventQueues(self)
        self.cqs = CompletionQueues(self)
        self.regions = MemoryRegions(self)
        make = InfinibandPort if config.link is Link.INFINIBAND else Port
        self.ports = tuple(make(self, n, fabric) for n, fabric in enumerate(fabrics, 1))
        self.port = self.ports[0]
        self.multicast = MulticastGroups(self)
        self.srqs = SharedReceiveQueues(self)
        self.qps = QueuePairs(self)
        self.commands = CommandRegister(self)
        self.health = Health()
        self._uar = UserAccessRegion(self)

    @property
    def node_description(self) -> bytes:
        """64 bytes: who this is, as software or the configuration says."""
        return self.node.described()

    @node_description.setter
    def node_description(self, value: bytes) -> None:
        self.node.description = value

    def close(self) -> None:
        """Leave the fabric; the HCA is gone."""
        self.clear()
        for port in self.ports:
            port.leave()

    # -- Model --------------------------------------------------------------------------------

    def bar_read(self, bar: int, offset: int, length: int) -> bytes:
        """Registers of BAR0; all else reads zero.

        Zero is also what ownership and semaphore have to say: free, taken by the reader.
        """
        if bar == BAR0:
            if self.commands.covers(offset, length):
                return self.commands.read(offset - bar0.HCR_BASE, length)
            if clock.covers(offset, length):
                return clock.read(offset, length)
            return self.health.read(offset, length)
        if bar == BAR2:
            self._uar.read(offset)
        return bytes(length)

    def bar_write(self, bar: int, offset: int, data: bytes) -> None:
        """Commands and the reset register in BAR0, doorbells in BAR2; the rest is ignored."""
        if bar == BAR2:
            if not self.health.failed:
                self._uar.write(offset, data)
        elif bar == BAR0 and self.commands.covers(offset, len(data)):
            self.commands.write(offset - bar0.HCR_BASE, data)
        elif bar == BAR0 and offset == bar0.RESET_OFFSET and data == RESET_BYTES:
            self.bus.note(Kind.RESET, "software reset")
            self.reset()

    def reset(self) -> None:
        """Power-on state: no object, no mapping, no command; the personality stays."""
        self.clear()
        self.icm.reset()
        self.commands.reset()
        self.health.reset()
        self.node_description = _description(self.config)

    @property
    def failed(self) -> bool:
        """Whether an internal error stopped the HCA; only a reset brings it back."""
        return self.health.failed

    def fail(self, reason: str) -> None:
        """An internal error: all stops at once, and the error buffer tells who polls it.

        Linux `mlx4/catas.c: poll_catas` looks every five seconds and resets the device.
        """
        self.bus.note(Kind.NOTE, f"internal error: {reason}")
        self.clear()
        self.health.fail(reason)

    def clear(self) -> None:
        """Forget every object, as CLOSE_HCA does: no DMA and no interrupt from now on."""
        self.initialised = False
        self.qps.reset()
        self.srqs.reset()
        self.regions.reset()
        self.cqs.reset()
        self.eqs.reset()
        self.multicast.reset()
        self.counters.reset()
        for port in self.ports:
            port.reset()
        self._uar.reset()
        self.parameters = Parameters()

    def port_of(self, number: int) -> Port:
        """The port that a command names, from 1 on; raises `CommandError` (BAD_INDEX)."""
        if not 1 <= number <= len(self.ports):
            raise CommandError(Status.BAD_INDEX, f"port {number}")
        return self.ports[number - 1]


def _description(config: HcaConfig) -> bytes:
    return config.node_description.encode("utf-8")[:64].ljust(64, b"\0")
