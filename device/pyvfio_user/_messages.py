"""The vfio-user messages that this package reads itself (vfio-user.h)."""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

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


class VfioUserCommand(IntEnum):
    """Numbers of vfio-user commands; vfio-user.h: enum vfio_user_command."""

    VERSION = 1
    DMA_MAP = 2
    DMA_UNMAP = 3
    DEVICE_GET_INFO = 4
    DEVICE_GET_REGION_INFO = 5
    DEVICE_GET_REGION_IO_FDS = 6
    DEVICE_GET_IRQ_INFO = 7
    DEVICE_SET_IRQS = 8
    REGION_READ = 9
    REGION_WRITE = 10
    DMA_READ = 11
    DMA_WRITE = 12
    DEVICE_RESET = 13
    DIRTY_PAGES = 14


DMA_MAP: Final = Struct("<IIQQQ")  # argsz, flags, offset, address, size
DMA_UNMAP: Final = Struct("<IIQQ")  # argsz, flags, address, size
UNMAP_GET_DIRTY_BITMAP: Final = 1
# address, count; data follows (QEMU 10.2: hw/vfio-user, user_dma_rw)
MEMORY_WRITE: Final = Struct("<QQ")
LARGEST_MEMORY_WRITE: Final = 1024
IRQ_SET: Final = Struct("<IIIII")  # argsz, flags, index, start, count; data follows

WITH_FILES: Final = (VfioUserCommand.DMA_MAP, VfioUserCommand.DEVICE_SET_IRQS)
BODY_SIZES: dict[int, int] = {
    VfioUserCommand.DMA_MAP: DMA_MAP.size,
    VfioUserCommand.DMA_UNMAP: DMA_UNMAP.size,
    VfioUserCommand.DEVICE_GET_INFO: 16,
    VfioUserCommand.DEVICE_GET_REGION_INFO: 32,
    VfioUserCommand.DEVICE_GET_REGION_IO_FDS: 16,
    VfioUserCommand.DEVICE_GET_IRQ_INFO: 16,
    VfioUserCommand.DEVICE_SET_IRQS: IRQ_SET.size,
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
