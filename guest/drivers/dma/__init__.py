"""The DMA engine's user-space driver.

    from bluebridge.guest.drivers.dma import open_engine
    with open_engine() as engine:                        # over VFIO
        channel = engine.channels[0]
        memory = engine.allocate(2 << 20)
        ticket = channel.copy(memory.address, memory.address + (1 << 20), 1 << 20, interrupt=True)
        channel.wait(ticket)                             # sleeps until the interrupt

Addresses are bus addresses: of memory, or of a bridge's window (`guest.drivers.ntb`), behind which
lies the peer's memory.
"""

from __future__ import annotations

from bluebridge.device.layout import ioat as layout
from bluebridge.guest.bus.interface import DmaMemory, Function
from bluebridge.guest.bus.vectors import Vectors
from bluebridge.guest.drivers.dma.channel import ENTRIES, Channel
from bluebridge.guest.drivers.dma.errors import ChannelHalted, DmaError, DmaTimeout

INTERRUPTS_ON = 0x9
"""The interrupt control register: master switch, and one vector for each channel."""
MOST_CHANNELS = 32

__all__ = ["Channel", "ChannelHalted", "DmaError", "DmaTimeout", "Engine", "open_engine"]

BARS = (0,)


class Engine:
    """The DMA engine: its channels copy between bus addresses of memory and of bridge windows."""

    def __init__(self, function: Function, entries: int = ENTRIES) -> None:
        """Take over `function`; each channel has `entries` descriptors, a power of two."""
        if entries < 2 or entries & (entries - 1):
            raise DmaError(f"a ring has a power of two entries, not {entries}")
        self.function = function
        where = layout.GLOBAL.at
        count = function.load(0, where("channel_count"), 1)
        if not 1 <= count <= MOST_CHANNELS:
            raise DmaError(f"the DMA engine says that it has {count} channels (is it gone?)")
        self.version = function.load(0, where("version"), 1)
        """The content of the engine's version register, 0x34 for version 3.4."""
        longest = 1 << function.load(0, where("transfer_capacity"), 1)
        vectors = Vectors(function.enable_interrupts(count))
        function.store(0, where("interrupt_control"), 1, INTERRUPTS_ON)
        self.channels = tuple(
            Channel(function, number, longest, vectors, entries) for number in range(count)
        )

    def allocate(self, length: int, align: int = 4096) -> DmaMemory:
        """Allocate contiguous zeroed memory that channels can reach; raises `MemoryError`."""
        return self.function.allocate(length, align)

    def close(self) -> None:
        """Stop all channels and give the device back."""
        for channel in self.channels:
            channel.close()
        self.function.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_engine() -> Engine:
    """Open and reset this machine's DMA engine on vfio-pci; raises `DeviceError`."""
    from bluebridge.guest.bus.machine import open_driver

    return open_driver(layout.PCI_IDS, BARS, Engine)
