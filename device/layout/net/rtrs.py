"""RTRS on the wire: private data of connections, messages, and the meaning of immediates.

All structures are little-endian; immediates are sent big-endian, as for every protocol.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from functools import partial
from typing import Final

from bluebridge.device.layout.fields import Struct, bits, raw, u8, u16, u32, u64

MAGIC: Final = 0x1BBD
VERSION: Final = 0x0200
"""Protocol version with the major number in the high byte.

Peers with different major numbers refuse each other.
"""
DEFAULT_PORT: Final = 1234
NAME_BYTES: Final = 255
MAX_QUEUE_DEPTH: Final = 65535
MAX_CONNECTIONS: Final = 4096
"""Connections of one path at most; a server refuses a request for more."""
MAX_PATHS: Final = 128
MIN_CHUNK_SIZE: Final = 8192
SERVICE_QUEUE_DEPTH: Final = 512
"""Receives that each side keeps on connection 0."""
_struct = partial(
    Struct, source="Linux 6.12 drivers/infiniband/ulp/rtrs/rtrs-pri.h", order="little"
)

CONN_REQ = _struct(
    "RTRS_CONN_REQ",
    56,
    u8("cma_version", 0, "0: taken by rdma_cm on InfiniBand addresses"),
    u8("ip_version", 1, "0"),
    u16("magic", 2),
    u16("version", 4),
    u16("cid", 6, "number of this connection in its path"),
    u16("cid_num", 8, "connections of the path"),
    u16("recon_cnt", 10, "how often the path was connected"),
    raw("sess_uuid", 12, 16, "the path's"),
    raw("paths_uuid", 28, 16, "the session's"),
    bits("first_conn", 44, 1, 0, doc="the server may make a new session"),
    doc="Private data of a CM REQ.",
)
CONN_RSP = _struct(
    "RTRS_CONN_RSP",
    56,
    u16("magic", 0),
    u16("version", 2),
    u16("errno", 4, "a negative number in a CM REJ, 0 in a CM REP"),
    u16("queue_depth", 6, "chunks of the session"),
    u32("max_io_size", 8, "bytes of data of one request"),
    u32("max_hdr_size", 12, "bytes of user message and RTRS message of one request"),
    u32("flags", 16, "RTRS_MSG_NEW_RKEY_F: the server invalidates a chunk before it reads it"),
    doc="Private data of a CM REP or REJ.",
)


class MessageType(IntEnum):
    """First 16 bits of every message."""

    INFO_REQ = 0
    INFO_RSP = 1
    WRITE = 2
    READ = 3
    RKEY_RSP = 4


class MessageFlag(IntFlag):
    """Values of `flags` in a read request and in CONN_RSP."""

    NEED_INVAL = 1
    NEW_RKEY = 2


INFO_REQ = _struct(
    "RTRS_INFO_REQ",
    272,
    u16("type", 0),
    raw("pathname", 2, NAME_BYTES, "session name, ends at the first zero byte"),
    doc="SEND on connection 0: the client has all connections of the path and asks for the chunks.",
)
INFO_RSP = _struct(
    "RTRS_INFO_RSP",
    8,
    u16("type", 0),
    u16("sg_cnt", 2, "how many RTRS_SG_DESC follow"),
    doc="SEND on connection 0: where the chunks are.",
)
SG_DESC = _struct(
    "RTRS_SG_DESC",
    16,
    u64("addr", 0),
    u32("key", 8, "rkey"),
    u32("len", 12),
    doc="A piece of memory that the peer may write.",
)
RKEY_RSP = _struct(
    "RTRS_RKEY_RSP",
    8,
    u16("type", 0),
    u16("buf_id", 2, "the chunk"),
    u32("rkey", 4, "its new key"),
    doc="Payload of a response that is a SEND with immediate.",
)
RDMA_READ = _struct(
    "RTRS_RDMA_READ",
    8,
    u16("type", 0),
    u16("usr_len", 2, "bytes of the user message in front of this"),
    u16("flags", 4),
    u16("sg_cnt", 6, "0 or 1 RTRS_SG_DESC follows: where the answer goes"),
    doc="In a chunk, behind the user message.",
)
RDMA_WRITE = _struct(
    "RTRS_RDMA_WRITE",
    4,
    u16("type", 0),
    u16("usr_len", 2, "bytes of the user message in front of this"),
    doc="In a chunk, behind data and user message.",
)


class ImmediateType(IntEnum):
    """Types of immediates, in bits 31..28."""

    IO_REQ = 0
    IO_RSP = 1
    IO_RSP_W_INV = 2
    HB_MSG = 8
    HB_ACK = 9


PAYLOAD_BITS: Final = 28
PAYLOAD_MASK: Final = (1 << PAYLOAD_BITS) - 1
MESSAGE_ID_BITS: Final = 19


def immediate(kind: int, payload: int) -> int:
    """Return the immediate of a type with a payload of 28 bits."""
    return (kind & 0xF) << PAYLOAD_BITS | payload & PAYLOAD_MASK


def offset_bits(queue_depth: int) -> int:
    """Return how many low bits of IO_REQ's payload are the offset.

    The bits above are the chunk.
    """
    return PAYLOAD_BITS - ((queue_depth - 1).bit_length() if queue_depth > 1 else 0)


def response_payload(message_id: int, errno: int) -> int:
    """Return the payload of IO_RSP: the chunk of the request, and an errno (0 to 511, unsigned)."""
    return (abs(errno) & 0x1FF) << MESSAGE_ID_BITS | message_id & ((1 << MESSAGE_ID_BITS) - 1)


def parse_response(payload: int) -> tuple[int, int]:
    """Return chunk and errno (0 to 511, unsigned) of IO_RSP's payload."""
    return payload & ((1 << MESSAGE_ID_BITS) - 1), payload >> MESSAGE_ID_BITS & 0x1FF
