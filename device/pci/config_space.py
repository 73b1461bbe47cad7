"""Configuration space of an endpoint: a type 0 header and a chain of capabilities."""

from __future__ import annotations

from collections.abc import Sequence

from bluebridge.device.layout import pci as layout
from bluebridge.device.pci.capabilities import Capability, Express
from bluebridge.device.pci.identity import Bar, Identity
from bluebridge.device.pyvfio_user import ConfigSpace


class EndpointConfig(ConfigSpace):
    """Config space that can be reset to its power-on state."""

    def __init__(self) -> None:
        super().__init__(layout.CONFIG_SIZE)
        self._power_on = b""
        self._reset_at = -1

    def freeze(self) -> None:
        """Take the present contents of the registers as their power-on state."""
        self._power_on = bytes(self.data)

    def reset(self) -> None:
        """Set every register to its power-on state, the BARs too.

        The values of the BARs that the guest sees are kept by QEMU itself.
        """
        self.data[:] = self._power_on

    @property
    def bus_master(self) -> bool:
        """Whether Bus Master Enable is set, so that the function may start accesses."""
        return bool(layout.HEADER.get(self.data, "command") & layout.COMMAND_BUS_MASTER)

    def set_function_reset(self, offset: int) -> None:
        """Set the offset of device control of the PCIe capability.

        Bit 15 of that register initiates a function-level reset.
        """
        self._reset_at = offset + 1

    def initiates_reset(self, offset: int, data: bytes) -> bool:
        """Whether writing `data` at `offset` initiates a function-level reset."""
        position = self._reset_at - offset
        return 0 <= position < len(data) and bool(data[position] & 0x80)


def compose(
    identity: Identity, bars: Sequence[Bar], capabilities: Sequence[Capability]
) -> EndpointConfig:
    """Make the configuration space of a function from its identity, BARs and capabilities.

    The capabilities are in the order given. Raises `ValueError` when they do not fit into the first
    256 bytes.

    Raises `ValueError` when the capabilities do not fit into the first 256 bytes.
    """
    config = EndpointConfig()
    config.set_identity(identity.vendor, identity.device, identity.class_code, identity.revision, 1)
    config.set(0x2C, "<H", identity.subsystem_vendor)
    config.set(0x2E, "<H", identity.subsystem)
    for bar in bars:
        _add_bar(config, bar)
    for capability in capabilities:
        offset = config.add_capability(capability.body(), capability.writable())
        if isinstance(capability, Express):
            config.set_function_reset(
                offset + layout.EXPRESS_CAPABILITY.field("device_control").offset
            )
    config.freeze()
    return config


def _add_bar(config: EndpointConfig, bar: Bar) -> None:
    low = (layout.BAR_64BIT if bar.wide else 0) | (
        layout.BAR_PREFETCHABLE if bar.prefetchable else 0
    )
    config.set_bar(bar.index, bar.size, low)
    if bar.wide:
        config.set(0x10 + 4 * (bar.index + 1), "<I", 0, writable=(-bar.size >> 32) & 0xFFFFFFFF)
