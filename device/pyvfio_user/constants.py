"""Numbers of libvfio-user and of the vfio-user protocol (libvfio-user.h, linux/vfio.h)."""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Final


class Region(IntEnum):
    """Region indices of a PCI device; libvfio-user.h: VFU_PCI_DEV_*_REGION_IDX."""

    BAR0 = 0
    BAR1 = 1
    BAR2 = 2
    BAR3 = 3
    BAR4 = 4
    BAR5 = 5
    ROM = 6
    CONFIG = 7
    VGA = 8
    MIGRATION = 9


class RegionFlag(IntFlag):
    """Flags of a region; libvfio-user.h: VFU_REGION_FLAG_*.

    A region without MEM is an I/O port region.
    """

    READ = 1
    WRITE = 2
    RW = 3
    MEM = 4
    ALWAYS_CALLBACK = 8


class Irq(IntEnum):
    """Interrupt kinds; libvfio-user.h: enum vfu_dev_irq_type."""

    INTX = 0
    MSI = 1
    MSIX = 2
    ERROR = 3
    REQUEST = 4


class Reset(IntEnum):
    """Reasons for a reset of the device; libvfio-user.h: enum vfu_reset_type."""

    DEVICE = 0
    LOST_CONNECTION = 1
    FUNCTION_LEVEL = 2


class PciKind(IntEnum):
    """Size of config space: 256 bytes, or 4096 for EXPRESS; libvfio-user.h: vfu_pci_type_t."""

    CONVENTIONAL = 0
    EXPRESS = 3


class Protection(IntFlag):
    """Access rights of the device to a DMA region; sys/mman.h: PROT_*."""

    NONE = 0
    READ = 1
    WRITE = 2


FLAG_ATTACH_NON_BLOCKING: Final = 1  # LIBVFIO_USER_FLAG_ATTACH_NB
TRANSPORT_SOCKET: Final = 0  # VFU_TRANS_SOCK
DEVICE_TYPE_PCI: Final = 0  # VFU_DEV_TYPE_PCI
HEADER_TYPE_NORMAL: Final = 0  # PCI_HEADER_TYPE_NORMAL
LOG_EMERGENCY: Final = 0  # syslog.h: LOG_EMERG
LOG_DEBUG: Final = 7  # syslog.h: LOG_DEBUG

HEADER_NAMES: dict[str, int] = {
    **{f"VFU_PCI_DEV_BAR{index}_REGION_IDX": Region(index) for index in range(6)},
    "VFU_PCI_DEV_ROM_REGION_IDX": Region.ROM,
    "VFU_PCI_DEV_CFG_REGION_IDX": Region.CONFIG,
    "VFU_PCI_DEV_MIGR_REGION_IDX": Region.MIGRATION,
    "VFU_REGION_FLAG_READ": RegionFlag.READ,
    "VFU_REGION_FLAG_WRITE": RegionFlag.WRITE,
    "VFU_REGION_FLAG_MEM": RegionFlag.MEM,
    "VFU_REGION_FLAG_ALWAYS_CB": RegionFlag.ALWAYS_CALLBACK,
    "VFU_DEV_INTX_IRQ": Irq.INTX,
    "VFU_DEV_MSI_IRQ": Irq.MSI,
    "VFU_DEV_MSIX_IRQ": Irq.MSIX,
    "VFU_DEV_ERR_IRQ": Irq.ERROR,
    "VFU_DEV_REQ_IRQ": Irq.REQUEST,
    "VFU_RESET_DEVICE": Reset.DEVICE,
    "VFU_RESET_LOST_CONN": Reset.LOST_CONNECTION,
    "VFU_RESET_PCI_FLR": Reset.FUNCTION_LEVEL,
    "VFU_PCI_TYPE_CONVENTIONAL": PciKind.CONVENTIONAL,
    "VFU_PCI_TYPE_EXPRESS": PciKind.EXPRESS,
    "LIBVFIO_USER_FLAG_ATTACH_NB": FLAG_ATTACH_NON_BLOCKING,
    "VFU_TRANS_SOCK": TRANSPORT_SOCKET,
    "VFU_DEV_TYPE_PCI": DEVICE_TYPE_PCI,
}
"""The numbers above by their names in the C header.

They are compared with it when the library is loaded.
"""
