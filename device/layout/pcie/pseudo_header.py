"""The header in front of each TLP of a capture, and the exported PDU around it.

docs/tlp-capture.md specifies it.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag

from bluebridge.device.layout.fields import Struct, u8, u32, u64

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
    [
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
    ],
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
