"""RNBD messages: the user messages of RTRS requests for block devices. All little-endian."""

from __future__ import annotations

from enum import IntEnum, IntFlag
from functools import partial
from typing import Final

from bluebridge.device.layout.fields import Struct, raw, u8, u16, u32, u64

VERSION_MAJOR: Final = 2
NAME_BYTES: Final = 255
SECTOR: Final = 512
_struct = partial(Struct, source="Linux 6.12 drivers/block/rnbd/rnbd-proto.h", order="little")


class MessageType(IntEnum):
    """First 16 bits of every message."""

    SESS_INFO = 0
    SESS_INFO_RSP = 1
    OPEN = 2
    OPEN_RSP = 3
    IO = 4
    CLOSE = 5


class AccessMode(IntEnum):
    """Modes in which a device is opened.

    A device is opened once for writing, once more for migration, and any number of times read-only.
    """

    RO = 0
    RW = 1
    MIGRATION = 2


class CachePolicy(IntFlag):
    """Flags in `cache_policy` of OPEN_RSP."""

    FUA = 1
    WRITEBACK = 2


class Operation(IntEnum):
    """Operations in bits 7..0 of `rw`."""

    READ = 0
    WRITE = 1
    FLUSH = 2
    DISCARD = 3
    SECURE_ERASE = 4
    WRITE_ZEROES = 5


class IoFlag(IntFlag):
    """Flags in bits 31..8 of `rw`."""

    SYNC = 1 << 8
    FUA = 1 << 9


OPERATION_MASK: Final = 0xFF

HEADER = _struct("RNBD_HDR", 4, u16("type", 0))
SESS_INFO = _struct(
    "RNBD_SESS_INFO",
    36,
    u16("type", 0),
    u8("ver", 4, "major version"),
    doc="First message of a session, and its answer SESS_INFO_RSP.",
)
OPEN = _struct(
    "RNBD_OPEN",
    264,
    u16("type", 0),
    u8("access_mode", 4),
    raw("dev_name", 6, NAME_BYTES, "zero-terminated"),
    doc="Map a device.",
)
OPEN_RSP = _struct(
    "RNBD_OPEN_RSP",
    56,
    u16("type", 0),
    u32("device_id", 4),
    u64("nsectors", 8, "of 512 bytes, as all sectors here"),
    u32("max_hw_sectors", 16),
    u32("max_write_zeroes_sectors", 20),
    u32("max_discard_sectors", 24),
    u32("discard_granularity", 28, "bytes"),
    u32("discard_alignment", 32, "bytes"),
    u16("physical_block_size", 36, "bytes"),
    u16("logical_block_size", 38, "bytes"),
    u16("max_segments", 40),
    u16("secure_discard", 42),
    u8("rotational", 44, "not in use"),
    u8("cache_policy", 45),
    doc="The mapped device.",
)
IO = _struct(
    "RNBD_IO",
    32,
    u16("type", 0),
    u32("device_id", 4),
    u64("sector", 8),
    u32("rw", 16, "operation in bits 7..0, flags above"),
    u32("bi_size", 20, "bytes"),
    u16("prio", 24),
    doc="One request of the block layer.",
)
CLOSE = _struct("RNBD_CLOSE", 8, u16("type", 0), u32("device_id", 4), doc="Unmap a device.")
