"""A PCI function over VFIO without an IOMMU: registers, interrupts, DMA memory.

linux/vfio.h: a container with VFIO_NOIOMMU_IOMMU, the group /dev/vfio/noiommu-N, the device. The
module parameter vfio.enable_unsafe_noiommu_mode must be set and the device bound to vfio-pci.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import mmap
import os
import struct
import threading
from collections.abc import Collection, Sequence
from pathlib import Path

from bluebridge.device.layout.pci import ADAPTER_IDS
from bluebridge.guest.bus import vfio_abi as abi
from bluebridge.guest.bus.byte_order import swap32
from bluebridge.guest.bus.dma_memory import (
    HUGE,
    Arena,
    HugepageFile,
    free_hugepages,
    sorted_hugepages,
)
from bluebridge.guest.bus.interface import DmaMemory, load_bytes, store_bytes
from bluebridge.guest.errors import DeviceError

_BARS = 6
GROW_PAGES = 8  # hugepages taken at a time


def find_device(root: str = "/sys") -> str:
    """Return the PCI address of the HCA bound to vfio-pci; `DeviceError` says what is missing."""
    return find_any(ADAPTER_IDS, root)


def find_any(identities: Collection[tuple[int, int]], root: str = "/sys") -> str:
    """Return the PCI address of a function on vfio-pci with one of `identities` (vendor, device).

    The first identity that is present counts, and of several such functions the first.
    `DeviceError` says what is missing.
    """
    bound: dict[tuple[int, int], str] = {}
    unbound = ""
    for path in sorted(Path(root, "bus/pci/devices").glob("*")):
        vendor, device = (int((path / name).read_text(), 16) for name in ("vendor", "device"))
        if (vendor, device) not in identities:
            continue
        driver = path / "driver"
        if driver.exists() and driver.resolve().name == "vfio-pci":
            bound.setdefault((vendor, device), path.name)
        else:
            unbound = unbound or path.name
    for identity in identities:
        if identity in bound:
            return bound[identity]
    if unbound:
        raise DeviceError(f"PCI device {unbound} is not bound to vfio-pci")
    names = " or ".join(f"{vendor:04x}:{device:04x}" for vendor, device in identities)
    raise DeviceError(f"there is no PCI device {names} in this machine")


class _Region:
    """A BAR that is mapped, or reached through the device's descriptor."""

    def __init__(self, device: int, size: int, offset: int, mapped: mmap.mmap | None) -> None:
        self.size = size
        self.offset = offset
        self.views: dict[int, memoryview] | None = None
        """The views of the mapping by the width of an access in bytes."""
        if mapped is not None:
            view = memoryview(mapped).cast("B")
            self.views = {1: view, 2: view.cast("H"), 4: view.cast("I"), 8: view.cast("Q")}
        views = self.views or {}
        self.octets, self.words, self.quads = views.get(1), views.get(4), views.get(8)
        self._mapped = mapped
        self._device = device

    def load(self, offset: int, width: int) -> int:
        """Load `width` bytes, little-endian, in a single access."""
        if self.views is not None:
            return int(self.views[width][offset // width])
        return int.from_bytes(os.pread(self._device, width, self.offset + offset), "little")

    def close(self) -> None:
        """Unmap the BAR, since the mapping would keep the device open."""
        if self._mapped is not None and self.views is not None:
            for view in self.views.values():
                view.release()  # every later access raises `ValueError`
            self._mapped.close()

    def store(self, offset: int, width: int, value: int) -> None:
        """Store `width` bytes, little-endian, in a single access."""
        if self.views is not None:
            self.views[width][offset // width] = value
        else:
            os.pwrite(self._device, value.to_bytes(width, "little"), self.offset + offset)


class VfioBus:
    """The PCI function at `address` (default: the first adapter on vfio-pci) with its `bars`.

    Implements `Bus` and `Function` of `guest.bus.interface`. Register accesses are single
    stores and loads; for big-endian ones the value is swapped beforehand.
    """

    def __init__(self, address: str | None = None, bars: Sequence[int] = ()) -> None:
        self.address = find_device() if address is None else address
        self._functions = Path("/sys/bus/pci/devices", self.address)
        self._fds: list[int] = []
        self._eventfds: list[int] = []
        self._regions: dict[int, _Region] = {}
        self._hugepages: list[HugepageFile] = []
        self._arena = Arena()
        self._lock = threading.Lock()
        try:
            self._device = self._open()
            for bar in bars or self._bars():
                self._regions[bar] = self._map(bar)
            self.enable_master()
        except BaseException:
            self.close()
            raise

    def read32(self, bar: int, offset: int) -> int:
        region = self._regions[bar]
        if region.words is not None:
            return swap32(region.words[offset >> 2])
        return int.from_bytes(os.pread(self._device, 4, region.offset + offset), "big")

    def write32(self, bar: int, offset: int, value: int) -> None:
        region = self._regions[bar]
        words = region.words
        if words is not None:
            words[offset >> 2] = swap32(value)
        else:
            os.pwrite(self._device, value.to_bytes(4, "big"), region.offset + offset)

    def write64(self, bar: int, offset: int, value: int) -> None:
        region = self._regions[bar]
        data = value.to_bytes(8, "big")
        if region.quads is not None:
            region.quads[offset >> 3] = int.from_bytes(data, "little")
        else:
            os.pwrite(self._device, data, region.offset + offset)

    def load(self, bar: int, offset: int, width: int) -> int:
        return self._regions[bar].load(offset, width)

    def store(self, bar: int, offset: int, width: int, value: int) -> None:
        views = self._regions[bar].views
        if views is not None:  # not through the region: this is the way of a doorbell
            views[width][offset // width] = value
        else:
            self._regions[bar].store(offset, width, value)

    def load_bytes(self, bar: int, offset: int, length: int) -> bytes:
        return load_bytes(self._regions[bar], offset, length)

    def store_bytes(self, bar: int, offset: int, data: bytes | bytearray | memoryview) -> None:
        store_bytes(self._regions[bar], offset, data)

    def mapping(self, bar: int) -> memoryview | None:
        """Return a BAR as bytes; the C library chooses the access widths of slice copies."""
        return self._regions[bar].octets

    def load_config(self, offset: int, width: int) -> int:
        where = self._region_info(abi.CONFIG_REGION)[2] + offset
        return int.from_bytes(os.pread(self._device, width, where), "little")

    def bar(self, index: int) -> tuple[int, int]:
        """Return bus address and size of a BAR, from sysfs: resource (a line `start end flags`)."""
        line = (self._functions / "resource").read_text().splitlines()[index]
        start, end, _ = (int(word, 16) for word in line.split())
        return start, end + 1 - start

    def allocate(self, length: int, align: int = 4096) -> DmaMemory:
        """Allocate zeroed memory out of hugepages, of which more are taken when it does not fit."""
        memory = self._arena.allocate(length, align)
        if memory is not None:
            return memory
        with self._lock:
            self._grow(-(-length // HUGE))
        memory = self._arena.allocate(length, align)
        if memory is None:
            raise MemoryError(
                f"no {length} contiguous bytes of DMA memory: reserve more hugepages "
                "(kernel command line: hugepages=N)"
            )
        return memory

    def enable_interrupts(self, vectors: int) -> list[int]:
        """Set up MSI-X vectors 0 … vectors-1; returns one readable eventfd for each."""
        available = self._vectors()
        if not 1 <= vectors <= available:
            raise DeviceError(f"{vectors} interrupt vectors wanted, the device has {available}")
        self._eventfds = [os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) for _ in range(vectors)]
        fds = array.array("i", self._eventfds).tobytes()
        self._set_irqs(abi.SET_IRQS_EVENTFD | abi.SET_IRQS_TRIGGER, vectors, fds)
        return list(self._eventfds)

    def reset(self) -> None:
        """Reset the function by FLR through VFIO; `OSError` when the device has no reset."""
        fcntl.ioctl(self._device, abi.DEVICE_RESET)

    def enable_master(self) -> None:
        """Set both bits of the command register; Linux restores the rest after a reset."""
        _, _, offset = self._region_info(abi.CONFIG_REGION)
        where = offset + abi.COMMAND_REGISTER
        (command,) = struct.unpack("<H", os.pread(self._device, 2, where))
        os.pwrite(self._device, struct.pack("<H", command | abi.COMMAND_MEMORY_AND_MASTER), where)

    def abandon(self) -> None:
        """Take note that the device is gone, so that `close` does not wait a minute for it.

        Linux resets the device when VFIO's descriptor is closed and waits for it to answer
        (drivers/pci/pci.c: pci_dev_wait, by way of vfio_pci_core_disable). Without a reset method
        (sysfs: reset_method_store) there is no such wait.
        """
        with contextlib.suppress(OSError):
            (self._functions / "reset_method").write_text("\n")

    def close(self) -> None:
        """Disable interrupts, unmap the BARs and close the descriptors; a second call does nothing.

        DMA memory stays mapped, and the hugepages stay with this process, until the process ends.
        """
        if self._eventfds:
            self._set_irqs(abi.SET_IRQS_NONE | abi.SET_IRQS_TRIGGER, 0, b"")
        for region in self._regions.values():
            region.close()
        self._regions = {}
        for fd in (*self._eventfds, *reversed(self._fds)):
            os.close(fd)
        self._eventfds, self._fds = [], []

    def _open(self) -> int:
        with open(self._functions / "config", "rb", buffering=0) as config:
            identity = config.read(4)
        if identity == b"\xff" * 4:
            # Opening would reset it, and wait as `abandon` says.
            raise DeviceError(f"{self.address}: the device is gone (reads return all ones)")
        group_path = self._group()
        container = self._keep(os.open("/dev/vfio/vfio", os.O_RDWR | os.O_CLOEXEC))
        if fcntl.ioctl(container, abi.GET_API_VERSION) != abi.API_VERSION:
            raise DeviceError("this kernel's VFIO speaks another version")
        if not fcntl.ioctl(container, abi.CHECK_EXTENSION, abi.NOIOMMU_IOMMU):
            raise DeviceError(
                "VFIO has no no-IOMMU mode here: load vfio with enable_unsafe_noiommu_mode=1"
            )
        try:
            group = self._keep(os.open(group_path, os.O_RDWR | os.O_CLOEXEC))
        except OSError as error:
            raise DeviceError(
                f"{group_path}: {error.strerror} (is another program using the device?)"
            ) from error
        status = bytearray(struct.pack("=II", 8, 0))
        fcntl.ioctl(group, abi.GROUP_GET_STATUS, status)
        if not struct.unpack("=II", status)[1] & abi.GROUP_VIABLE:
            raise DeviceError(f"VFIO group {group_path} is not viable")
        fcntl.ioctl(group, abi.GROUP_SET_CONTAINER, struct.pack("=i", container))
        fcntl.ioctl(container, abi.SET_IOMMU, abi.NOIOMMU_IOMMU)
        name = bytearray(self.address.encode() + b"\0")
        return self._keep(fcntl.ioctl(group, abi.GROUP_GET_DEVICE_FD, name))

    def _group(self) -> str:
        link = self._functions / "iommu_group"
        try:
            return f"/dev/vfio/noiommu-{link.resolve(strict=True).name}"
        except OSError as error:
            raise DeviceError(f"PCI device {self.address} has no VFIO group") from error

    def _keep(self, fd: int) -> int:
        self._fds.append(fd)
        return fd

    def _map(self, bar: int) -> _Region:
        flags, size, offset = self._region_info(bar)
        if not size:
            raise DeviceError(f"the device has no BAR{bar}")
        if not flags & abi.REGION_MMAP:
            return _Region(self._device, size, offset, None)
        mapped = mmap.mmap(self._device, size, mmap.MAP_SHARED, offset=offset)
        return _Region(self._device, size, offset, mapped)

    def _bars(self) -> list[int]:
        """Return the BARs that the function has; the upper half of one has no size."""
        return [bar for bar in range(_BARS) if self._region_info(bar)[1]]

    def _region_info(self, index: int) -> tuple[int, int, int]:
        data = bytearray(abi.REGION_INFO_FORM.pack(abi.REGION_INFO_FORM.size, 0, index, 0, 0, 0))
        fcntl.ioctl(self._device, abi.DEVICE_GET_REGION_INFO, data)
        _, flags, _, _, size, offset = abi.REGION_INFO_FORM.unpack(data)
        return flags, size, offset

    def _vectors(self) -> int:
        data = bytearray(abi.IRQ_INFO_FORM.pack(abi.IRQ_INFO_FORM.size, 0, abi.MSIX_INDEX, 0))
        fcntl.ioctl(self._device, abi.DEVICE_GET_IRQ_INFO, data)
        return int(abi.IRQ_INFO_FORM.unpack(data)[3])

    def _set_irqs(self, flags: int, count: int, data: bytes) -> None:
        size = abi.SET_IRQS_FORM.size + len(data)
        request = abi.SET_IRQS_FORM.pack(size, flags, abi.MSIX_INDEX, 0, count) + data
        fcntl.ioctl(self._device, abi.DEVICE_SET_IRQS, request)

    def _grow(self, pages: int) -> None:
        """Take more hugepages: a few, or all there are when only sorted ones can be neighbours."""
        free = free_hugepages()
        if free < pages:
            raise MemoryError(
                f"{pages} hugepages of 2 MiB wanted, {free} are free: reserve more "
                "(kernel command line: hugepages=N)"
            )
        file = sorted_hugepages(free) if pages > 1 else HugepageFile(min(GROW_PAGES, free))
        self._hugepages.append(file)
        for address, view in file.blocks():
            self._arena.add(address, view)
