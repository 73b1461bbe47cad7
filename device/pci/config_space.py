"""Configuration space of an endpoint: identity, BARs and their addresses, capabilities.

vfio-user has no message with the address of a BAR: QEMU only forwards the writes to the base
address registers (hw/vfio-user in QEMU 11.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from bluebridge.device.layout import pci as layout
from bluebridge.device.pyvfio_user import ConfigSpace


@dataclass(frozen=True, slots=True)
class Bar:
    """A memory BAR of `size` bytes, a power of two; a 64-bit BAR takes two indexes.

    From offset `lines` on, adjacent posted stores within a line of 64 bytes may come as one write.
    """

    index: int
    size: int
    wide: bool = True
    prefetchable: bool = False
    lines: int | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a function, as `lspci` shows it; `class_code` has 24 bits."""

    vendor: int
    device: int
    class_code: int
    subsystem_vendor: int
    subsystem: int
    revision: int = 0


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


_FIRST: Final = layout.HEADER.field("bar0").offset
_END: Final = layout.HEADER.field("bar5").offset + 4


class BarDecoder:
    """The decoded BARs of one function.

    A BAR is decoded only while memory decoding is on and it holds an address: not zero, and not the
    all ones of a sizing probe. Its value is kept over a function level reset, since QEMU answers
    reads of the registers itself, so that the guest does not restore them.
    """

    def __init__(self, bars: Sequence[Bar]) -> None:
        self._bars = tuple(bars)
        self._words = bytearray(_END - _FIRST)
        self._memory = False
        self.ranges: tuple[tuple[int, int, int], ...] = ()
        """Start address, end address and index of each decoded BAR."""

    def power_off(self) -> None:
        """Stop decoding all BARs, because the client was lost."""
        self._words[:] = bytes(len(self._words))
        self._memory = False
        self.ranges = ()

    def write(self, offset: int, data: bytes, command: int) -> None:
        """Update the decoded BARs after a write to configuration space.

        `command` is the value of the command register after the write.
        """
        self._memory = bool(command & layout.COMMAND_MEMORY)
        for position, value in enumerate(data, offset):
            if _FIRST <= position < _END:
                self._words[position - _FIRST] = value
        self.ranges = tuple(self._decoded()) if self._memory else ()

    def _decoded(self) -> list[tuple[int, int, int]]:
        found = []
        for bar in self._bars:
            width = 8 if bar.wide else 4
            start = 4 * bar.index
            every = (1 << (8 * width)) - 1
            mask = every & -bar.size
            base = int.from_bytes(self._words[start : start + width], "little") & mask
            if base not in (0, mask):
                found.append((base, base + bar.size, bar.index))
        return found

    def base(self, index: int) -> int | None:
        """Return the bus address of BAR `index`, or None while it is not decoded."""
        return next((start for start, _, bar in self.ranges if bar == index), None)
