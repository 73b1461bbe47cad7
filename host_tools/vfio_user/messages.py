"""Messages of the vfio-user protocol, version 0.1, as a client sees them."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum, IntFlag

HEADER = struct.Struct("<HHIII")
REPLY = 1
NO_REPLY = 0x10
ERROR = 0x20
TIMEOUT = 10.0


class VfioUserCommand(IntEnum):
    """Commands of the vfio-user protocol, version 0.1."""

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


class IrqFlag(IntFlag):
    """linux/vfio.h: VFIO_IRQ_SET_*."""

    DATA_NONE = 1
    DATA_BOOL = 2
    DATA_EVENTFD = 4
    MASK = 8
    UNMASK = 16
    TRIGGER = 32


CONFIG = 7
INTX, MSI, MSIX = 0, 1, 2
DMA_RW = 3


class ServerError(OSError):
    """The server answered a request with an error."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message as received; `flags` and `error` as in the header."""

    msg_id: int
    command: int
    flags: int
    error: int
    body: bytes


@dataclass(frozen=True, slots=True)
class RegionInfo:
    """Answer to DEVICE_GET_REGION_INFO; flags: 1 readable, 2 writable, 4 mappable."""

    index: int
    flags: int
    size: int
    offset: int
