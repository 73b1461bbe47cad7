"""Configuration space of an endpoint: identity, BARs and their addresses, capabilities.

vfio-user has no message with the address of a BAR: QEMU only forwards the writes to the base
address registers (hw/vfio-user in QEMU 11.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from bluebridge.device.layout import pci as layout
from bluebridge.device.pyvfio_user import ConfigSpace

LANES: Final = 8

_FIRST: Final = layout.HEADER.field("bar0").offset
_END: Final = layout.HEADER.field("bar5").offset + 4


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


class Capability(NamedTuple):
    """One capability: its offset, identifier, a byte for the link, and registers at reset."""

    offset: int
    body: bytes
    writable: bytes
    """A mask of the bits of `body` that software may change."""


@dataclass(frozen=True, slots=True)
class Product:
    """The identity of a board: a serial number of 64 bits, and its vital product data."""

    serial: int
    data: bytes


class LiveWord(Protocol):
    """A 32-bit register of configuration space that does something when it is used."""

    def refresh(self, data: bytearray) -> None:
        """Update configuration space `data` before the register is read."""

    def stored(self, data: bytearray) -> None:
        """Do what the register does after it was written to configuration space `data`."""


class _ProductWord:
    """The address of the vital product data: writing it fetches four bytes, or gives some up."""

    def __init__(self, product: bytes) -> None:
        self._product = product

    def refresh(self, data: bytearray) -> None:
        """The register shows what it holds."""

    def stored(self, data: bytearray) -> None:
        """Fetch the word at the address; a request to write, `done` set, ends without effect."""
        vpd, base = layout.VPD_CAPABILITY, layout.VPD_OFFSET
        if vpd.get(data, "done", base):
            vpd.set(data, "done", 0, base)
            return
        at = vpd.get(data, "address", base)
        word = self._product[at : at + 4].ljust(4, b"\0")
        vpd.set(data, "word", int.from_bytes(word, "little"), base)
        vpd.set(data, "done", 1, base)


def capabilities(vectors: int, table: int, pending: int, speed: int = 3) -> tuple[Capability, ...]:
    """Return what every function here has: power management, PCI Express, MSI-X.

    Power management 1.2 has the states D0 and D3hot, without PME and without a loss of state. MSI-X
    has `vectors` entries; table and pending bits are at those offsets of BAR0, where QEMU keeps
    them itself. The link is up at its full `speed` (3 = 8 GT/s) and 8 lanes.
    """
    power, msix, express = layout.PM_CAPABILITY, layout.MSIX_CAPABILITY, layout.EXPRESS_CAPABILITY
    first, second, third = layout.CAPABILITIES
    return (
        Capability(
            first,
            bytes(power.pack(id=layout.CAP_ID_PM, version=3, no_soft_reset=1)),
            bytes(power.pack(power_state=3)),
        ),
        Capability(
            second,
            bytes(
                express.pack(
                    id=layout.CAP_ID_EXPRESS,
                    version=2,
                    max_payload_supported=1,
                    extended_tag_supported=1,
                    role_based_errors=1,
                    function_reset=1,
                    relaxed_ordering=1,
                    no_snoop=1,
                    max_read_request=2,
                    link_speed_max=speed,
                    link_width_max=LANES,
                    link_speed=speed,
                    link_width=LANES,
                    completion_timeout_disable_supported=1,
                    link_speeds=(1 << speed) - 1,
                    target_link_speed=speed,
                )
            ),
            bytes(
                express.pack(
                    device_control=0x7FFF,
                    link_control=0x0FFB,
                    device_control2=0x641F,
                    link_control2=0xFFFF,
                )
            ),
        ),
        Capability(
            third,
            bytes(
                msix.pack(
                    id=layout.CAP_ID_MSIX, table_size=vectors - 1, table=table, pending=pending
                )
            ),
            bytes(msix.pack(enable=1, function_mask=1)),
        ),
    )


def inert_vendor_capability() -> Capability:
    """Return the vendor-specific capability of a ConnectX-5, which takes and tells nothing.

    Without one Linux warns (core/lib/pci_vsc.c: mlx5_pci_vsc_init); with this one it finds no space
    behind it, and so makes no dumps.
    """
    vendor = layout.VENDOR_CAPABILITY
    body = vendor.pack(id=layout.CAP_ID_VENDOR, length=layout.VENDOR_BYTES)
    return Capability(layout.VENDOR_OFFSET, bytes(body), bytes(layout.VENDOR_BYTES))


class EndpointConfig(ConfigSpace):
    """Config space that can be reset to its power-on state."""

    def __init__(self) -> None:
        super().__init__(layout.CONFIG_SIZE)
        self._power_on = b""
        self.reset_at = -1
        """Offset of the byte whose highest bit initiates a function-level reset."""
        self.msix_at = -1
        """Offset of the capability of MSI-X; -1 without one."""
        self.live: dict[int, LiveWord] = {}
        """Registers that do something, by offset."""

    def read(self, offset: int, length: int) -> bytes:
        for live in self._touched(offset, length):
            live.refresh(self.data)
        return super().read(offset, length)

    def write(self, offset: int, data: bytes) -> None:
        super().write(offset, data)
        for live in self._touched(offset, len(data)):
            live.stored(self.data)

    def _touched(self, offset: int, length: int) -> list[LiveWord]:
        return [word for at, word in self.live.items() if at < offset + length and offset < at + 4]

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

    @property
    def msix_enabled(self) -> bool:
        """Whether MSI-X Enable is set (PCI 3.0, 6.8.2.3)."""
        return self.msix_at >= 0 and bool(
            layout.MSIX_CAPABILITY.get(self.data, "enable", self.msix_at)
        )

    def initiates_reset(self, offset: int, data: bytes) -> bool:
        """Whether writing `data` at `offset` initiates a function-level reset."""
        position = self.reset_at - offset
        return 0 <= position < len(data) and bool(data[position] & 0x80)


def compose(
    identity: Identity,
    bars: Sequence[Bar],
    chain: Sequence[Capability],
    product: Product | None = None,
) -> EndpointConfig:
    """Make the configuration space of a function from its identity, BARs and capabilities.

    The capabilities are in the order given, that of a `product` comes last. Raises `ValueError`
    when they do not fit into the first 256 bytes.
    """
    config = EndpointConfig()
    config.set_identity(identity.vendor, identity.device, identity.class_code, identity.revision, 1)
    config.set(0x2C, "<H", identity.subsystem_vendor)
    config.set(0x2E, "<H", identity.subsystem)
    for bar in bars:
        _add_bar(config, bar)
    for capability in chain:
        offset, body, writable = capability
        config.add_capability(body, writable, offset)
        if body[0] == layout.CAP_ID_EXPRESS:
            # Bit 15 of device control initiates a function-level reset.
            config.reset_at = offset + layout.EXPRESS_CAPABILITY.field("device_control").offset + 1
        elif body[0] == layout.CAP_ID_MSIX:
            config.msix_at = offset
    if product is not None:
        _add_product(config, product)
    config.freeze()
    return config


def _add_product(config: EndpointConfig, product: Product) -> None:
    vpd = layout.VPD_CAPABILITY
    config.add_capability(
        bytes(vpd.pack(id=layout.CAP_ID_VPD)),
        bytes(vpd.pack(address=0x7FFF, done=1, word=0xFFFFFFFF)),
        layout.VPD_OFFSET,
    )
    config.live[layout.VPD_OFFSET] = _ProductWord(product.data)
    for register in (layout.GATEWAY_ADDRESS, layout.GATEWAY_DATA):
        config.set(register, "<I", 0, writable=0xFFFFFFFF)
    serial, start = layout.SERIAL_NUMBER, layout.EXTENDED_CAPABILITIES
    config.data[start : start + serial.size] = serial.pack(
        extended_id=layout.EXTENDED_ID_SERIAL_NUMBER, extended_version=1,
        low=product.serial & 0xFFFFFFFF, high=product.serial >> 32,
    )  # fmt: skip


def _add_bar(config: EndpointConfig, bar: Bar) -> None:
    low = layout.BAR_64BIT if bar.wide else 0
    low |= layout.BAR_PREFETCHABLE if bar.prefetchable else 0
    config.set_bar(bar.index, bar.size, low)
    if bar.wide:
        config.set(0x10 + 4 * (bar.index + 1), "<I", 0, writable=(-bar.size >> 32) & 0xFFFFFFFF)


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
