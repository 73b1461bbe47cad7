"""Commands of 256 bytes to the peer's driver, and its responses of 64 bytes."""

from __future__ import annotations

from enum import IntEnum
from functools import partial
from typing import Final

from bluebridge.device.layout.fields import Field, Struct, raw, u32, u64

COMMAND_SIZE: Final = 256
RESPONSE_SIZE: Final = 64
OK: Final = 0
FAILED: Final = 0xFFFFFFFF
CREATE_SEGMENTS: Final = 13
"""Segments of a MR_CREATE at most; a MR_APPEND has room for one more."""
APPEND_SEGMENTS: Final = 14
CREATE_LIST: Final = 40
APPEND_LIST: Final = 24
ACCESS_TOLD: Final = 1 << 31
"""The bit in the rights of QP_MODIFY that says that they are meant.

Version 0.1 always carries 0 there, and a peer of it goes by the rights of regions alone.
"""
EXTENSIONS_TAG: Final = 0x42425831
"""The word by which a side says that the extensions behind it are its own, and not left over."""
CONNECTIONS: Final = 1 << 0
"""The extension of commands 15 and 16."""
ORDERED: Final = 1 << 1
"""The extension of carrying out a command before the sends that were stored behind it."""
IPV6: Final = 1 << 2
"""The extension of IPv6 addresses in commands 15 and 16."""
EXTENSIONS: Final = CONNECTIONS | ORDERED | IPV6
"""The extensions of this project."""
_table = partial(Struct, source="NTRDMA v0.1 ntrdma_cmd.h", order="little")


class CommandCode(IntEnum):
    """Codes of commands. Codes 15 and 16 are extensions of this project: version 0.1 ends at 14."""

    NONE = 0
    PD_CREATE = 4
    PD_DELETE = 5
    MR_CREATE = 8
    MR_DELETE = 9
    MR_APPEND = 10
    QP_CREATE = 12
    QP_DELETE = 13
    QP_MODIFY = 14
    CM_MESSAGE = 15
    RESOLVE = 16


SEGMENT = _table(
    "NTRDMA_SEGMENT",
    16,
    u64("address", 0, "on the owner's bus"),
    u64("length", 8),
    doc="A piece of a memory region.",
)

RESPONSE = _table(
    "NTRDMA_RESPONSE",
    RESPONSE_SIZE,
    u32("op", 0),
    u32("pd_key", 4),
    u32("status", 8, "0 = ok, all ones = failed"),
    u32("tag", 56, "NONE: 0x42425831. Ours"),
    u32("extensions", 60, "NONE: as in the command. Ours"),
    doc="The response to NONE, PD_CREATE, PD_DELETE, CM_MESSAGE and RESOLVE.",
)
KEYED_RESPONSE = _table(
    "NTRDMA_KEYED_RESPONSE",
    RESPONSE_SIZE,
    u32("op", 0),
    u32("pd_key", 4),
    u32("key", 8),
    u32("status", 12, "0 = ok, all ones = failed"),
    u64("recv_entries", 16, "QP_CREATE: where receives go"),
    u64("recv_produced", 24, "where their index goes"),
    u64("send_entries", 32, "where sends go"),
    u64("send_produced", 40, "where their index goes"),
    u32("send_bell", 48),
    doc="The response to all other commands.",
)


def _command(name: str, *fields: Field, doc: str = "") -> Struct:
    head = [u32("op", 0, "CommandCode"), u32("pd_key", 4, "protection domain")]
    return _table(f"NTRDMA_{name}", COMMAND_SIZE, *head, *fields, doc=doc)


PD = _command("PD", doc="PD_CREATE and PD_DELETE.")
MR_CREATE = _command(
    "MR_CREATE",
    u32("key", 8),
    u32("access", 12, "ibv_access_flags; bit 31: the peer may invalidate it"),
    u64("address", 16, "where the region begins for those that use its key"),
    u64("length", 24),
    u32("capacity", 32, "segments of the region"),
    u32("count", 36, "segments in this command, 13 at most"),
    doc="A memory region; 16 bytes for each segment follow from 40 on.",
)
MR_DELETE = _command("MR_DELETE", u32("key", 8))
MR_APPEND = _command(
    "MR_APPEND",
    u32("key", 8),
    u32("capacity", 12),
    u32("position", 16, "of the first segment here"),
    u32("count", 20, "segments in this command, 14 at most"),
    doc="More segments of a region, from 24 on.",
)
QP_CREATE = _command(
    "QP_CREATE",
    u32("key", 8, "number of the queue pair"),
    u32("type", 12),
    u32("recv_capacity", 16),
    u32("recv_pieces", 20, "pieces of memory that a receive may have"),
    u32("recv_index", 24, "where the ring stands"),
    u32("send_capacity", 28),
    u32("send_pieces", 32),
    u32("send_index", 36),
    u64("send_completions", 40, "where completions of sends go"),
    u64("send_consumed", 48, "where their index goes"),
    u32("completion_bell", 56),
)
QP_DELETE = _command("QP_DELETE", u32("key", 8))
QP_MODIFY = _command(
    "QP_MODIFY",
    u32("key", 8),
    u32("state", 12, "QueueState; all ones is the error state"),
    u32("access", 16, "what the peer may do, with bit 31; version 0.1 carries 0"),
    u32("peer_key", 20, "number of the peer's queue pair"),
)
CM_MESSAGE = _command(
    "CM_MESSAGE",
    raw("mad", 8, 248, "a CM MAD without its first 8 bytes, which are always the same"),
    doc="A message of the connection manager; pd_key is the sender's IPv4 address, 0 for the IPv6 "
    "address by which the two know each other from RESOLVE. Ours.",
)
RESOLVE = _command(
    "RESOLVE",
    u32("ip", 8, "IPv4 address as a number, 0 for an IPv6 address"),
    raw("address", 12, 16, "IPv6 address"),
    raw("asker", 28, 16, "the sender's IPv6 address"),
    doc="Whether the peer has it. Ours.",
)
NONE = _command(
    "NONE",
    u32("tag", 8, "0x42425831: the next word is meant. Ours"),
    u32("extensions", 12, "bit 0: commands 15, 16; 1: commands before later sends; 2: IPv6. Ours"),
    doc="Nothing; version 0.1 sends it back.",
)


class QueueState(IntEnum):
    """States of a queue pair on the wire."""

    ERROR = 0xFFFFFFFF
    RESET = 0
    INIT = 1
    READY_TO_RECEIVE = 2
    SEND_DRAIN = 3
    READY_TO_SEND = 4
