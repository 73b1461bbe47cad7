"""The bridge's user-space driver, the layer that RDMA over a bridge is built on.

    from bluebridge.guest.drivers.ntb import open_bridge
    with open_bridge() as bridge:                        # over VFIO; both guests do the same
        memory = bridge.allocate(1 << 20, align=bridge.windows[0].align)
        bridge.windows[0].set_translation(memory.address, 1 << 20)  # the peer sees `memory`
        bridge.enable_link()
        bridge.wait_link(timeout=30)
        bridge.windows[0].store(0, b"12345678")          # into what the peer shows
        bridge.set_peer_spad(0, 7)
        bridge.unmask(1)
        bridge.ring(1)                                   # interrupts the peer
        bridge.wait_rung(1, timeout=5)                   # sleeps until the peer rings

Bulk goes by the DMA engine, see `guest.drivers.dma`: it copies to `bridge.windows[0].address` +
offset.
"""

from __future__ import annotations

from bluebridge.device.layout.ntb.models import BY_PCI_ID, GEN1, GEN4
from bluebridge.guest.bus.interface import Function
from bluebridge.guest.drivers.ntb.bridge import Bridge, LinkState
from bluebridge.guest.drivers.ntb.intel import BARS, Gen1Bridge, Gen4Bridge
from bluebridge.guest.drivers.ntb.window import NtbError, NtbTimeout, Window
from bluebridge.guest.errors import DeviceError

__all__ = [
    "Bridge",
    "Gen1Bridge",
    "Gen4Bridge",
    "LinkState",
    "NtbError",
    "NtbTimeout",
    "Window",
    "bridge_of",
    "open_bridge",
]

DRIVERS: dict[tuple[int, int], type[Gen4Bridge] | type[Gen1Bridge]] = {
    GEN4.pci_id: Gen4Bridge,
    GEN1.pci_id: Gen1Bridge,
}
"""The driver classes of bridges by vendor and device ID."""


def bridge_of(function: Function) -> Bridge:
    """Return the driver of the bridge `function`; raises `DeviceError`."""
    identity = function.load_config(0, 2), function.load_config(2, 2)
    driver = DRIVERS.get(identity)
    if driver is None:
        raise DeviceError(f"{identity[0]:04x}:{identity[1]:04x} is no bridge with a driver here")
    return driver(function, BY_PCI_ID[identity])


def open_bridge() -> Bridge:
    """Open and reset this machine's bridge on vfio-pci; raises `DeviceError`."""
    from bluebridge.guest.bus.machine import open_driver

    return open_driver(DRIVERS, BARS, bridge_of)
