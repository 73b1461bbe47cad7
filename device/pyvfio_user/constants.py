"""Numbers and messages of the vfio-user protocol (libvfio-user.h, vfio-user.h, linux/vfio.h)."""

from __future__ import annotations

from enum import IntEnum, IntFlag
from struct import Struct
from typing import Final, NamedTuple

FLAG_ATTACH_NON_BLOCKING: Final = 1  # LIBVFIO_USER_FLAG_ATTACH_NB
TRANSPORT_SOCKET: Final = 0  # VFU_TRANS_SOCK
DEVICE_TYPE_PCI: Final = 0  # VFU_DEV_TYPE_PCI
HEADER_TYPE_NORMAL: Final = 0  # PCI_HEADER_TYPE_NORMAL
LOG_EMERGENCY: Final = 0  # syslog.h: LOG_EMERG
LOG_DEBUG: Final = 7  # syslog.h: LOG_DEBUG

HEADER: Final = Struct("<HHIII")
ACCESS: Final = Struct("<HHIIIQII")
"""The header of a region access, then its offset, region and count; data follows."""
LONGEST_ACCESS: Final = 8192
"""Bytes of the longest region access; clients are told this limit, longer accesses fail."""
LIBRARY_ACCESS: Final = b'"max_data_xfer_size":1048576'
"""The longest access that libvfio-user announces to its clients, as JSON."""
TYPE_MASK: Final = 0xF
TYPE_COMMAND: Final = 0
TYPE_REPLY: Final = 1
FLAG_NO_REPLY: Final = 0x10
FLAG_ERROR: Final = 0x20

DMA_MAP: Final = Struct("<IIQQQ")  # argsz, flags, offset, address, size
DMA_UNMAP: Final = Struct("<IIQQ")  # argsz, flags, address, size
UNMAP_GET_DIRTY_BITMAP: Final = 1
# address, count; data follows (QEMU 10.2: hw/vfio-user, user_dma_rw)
MEMORY_WRITE: Final = Struct("<QQ")
LARGEST_MEMORY_WRITE: Final = 1024
IRQ_SET: Final = Struct("<IIIII")  # argsz, flags, index, start, count; data follows


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


class VfioUserCommand(IntEnum):
    """Numbers of vfio-user commands; vfio-user.h: enum vfio_user_command."""

    VERSION = 1
    DMA_MAP = 2
    DMA_UNMAP = 3
    GET_INFO = 4
    GET_REGION_INFO = 5
    GET_REGION_IO_FDS = 6
    GET_IRQ_INFO = 7
    SET_IRQS = 8
    REGION_READ = 9
    REGION_WRITE = 10
    DMA_READ = 11
    DMA_WRITE = 12
    RESET = 13
    DIRTY_PAGES = 14


WITH_FILES: Final = (VfioUserCommand.DMA_MAP, VfioUserCommand.SET_IRQS)
BODY_SIZES: dict[int, int] = {
    VfioUserCommand.DMA_MAP: DMA_MAP.size,
    VfioUserCommand.DMA_UNMAP: DMA_UNMAP.size,
    VfioUserCommand.GET_INFO: 16,
    VfioUserCommand.GET_REGION_INFO: 32,
    VfioUserCommand.GET_REGION_IO_FDS: 16,
    VfioUserCommand.GET_IRQ_INFO: 16,
    VfioUserCommand.SET_IRQS: IRQ_SET.size,
    VfioUserCommand.REGION_READ: 16,
    VfioUserCommand.REGION_WRITE: 16,
    VfioUserCommand.DIRTY_PAGES: 8,
}
"""Bytes that must follow the header of a message, by command."""

MESSAGE_SIZES: Final = {
    "vfio_user_header": HEADER.size,
    "vfio_user_dma_map": DMA_MAP.size,
    "vfio_user_dma_unmap": DMA_UNMAP.size,
    "vfio_user_region_access": BODY_SIZES[VfioUserCommand.REGION_READ],
    "vfio_irq_set": IRQ_SET.size,
}
"""Sizes of the structures above by their C names.

They are compared with the header when the library is loaded.
"""


def own_limit(reply: bytes) -> bytes:
    """Replace the library's limit in a reply to a VERSION message by this package's."""
    own = b'"max_data_xfer_size":%d' % LONGEST_ACCESS
    return reply.replace(LIBRARY_ACCESS, own.ljust(len(LIBRARY_ACCESS)))


class Header(NamedTuple):
    """The 16 bytes that start every message; `size` counts them too."""

    msg_id: int
    command: int
    size: int
    flags: int
    error: int

    @property
    def is_command(self) -> bool:
        """Whether the message is a request of the client."""
        return self.flags & TYPE_MASK == TYPE_COMMAND

    @property
    def is_reply(self) -> bool:
        """Whether the message is a reply of the client."""
        return self.flags & TYPE_MASK == TYPE_REPLY

    @property
    def brings_files(self) -> bool:
        """Whether the library takes descriptors that come with the message."""
        return self.is_command and self.command in WITH_FILES

    def refusal(self, error: int) -> bytes:
        """Return the reply that fails this request with errno `error`, empty if none is wanted."""
        if self.flags & FLAG_NO_REPLY:
            return b""
        return HEADER.pack(self.msg_id, self.command, HEADER.size, TYPE_REPLY | FLAG_ERROR, error)
