"""The HCA over VFIO without an IOMMU: registers, interrupts, DMA memory.

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
from dataclasses import dataclass
from pathlib import Path

from guest.bus import DmaMemory
from guest.dma import Arena
from guest.hca.errors import DeviceLost, HcaError
from guest.hugepages import HUGE, HugepageFile, free_hugepages, sorted_hugepages

VENDOR, DEVICE = 0x15B3, 0x1003
NOIOMMU_IOMMU = 8
API_VERSION = 0
GROUP_VIABLE = 1
CONFIG_REGION = 7
REGION_MMAP = 4
MSIX_INDEX = 2
SET_IRQS_NONE, SET_IRQS_EVENTFD, SET_IRQS_TRIGGER = 1 << 0, 1 << 2, 1 << 5
COMMAND_REGISTER = 4
COMMAND_MEMORY_AND_MASTER = 6
GROW_PAGES = 8  # hugepages taken at a time


def _request(number: int) -> int:
    return ord(";") << 8 | 100 + number


GET_API_VERSION = _request(0)
CHECK_EXTENSION = _request(1)
SET_IOMMU = _request(2)
GROUP_GET_STATUS = _request(3)
GROUP_SET_CONTAINER = _request(4)
GROUP_GET_DEVICE_FD = _request(6)
DEVICE_GET_REGION_INFO = _request(8)
DEVICE_GET_IRQ_INFO = _request(9)
DEVICE_SET_IRQS = _request(10)
DEVICE_RESET = _request(11)

_REGION_INFO = struct.Struct("=IIIIQQ")
_IRQ_INFO = struct.Struct("=IIII")
_SET_IRQS = struct.Struct("=IIIII")


def find_device(vendor: int = VENDOR, device: int = DEVICE, root: str = "/sys") -> str:
    """PCI address of the device bound to vfio-pci; `HcaError` says what is missing."""
    wanted = (f"{vendor:#06x}", f"{device:#06x}")
    unbound = ""
    for path in sorted(Path(root, "bus/pci/devices").glob("*")):
        found = tuple((path / name).read_text().strip() for name in ("vendor", "device"))
        if found != wanted:
            continue
        driver = path / "driver"
        if driver.exists() and driver.resolve().name == "vfio-pci":
            return path.name
        unbound = path.name
    if unbound:
        raise HcaError(f"PCI device {unbound} is not bound to vfio-pci")
    raise HcaError(f"there is no PCI device {vendor:04x}:{device:04x} in this machine")


@dataclass(slots=True)
class _Region:
    """A BAR: mapped as words of both widths, or reached through the device's descriptor."""

    size: int
    offset: int
    words: memoryview | None
    quads: memoryview | None


class VfioBus:
    """The PCI function at `address` (default: the first ConnectX-3 on vfio-pci).

    Implements `guest.bus.Bus`. Register accesses are single stores and loads: `memoryview` items
    of four or eight bytes, the value swapped beforehand, where `struct` would store bytewise.
    """

    def __init__(self, address: str | None = None) -> None:
        self.address = find_device() if address is None else address
        self._functions = Path("/sys/bus/pci/devices", self.address)
        self._fds: list[int] = []
        self._eventfds: list[int] = []
        self._maps: list[mmap.mmap] = []
        self._hugepages: list[HugepageFile] = []
        self._arena = Arena()
        self._lock = threading.Lock()
        try:
            self._device = self._open()
            self._regions = {bar: self._map(bar) for bar in (0, 2)}
            self._enable_master()
        except BaseException:
            self.close()
            raise

    def read32(self, bar: int, offset: int) -> int:
        """One 32-bit load."""
        region = self._regions[bar]
        if region.words is not None:
            return int.from_bytes(region.words[offset >> 2].to_bytes(4, "little"), "big")
        return int.from_bytes(os.pread(self._device, 4, region.offset + offset), "big")

    def write32(self, bar: int, offset: int, value: int) -> None:
        """One 32-bit store."""
        region = self._regions[bar]
        data = value.to_bytes(4, "big")
        if region.words is not None:
            region.words[offset >> 2] = int.from_bytes(data, "little")
        else:
            os.pwrite(self._device, data, region.offset + offset)

    def write64(self, bar: int, offset: int, value: int) -> None:
        """One 64-bit store."""
        region = self._regions[bar]
        data = value.to_bytes(8, "big")
        if region.quads is not None:
            region.quads[offset >> 3] = int.from_bytes(data, "little")
        else:
            os.pwrite(self._device, data, region.offset + offset)

    def allocate(self, length: int, align: int = 4096) -> DmaMemory:
        """Zeroed memory out of hugepages; more of them are taken when it does not fit."""
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
        """MSI-X vectors 0 … vectors-1 as eventfds."""
        available = self._vectors()
        if not 1 <= vectors <= available:
            raise HcaError(f"{vectors} interrupt vectors wanted, the device has {available}")
        self._eventfds = [os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) for _ in range(vectors)]
        fds = array.array("i", self._eventfds).tobytes()
        self._set_irqs(SET_IRQS_EVENTFD | SET_IRQS_TRIGGER, vectors, fds)
        return list(self._eventfds)

    def reset(self) -> None:
        """Function-level reset through VFIO; `OSError` when the device has none."""
        fcntl.ioctl(self._device, DEVICE_RESET)

    def abandon(self) -> None:
        """Closing VFIO's device resets it, and Linux waits a minute for one that does not answer.

        drivers/pci/pci.c: pci_dev_wait, by way of vfio_pci_core_disable. Without a reset method
        (sysfs: reset_method_store) there is no such wait.
        """
        with contextlib.suppress(OSError):
            (self._functions / "reset_method").write_text("\n")

    def close(self) -> None:
        """Interrupts off, descriptors closed; a second call does nothing.

        Memory that is still viewed somewhere stays mapped until the process ends.
        """
        if self._eventfds:
            self._set_irqs(SET_IRQS_NONE | SET_IRQS_TRIGGER, 0, b"")
        for fd in (*self._eventfds, *reversed(self._fds)):
            os.close(fd)
        self._eventfds, self._fds = [], []

    def _open(self) -> int:
        with open(self._functions / "config", "rb", buffering=0) as config:
            identity = config.read(4)
        if identity == b"\xff" * 4:
            # Opening would reset it, and wait as `abandon` says.
            raise DeviceLost(f"{self.address}: the device is gone (reads return all ones)")
        group_path = self._group()
        container = self._keep(os.open("/dev/vfio/vfio", os.O_RDWR | os.O_CLOEXEC))
        if fcntl.ioctl(container, GET_API_VERSION) != API_VERSION:
            raise HcaError("this kernel's VFIO speaks another version")
        if not fcntl.ioctl(container, CHECK_EXTENSION, NOIOMMU_IOMMU):
            raise HcaError(
                "VFIO has no no-IOMMU mode here: load vfio with enable_unsafe_noiommu_mode=1"
            )
        try:
            group = self._keep(os.open(group_path, os.O_RDWR | os.O_CLOEXEC))
        except OSError as error:
            raise HcaError(
                f"{group_path}: {error.strerror} (is another driver using the HCA?)"
            ) from error
        status = bytearray(struct.pack("=II", 8, 0))
        fcntl.ioctl(group, GROUP_GET_STATUS, status)
        if not struct.unpack("=II", status)[1] & GROUP_VIABLE:
            raise HcaError(f"VFIO group {group_path} is not viable")
        fcntl.ioctl(group, GROUP_SET_CONTAINER, struct.pack("=i", container))
        fcntl.ioctl(container, SET_IOMMU, NOIOMMU_IOMMU)
        name = bytearray(self.address.encode() + b"\0")
        return self._keep(fcntl.ioctl(group, GROUP_GET_DEVICE_FD, name))

    def _group(self) -> str:
        link = self._functions / "iommu_group"
        try:
            return f"/dev/vfio/noiommu-{link.resolve(strict=True).name}"
        except OSError as error:
            raise HcaError(f"PCI device {self.address} has no VFIO group") from error

    def _keep(self, fd: int) -> int:
        self._fds.append(fd)
        return fd

    def _map(self, bar: int) -> _Region:
        flags, size, offset = self._region_info(bar)
        if not size:
            raise HcaError(f"the device has no BAR{bar}")
        if not flags & REGION_MMAP:
            return _Region(size, offset, None, None)
        mapped = mmap.mmap(self._device, size, mmap.MAP_SHARED, offset=offset)
        self._maps.append(mapped)
        view = memoryview(mapped)
        return _Region(size, offset, view.cast("I"), view.cast("Q"))

    def _region_info(self, index: int) -> tuple[int, int, int]:
        data = bytearray(_REGION_INFO.pack(_REGION_INFO.size, 0, index, 0, 0, 0))
        fcntl.ioctl(self._device, DEVICE_GET_REGION_INFO, data)
        _, flags, _, _, size, offset = _REGION_INFO.unpack(data)
        return flags, size, offset

    def _enable_master(self) -> None:
        _, _, offset = self._region_info(CONFIG_REGION)
        where = offset + COMMAND_REGISTER
        (command,) = struct.unpack("<H", os.pread(self._device, 2, where))
        os.pwrite(self._device, struct.pack("<H", command | COMMAND_MEMORY_AND_MASTER), where)

    def _vectors(self) -> int:
        data = bytearray(_IRQ_INFO.pack(_IRQ_INFO.size, 0, MSIX_INDEX, 0))
        fcntl.ioctl(self._device, DEVICE_GET_IRQ_INFO, data)
        return int(_IRQ_INFO.unpack(data)[3])

    def _set_irqs(self, flags: int, count: int, data: bytes) -> None:
        size = _SET_IRQS.size + len(data)
        request = _SET_IRQS.pack(size, flags, MSIX_INDEX, 0, count) + data
        fcntl.ioctl(self._device, DEVICE_SET_IRQS, request)

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
