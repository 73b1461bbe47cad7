"""Headers of PCI Express transaction layer packets, big-endian as on the link."""

from __future__ import annotations

from enum import IntEnum

from bluebridge.device.layout.fields import Field, Struct, bits, u8, u16, u32, u64

MAX_DWORDS = 1024
"""Dwords of data of one packet at most; the length field of the header then holds 0."""
MAX_BYTES = 4 * MAX_DWORDS
LIMIT_32 = 1 << 32
"""End of the memory for which 32-bit addresses are used, as the standard requires."""


class TlpType(IntEnum):
    """Fmt and Type: the first byte of a header (PCI Express base 3.0, table 2-3)."""

    MEMORY_READ_32 = 0x00
    MEMORY_READ_64 = 0x20
    MEMORY_WRITE_32 = 0x40
    MEMORY_WRITE_64 = 0x60
    CONFIG_READ_0 = 0x04
    CONFIG_WRITE_0 = 0x44
    COMPLETION = 0x0A
    COMPLETION_DATA = 0x4A


def _first_dword() -> list[Field]:
    return [
        bits("fmt", 0, 4, 31, 29, "bit 0: 4 dwords of header, bit 1: data follows"),
        bits("type", 0, 4, 28, 24),
        bits("tc", 0, 4, 22, 20, "traffic class"),
        bits("id_ordering", 0, 4, 18),
        bits("hints", 0, 4, 16, doc="TH"),
        bits("digest", 0, 4, 15, doc="TD"),
        bits("poisoned", 0, 4, 14, doc="EP"),
        bits("relaxed_ordering", 0, 4, 13),
        bits("no_snoop", 0, 4, 12),
        bits("address_type", 0, 4, 11, 10),
        bits("length", 0, 4, 9, 0, "dwords of data, sent or asked for; 0 = 1024"),
    ]


def _request() -> list[Field]:
    return [
        *_first_dword(),
        u16("requester", 4, "bus, device, function"),
        u8("tag", 6),
        bits("last_enables", 7, 1, 7, 4, "valid bytes of the last of several dwords"),
        bits("first_enables", 7, 1, 3, 0, "valid bytes of the first dword"),
    ]


MEMORY_32 = Struct(
    "MemoryRequest32",
    12,
    [*_request(), u32("address", 8, "of a dword")],
    source="PCI Express base 3.0, figure 2-16",
)
MEMORY_64 = Struct(
    "MemoryRequest64",
    16,
    [*_request(), u64("address", 8, "of a dword")],
    source="PCI Express base 3.0, figure 2-15",
)
CONFIG = Struct(
    "ConfigRequest",
    12,
    [
        *_request(),
        u16("target", 8, "bus, device, function"),
        bits("register", 8, 4, 11, 0, "offset of a dword in config space"),
    ],
    source="PCI Express base 3.0, figure 2-18",
)
COMPLETION = Struct(
    "Completion",
    12,
    [
        *_first_dword(),
        u16("completer", 4, "bus, device, function"),
        bits("status", 6, 2, 15, 13, "0 = successful"),
        bits("byte_count", 6, 2, 11, 0, "bytes still to come, these included; 0 = 4096"),
        u16("requester", 8, "of the request"),
        u8("tag", 10, "of the request"),
        bits("lower_address", 11, 1, 6, 0, "of the first valid byte"),
    ],
    source="PCI Express base 3.0, figure 2-30",
)

BY_TYPE: dict[TlpType, Struct] = {
    TlpType.MEMORY_READ_32: MEMORY_32,
    TlpType.MEMORY_READ_64: MEMORY_64,
    TlpType.MEMORY_WRITE_32: MEMORY_32,
    TlpType.MEMORY_WRITE_64: MEMORY_64,
    TlpType.CONFIG_READ_0: CONFIG,
    TlpType.CONFIG_WRITE_0: CONFIG,
    TlpType.COMPLETION: COMPLETION,
    TlpType.COMPLETION_DATA: COMPLETION,
}
