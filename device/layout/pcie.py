"""PCI Express packets in captures: TLP headers, big-endian as on the link, and a pseudo-header.

docs/tlp-capture.md specifies the pseudo-header and the exported PDU around it.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag

from bluebridge.device.layout.fields import Field, Struct, bits, u8, u16, u32, u64

LINKTYPE_EXPORTED_PDU = 252
"""Link type of exported PDUs, LINKTYPE_WIRESHARK_UPPER_PDU.

A packet has tags (2 bytes type, 2 bytes length, value), then the data.
"""
TAG_END = 0
TAG_DISSECTOR_NAME = 12
"""Tag type in Wireshark's wsutil/exported_pdu_tlvs.h: the name of the dissector."""
DISSECTOR = "bluebridge.tlp"

VERSION = 1
NO_BAR = 0xFF

PSEUDO_HEADER = Struct(
    "PseudoHeader",
    52,
    u8("version", 0, "1"),
    u8("header_length", 1, "bytes from the version to the content, the name included"),
    u8("content", 2, "Content"),
    u8("flags", 3, "Flags"),
    u8("purpose", 4, "Purpose"),
    u8("bar", 5, "BAR that the access goes to, 0xFF for none"),
    u8("name_length", 6, "bytes of the function's name"),
    u8("reserved", 7, "0"),
    u32("stores", 8, "events of the log in this access, 1 or more"),
    u32("object", 12, "number of the queue or other object, the vector of an interrupt"),
    u64("event", 16, "number of the access's first event in the log"),
    u64("last_event", 24, "number of its last event"),
    u64("base", 32, "address of the BAR, 0 if unknown or none; of a text: what it is about"),
    u32("length", 40, "bytes of the whole access"),
    u32("kept", 44, "bytes of it that the log has, from the first on"),
    u32("offset", 48, "of this packet's first byte in the access"),
    doc="Followed by the function's name in UTF-8, padded with zeros to a multiple of 4 bytes.",
    source="docs/tlp-capture.md",
)


class Content(IntEnum):
    """The kind of content after the pseudo-header."""

    TLP = 1
    TEXT = 2  # UTF-8: something that is no TLP, such as a reset


class Flags(IntFlag):
    """Properties of a packet."""

    UPSTREAM = 1  # the function sends the access; its completions go the other way
    ID_UNKNOWN = 2  # requester, completer and target are 0 because the capture does not know them
    ADDRESS_UNKNOWN = 4  # the address is 0 for the same reason
    ADDRESS_IS_OFFSET = 8  # the address is the offset in the BAR, whose base is unknown


class Purpose(IntEnum):
    """The purpose of an access."""

    OTHER = 0
    DOORBELL = 1
    BLUEFLAME = 2
    WQE = 3
    PAYLOAD_READ = 4
    RECEIVE_WQE = 5
    PAYLOAD_WRITE = 6
    CQE = 7
    EQE = 8
    INTERRUPT = 9
    DOORBELL_RECORD = 10
    CQ_ARM = 11
    EQ_ARM = 12
    REGISTER_READ = 13
    REGISTER_WRITE = 14
    CONFIG = 15
    TABLE = 16
    DESCRIPTOR = 17
    COPY_READ = 18
    COPY_WRITE = 19
    COMPLETION_WORD = 20
    WINDOW_STORE = 21
    WINDOW_LOAD = 22
    WINDOW = 23
    COMMAND = 24
    RESET = 25
    NOTE = 26
    LINK = 27
    CONTROL = 28


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
    *_request(),
    u32("address", 8, "of a dword"),
    source="PCI Express base 3.0, figure 2-16",
)
MEMORY_64 = Struct(
    "MemoryRequest64",
    16,
    *_request(),
    u64("address", 8, "of a dword"),
    source="PCI Express base 3.0, figure 2-15",
)
CONFIG = Struct(
    "ConfigRequest",
    12,
    *_request(),
    u16("target", 8, "bus, device, function"),
    bits("register", 8, 4, 11, 0, "offset of a dword in config space"),
    source="PCI Express base 3.0, figure 2-18",
)
COMPLETION = Struct(
    "Completion",
    12,
    *_first_dword(),
    u16("completer", 4, "bus, device, function"),
    bits("status", 6, 2, 15, 13, "0 = successful"),
    bits("byte_count", 6, 2, 11, 0, "bytes still to come, these included; 0 = 4096"),
    u16("requester", 8, "of the request"),
    u8("tag", 10, "of the request"),
    bits("lower_address", 11, 1, 6, 0, "of the first valid byte"),
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
