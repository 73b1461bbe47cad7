"""The function behind the PCI endpoint, which routes accesses to the registers of the adapter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bluebridge.device.armed_faults import ArmedFaults
from bluebridge.device.fabric.interface import Fabric
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.mlx5.init_segment import SEGMENT_SIZE, UAR_AREA
from bluebridge.device.mlx5.adapter import Adapter
from bluebridge.device.mlx5.commands.queue import CommandQueue
from bluebridge.device.mlx5.registers.init_segment import InitSegment
from bluebridge.device.mlx5.settings.config import Config
from bluebridge.device.pci.bus import HostBus
from bluebridge.device.rdma.ports.port import Port

BAR0: Final = 0


class Hca:
    """One ConnectX-5: a `Model` for its PCI endpoint, with one port on the first of `fabrics`."""

    def __init__(self, bus: HostBus, fabrics: Sequence[Fabric], config: Config) -> None:
        self._bus = bus
        self.adapter = Adapter(bus, fabrics[0], config)
        self.commands = CommandQueue(self.adapter)
        self.segment = InitSegment(self.commands.ring, self._start, self._restart)

    def close(self) -> None:
        """Leave the fabric for good."""
        self.adapter.leave()

    def _start(self, address: int) -> None:
        self.commands.reset()
        self.commands.address = address

    def _restart(self) -> None:
        self._bus.tell(Fact.RESET, cause="software")
        self.reset()

    # -- Model --------------------------------------------------------------------------------

    def bar_read(self, bar: int, offset: int, length: int) -> bytes:
        """Return bytes of the initialization segment; all else reads as zero."""
        if bar == BAR0 and offset >= UAR_AREA:
            self.adapter.doorbells.read(offset)
        if bar == BAR0 and offset + length <= SEGMENT_SIZE:
            return self.segment.read(offset, length)
        return bytes(length)

    def bar_write(self, bar: int, offset: int, data: bytes) -> None:
        """Write to the initialization segment, or a doorbell."""
        if bar != BAR0:
            return
        if offset >= UAR_AREA:
            self.adapter.doorbells.write(offset, data)
        elif offset + len(data) <= SEGMENT_SIZE:
            self.segment.write(offset, data)

    def reset(self) -> None:
        """Return to the state after power-on, without objects; configuration stays."""
        self.commands.reset()
        self.adapter.reset()
        self.segment.reset()

    @property
    def ports(self) -> Sequence[Port]:
        """The ports, in the order of their numbers."""
        return self.adapter.ports

    @property
    def faults(self) -> ArmedFaults:
        """The faults by name that are armed."""
        return self.adapter.faults

    @property
    def failed(self) -> bool:
        """True after an internal error stopped the adapter, until a reset."""
        return self.segment.failed

    @property
    def initialised(self) -> bool:
        """Whether a driver has the adapter in use."""
        return self.adapter.initialised

    def fail(self, reason: str) -> None:
        """Stop the adapter at once with an internal error, which drivers find within seconds."""
        self._bus.tell(Fact.INTERNAL_ERROR, reason=reason)
        self.commands.reset()
        self.adapter.clear()
        self.segment.fail()
