"""PCI capabilities: their registers at reset and the bits that software may change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from bluebridge.device.layout import pci as layout


class Capability(Protocol):
    """One capability: identifier, a byte for the link to the next one, registers."""

    def body(self) -> bytes:
        """The registers at reset."""

    def writable(self) -> bytes:
        """A mask of the bits of `body` that software may change."""


@dataclass(frozen=True, slots=True)
class PowerManagement:
    """PCI power management 1.2 capability: states D0 and D3hot, without PME."""

    def body(self) -> bytes:
        """The 8 bytes at reset; the device does not lose its state in D3hot (No_Soft_Reset)."""
        return bytes(layout.PM_CAPABILITY.pack(id=layout.CAP_ID_PM, version=3, no_soft_reset=1))

    def writable(self) -> bytes:
        """A mask of `body` in which only the power state is writable."""
        return bytes(layout.PM_CAPABILITY.pack(power_state=3))


@dataclass(frozen=True, slots=True)
class Express:
    """PCI Express capability version 2 of an endpoint: `speed` 3 = 8 GT/s, `width` in lanes."""

    speed: int = 3
    width: int = 8

    def body(self) -> bytes:
        """The 60 bytes at reset, which show a link that is up at its full speed and width."""
        return bytes(
            layout.EXPRESS_CAPABILITY.pack(
                id=layout.CAP_ID_EXPRESS,
                version=2,
                max_payload_supported=1,
                extended_tag_supported=1,
                role_based_errors=1,
                function_reset=1,
                relaxed_ordering=1,
                no_snoop=1,
                max_read_request=2,
                link_speed_max=self.speed,
                link_width_max=self.width,
                link_speed=self.speed,
                link_width=self.width,
                completion_timeout_disable_supported=1,
                link_speeds=(1 << self.speed) - 1,
                target_link_speed=self.speed,
            )
        )

    def writable(self) -> bytes:
        """A mask of `body` with device control 1 and 2 and link control 1 and 2 writable."""
        return bytes(
            layout.EXPRESS_CAPABILITY.pack(
                device_control=0x7FFF,
                link_control=0x0FFB,
                device_control2=0x641F,
                link_control2=0xFFFF,
            )
        )


@dataclass(frozen=True, slots=True)
class MsiX:
    """MSI-X capability with `vectors` entries: table and pending bits at offsets of BAR `bar`.

    QEMU keeps table and pending bits itself; the device never sees accesses to them.
    """

    vectors: int
    bar: int
    table: int
    pending: int

    def body(self) -> bytes:
        """The 12 bytes at reset."""
        return bytes(
            layout.MSIX_CAPABILITY.pack(
                id=layout.CAP_ID_MSIX,
                table_size=self.vectors - 1,
                table=self.table | self.bar,
                pending=self.pending | self.bar,
            )
        )

    def writable(self) -> bytes:
        """A mask of `body` in which MSI-X enable and function mask are writable."""
        return bytes(layout.MSIX_CAPABILITY.pack(enable=1, function_mask=1))
