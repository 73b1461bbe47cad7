"""The parts of one ConnectX-5 and how they are connected."""

from __future__ import annotations

from enum import IntEnum

from bluebridge.device.armed_faults import ArmedFaults
from bluebridge.device.fabric.interface import Fabric
from bluebridge.device.layout.mlx5.init_segment import MSIX_VECTORS
from bluebridge.device.mlx5.objects.objects import Objects
from bluebridge.device.mlx5.objects.user_contexts import UserContexts
from bluebridge.device.mlx5.registers.doorbells import Doorbells
from bluebridge.device.mlx5.rings.event_queues import EventQueues
from bluebridge.device.mlx5.rings.faulty_entries import FaultyEntries
from bluebridge.device.mlx5.rings.page_lists import PageLists
from bluebridge.device.mlx5.settings.capabilities import Capabilities
from bluebridge.device.mlx5.settings.config import Config
from bluebridge.device.pci.bus import HostBus
from bluebridge.device.rdma.pairs.queue_pair import QueuePair
from bluebridge.device.rdma.ports.port import Port
from bluebridge.device.rdma.vocabulary import Role


class Stage(IntEnum):
    """The steps of bring-up: disabled, then ENABLE_HCA, then INIT_HCA."""

    DISABLED = 0
    """Before ENABLE_HCA."""
    ENABLED = 1
    INITIALISED = 2
    """After INIT_HCA."""


class Adapter:
    """The parts of one adapter with a port on `fabric`, which firmware commands work on.

    Each part was given what it uses and knows nothing of the adapter. A part with objects has
    `reset`, which forgets them, and is called by `clear`.
    """

    def __init__(self, bus: HostBus, fabric: Fabric, config: Config) -> None:
        self.bus = bus
        self.config = config
        self.stage = Stage.DISABLED
        self.issi = 0
        """Which revision of commands software chose (SET_ISSI)."""
        self.driver = ""
        """The version that a driver gave itself (SET_DRIVER_VERSION)."""
        self.capabilities = Capabilities(
            blueflame=config.blueflame,
            masked_atomics=not config.network.packets,  # no packet has a standard opcode for them
        )
        self.pages = PageLists(bus)
        self.faults = ArmedFaults(bus, FaultyEntries())
        self.eqs = EventQueues(bus, self.pages, MSIX_VECTORS, self.faults)
        self.doorbells = Doorbells(bus, self.eqs, blueflame=config.blueflame)
        self.objects = Objects(bus, fabric, config, self.pages, self.eqs, self.faults)
        self.users = UserContexts(self.pages.users, self.objects.keys.regions)
        self.faults.role_of = self.role_of
        self.doorbells.arm = self.objects.cqs.doorbell
        self.doorbells.find = self.objects.ring_of
        self.given_pages: set[int] = set()
        """Addresses of pages that a driver lent (MANAGE_PAGES)."""
        self.ports: tuple[Port, ...] = (self.objects.port,)

    def role_of(self, number: int) -> Role | None:
        """Return the type of a queue with work requests; None if there is none."""
        objects = self.objects
        queue: QueuePair | None = objects.sqs.get(number) or objects.rqs.get(number)
        queue = queue or objects.rdma.pairs.get(number)
        return None if queue is None else queue.role

    @property
    def initialised(self) -> bool:
        """Whether INIT_HCA is in force."""
        return self.stage is Stage.INITIALISED

    def clear(self) -> None:
        """Forget every object, as TEARDOWN_HCA does: no DMA and no interrupt from now on."""
        self.stage = min(self.stage, Stage.ENABLED)
        self.objects.reset()
        self.eqs.reset()
        self.doorbells.reset()
        self.pages.reset()
        self.users.reset()

    def reset(self) -> None:
        """Return to the state after power-on: no object; the configuration stays."""
        self.clear()
        self.stage = Stage.DISABLED
        self.issi = 0
        self.driver = ""
        self.given_pages.clear()
        self.capabilities.reset()

    def leave(self) -> None:
        """Forget every object and leave the fabric for good."""
        self.reset()
        self.objects.leave()
