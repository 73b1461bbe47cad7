"""An open RoCE adapter without its card: memory, the port's state and addresses, regions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Self

from bluebridge.guest.bus.interface import Bus, DmaMemory
from bluebridge.guest.drivers.common.gid_table import GID_BYTES, MAC_BYTES, GidTable
from bluebridge.guest.drivers.common.health import HcaHealth
from bluebridge.guest.drivers.common.region_pages import pages_of
from bluebridge.guest.errors import VerbsError
from bluebridge.guest.verbs.enums import AccessFlags
from bluebridge.guest.verbs.values import MemoryRegion, PortAttr, RoceAddress


class Domain(ABC):
    """A protection domain, as `guest.verbs.interface.ProtectionDomain`."""

    def reg_mr(
        self,
        memory: int | Sequence[int],
        length: int,
        iova: int | None = None,
        access: AccessFlags | int = AccessFlags.LOCAL_WRITE,
        page_shift: int = 12,
    ) -> MemoryRegion:
        """Register `length` bytes; peers and work requests address them from `iova` on.

        `memory` is the DMA address of contiguous memory, or the addresses of all its pages of
        `1 << page_shift` bytes; the first page's offset is that of `iova`. `iova` defaults to the
        (first) address. Raises `VerbsError`.
        """
        if iova is None:
            iova = memory if isinstance(memory, int) else memory[0]
        pages, shift = pages_of(memory, length, iova, page_shift)
        return self._register(pages, shift, iova, length, access)

    @abstractmethod
    def _register(
        self, pages: Sequence[int], shift: int, iova: int, length: int, access: AccessFlags | int
    ) -> MemoryRegion:
        """Register pages of `1 << shift` bytes."""


class OpenPort(ABC):
    """An adapter bound to one of its ports, which implements `guest.verbs.interface.Device`.

    A completion channel is an event queue of the device with an MSI-X vector of its own, whose
    eventfd is `fileno()`.
    """

    ethernet_port: GidTable

    def __init__(self, bus: Bus, health: HcaHealth, name: str) -> None:
        self._bus = bus
        self.health = health
        self.name = name

    def allocate(self, length: int, align: int = 4096) -> DmaMemory:
        """Allocate contiguous zeroed DMA memory; raises `MemoryError`."""
        return self._bus.allocate(length, align)

    def query_port(self) -> PortAttr:
        """Return the present state of the port."""
        return self.ethernet_port.refresh()

    @property
    def address(self) -> bytes:
        """The port's link-local GID (16 bytes), then its MAC address (6 bytes)."""
        return self.ethernet_port.gids[0] + self.ethernet_port.mac

    def address_vector(self, address: bytes) -> RoceAddress:
        """Return the way to the device with that `address`, from the link-local GID."""
        if len(address) != GID_BYTES + MAC_BYTES:
            raise VerbsError(f"{address.hex()} is not the address of a RoCE device")
        return RoceAddress(address[:GID_BYTES], address[GID_BYTES:])

    @abstractmethod
    def close(self) -> None:
        """Close what is open of it; a second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()
