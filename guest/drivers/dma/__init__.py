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

from bluebridge.device.layout.ioat import registers as layout
from bluebridge.guest.drivers.dma.channel import Channel
from bluebridge.guest.drivers.dma.engine import Engine
from bluebridge.guest.drivers.dma.errors import ChannelHalted, DmaError, DmaTimeout

__all__ = ["Channel", "ChannelHalted", "DmaError", "DmaTimeout", "Engine", "open_engine"]

BARS = (0,)


def open_engine() -> Engine:
    """Open and reset this machine's DMA engine on vfio-pci; raises `DeviceError`."""
    from bluebridge.guest.drivers.bus.vfio import open_driver

    return open_driver(layout.PCI_IDS, BARS, Engine)
