"""What faults by name need to know of an adapter, whichever card it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import IntEnum

from bluebridge.device.armed_faults import ArmedFault, ArmedFaults
from bluebridge.device.layout.faults import NamedFault
from bluebridge.device.pci.bus import HostBus
from bluebridge.device.rdma.memory.regions import MemoryRegions
from bluebridge.device.rdma.ports.port import Port


class CardFaults(ABC):
    """The faults of one adapter: those of its card by name, and the parts of it that they strike.

    `title` is the card for people, `vectors` counts MSI-X vectors.
    """

    title: str
    table: Mapping[str, NamedFault]
    opcodes: type[IntEnum]
    statuses: type[IntEnum]
    events: type[IntEnum]
    syndromes: type[IntEnum]
    vectors: int

    def __init__(
        self, bus: HostBus, port: Port, armed: ArmedFaults, regions: MemoryRegions
    ) -> None:
        self.bus = bus
        self.port = port
        self.armed = armed
        self._regions = regions

    @abstractmethod
    def number(self, word: str, text: str) -> int:
        """Return a number, of a queue only if there is one; raises `ValueError`."""

    def lock(self, fault: ArmedFault) -> None:
        """Let a memory region count as one that is not registered; raises `ValueError`."""
        region = self._regions.find(fault.target)
        if region is None:
            raise ValueError(f"there is no key {fault.target:#x}: `bluebridge show GUEST mr`")
        if region.free:
            raise ValueError(
                f"key {fault.target:#x} is not registered: `bluebridge show GUEST mr` lists keys"
            )
        region.free = True

        def undo() -> None:
            if region.rights:  # none: software has freed it meanwhile
                region.free = False

        fault.undo = undo

    @abstractmethod
    def vendor(self, status: int) -> int:
        """Return the vendor syndrome that goes with a syndrome of a completion."""

    @abstractmethod
    def begin(self, fault: ArmedFault, values: Mapping[str, str]) -> None:
        """Do what a fault of this card's own parts does when it is armed; raises `ValueError`."""

    @abstractmethod
    def happen(self, named: NamedFault, values: Mapping[str, str]) -> None:
        """Carry out a fault of this card's own parts that is over at once; raises `ValueError`."""
