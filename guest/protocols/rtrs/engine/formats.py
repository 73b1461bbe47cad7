"""Packed messages and keys, where a table would be too slow: once or more for every request."""

from __future__ import annotations

import struct
from typing import Final

from bluebridge.device.layout.net.rtrs import MessageType

WRITE: Final = struct.Struct("<HH")
"""The type RTRS_RDMA_WRITE."""
READ: Final = struct.Struct("<HHHH")
"""The type RTRS_RDMA_READ."""
DESCRIPTOR: Final = struct.Struct("<QII")
"""RTRS_SG_DESC: address, key, length."""
NEW_KEY: Final = struct.Struct("<HHI")
"""The type RTRS_RKEY_RSP."""
LONGEST_MESSAGE: Final = 24
"""A read message with its descriptor."""


def next_key(key: int) -> int:
    """The key of the same region with its low byte, which belongs to the user, counted up."""
    return key & 0xFFFFFF00 | key + 1 & 0xFF


def write_message(user: bytes) -> bytes:
    """User message and RTRS_RDMA_WRITE, as they stand behind the data."""
    return user + WRITE.pack(MessageType.WRITE, len(user))


def read_message(user: bytes, flags: int, address: int, key: int, length: int) -> bytes:
    """User message, RTRS_RDMA_READ and where the answer goes; `length` 0: no answer."""
    if not length:
        return user + READ.pack(MessageType.READ, len(user), 0, 0)
    head = READ.pack(MessageType.READ, len(user), flags, 1)
    return b"".join((user, head, DESCRIPTOR.pack(address, key, length)))
