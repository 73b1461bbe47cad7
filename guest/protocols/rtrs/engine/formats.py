"""Packing of the messages and keys of every request, where a format table would be too slow."""

from __future__ import annotations

import struct
from typing import Final

from bluebridge.device.layout.net.rtrs import MessageType

WRITE: Final = struct.Struct("<HH")
"""The format of the message of type RTRS_RDMA_WRITE."""
READ: Final = struct.Struct("<HHHH")
"""The format of the message of type RTRS_RDMA_READ."""
DESCRIPTOR: Final = struct.Struct("<QII")
"""The format of RTRS_SG_DESC: address, key, length."""
NEW_KEY: Final = struct.Struct("<HHI")
"""The format of the message of type RTRS_RKEY_RSP."""
LONGEST_MESSAGE: Final = 24
"""The bytes of a read message with its descriptor, the longest of all messages."""


def next_key(key: int) -> int:
    """Return the key of the same region with its low byte counted up (that byte is the user's)."""
    return key & 0xFFFFFF00 | key + 1 & 0xFF


def write_message(user: bytes) -> bytes:
    """Return RTRS_RDMA_WRITE behind the user message, as they follow the data."""
    return user + WRITE.pack(MessageType.WRITE, len(user))


def read_message(user: bytes, flags: int, address: int, key: int, length: int) -> bytes:
    """Return RTRS_RDMA_READ behind the user message, with the place of the answer.

    `length` 0 asks for no answer.
    """
    if not length:
        return user + READ.pack(MessageType.READ, len(user), 0, 0)
    head = READ.pack(MessageType.READ, len(user), flags, 1)
    return b"".join((user, head, DESCRIPTOR.pack(address, key, length)))
