"""The server and a new path: checks of a client's messages, answers, sizes of queue pairs."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import NamedTuple

from bluebridge.device.layout.net.rtrs import (
    CONN_REQ,
    CONN_RSP,
    INFO_REQ,
    INFO_RSP,
    MAGIC,
    MAX_CONNECTIONS,
    MAX_QUEUE_DEPTH,
    MIN_CHUNK_SIZE,
    PAYLOAD_BITS,
    SERVICE_QUEUE_DEPTH,
    SG_DESC,
    VERSION,
    MessageFlag,
    MessageType,
)
from bluebridge.guest.protocols.rtrs.engine.actions import Limits
from bluebridge.guest.protocols.rtrs.engine.settings import ServerSettings


class Refused(Exception):
    """A connection is refused; `errno` is the positive errno that the client is told."""

    def __init__(self, errno: int, reason: str) -> None:
        super().__init__(reason)
        self.errno = errno


class ConnectionRequest(NamedTuple):
    """The private data of a REQ, CONN_REQ."""

    cid: int
    total: int
    """The number of connections of the path."""
    attempt: int
    path: bytes
    """The UUID of the path."""
    session: bytes
    """The UUID of the session."""
    first: bool


def parse_request(data: bytes) -> ConnectionRequest:
    """Parse CONN_REQ; raises `Refused` with the kernel's ECONNRESET for any error in it."""
    if len(data) < CONN_REQ.size:
        raise Refused(errno.ECONNRESET, f"connection request of {len(data)} bytes")
    if CONN_REQ.get(data, "magic") != MAGIC:
        raise Refused(errno.ECONNRESET, "wrong magic")
    if CONN_REQ.get(data, "version") >> 8 != VERSION >> 8:
        raise Refused(errno.ECONNRESET, "wrong version")
    cid, total = CONN_REQ.get(data, "cid"), CONN_REQ.get(data, "cid_num")
    if total > MAX_CONNECTIONS or cid >= total:
        raise Refused(errno.ECONNRESET, f"connection {cid} of {total}")
    return ConnectionRequest(
        cid,
        total,
        CONN_REQ.get(data, "recon_cnt"),
        CONN_REQ.get_raw(data, "sess_uuid"),
        CONN_REQ.get_raw(data, "paths_uuid"),
        bool(CONN_REQ.get(data, "first_conn")),
    )


def acceptance(settings: ServerSettings) -> bytes:
    """Return CONN_RSP, the private data of a REP."""
    header = settings.max_header_size
    return bytes(
        CONN_RSP.pack(
            magic=MAGIC,
            version=VERSION,
            queue_depth=settings.queue_depth,
            max_io_size=settings.max_chunk_size - header,
            max_hdr_size=header,
            flags=MessageFlag.NEW_RKEY if settings.always_invalidate else 0,
        )
    )


def refusal(errno: int) -> bytes:
    """Return the CONN_RSP of a REJ; `errno` is positive."""
    return bytes(CONN_RSP.pack(magic=MAGIC, version=VERSION, errno=-errno & 0xFFFF))


def parse_info(data: bytes) -> str:
    """Return the session's name in INFO_REQ; raises `ValueError`."""
    if len(data) < INFO_REQ.size or INFO_REQ.get(data, "type") != MessageType.INFO_REQ:
        raise ValueError(f"info request of {len(data)} bytes with a wrong type")
    name = INFO_REQ.get_raw(data, "pathname").partition(b"\0")[0]
    if not name or b"/" in name or b"." in name:
        raise ValueError(f"session name {name!r}")
    return name.decode(errors="surrogateescape")


def info_response(pieces: Sequence[tuple[int, int, int]]) -> bytes:
    """Return INFO_RSP with address, key and length of each piece of memory."""
    head = INFO_RSP.pack(type=MessageType.INFO_RSP, sg_cnt=len(pieces))
    packed = [SG_DESC.pack(addr=address, key=key, len=size) for address, key, size in pieces]
    return b"".join((head, *packed))


def check(settings: ServerSettings) -> None:
    """Raise `ValueError` for settings with which the kernel's module would not load."""
    depth, size = settings.queue_depth, settings.max_chunk_size
    if not 1 <= depth <= MAX_QUEUE_DEPTH:
        raise ValueError(f"queue depth {depth} is not 1 to {MAX_QUEUE_DEPTH}")
    if size < MIN_CHUNK_SIZE or size & (size - 1):
        raise ValueError(f"{size} is no power of two of at least {MIN_CHUNK_SIZE}")
    if (depth - 1).bit_length() + (size - 1).bit_length() > PAYLOAD_BITS:
        raise ValueError(f"{depth} chunks of {size} bytes are too many for an immediate")


def limits(cid: int, settings: ServerSettings) -> Limits:
    """Return the sizes of a connection's queue pair, as the kernel's server has them.

    Connection 0: a request and an end of key for each, 2 for draining and heartbeats. Others: the
    end of a chunk's key, data, end of the client's key, new key, response.
    """
    depth, most = settings.queue_depth, settings.max_work_requests
    if not cid:
        size = min(most, SERVICE_QUEUE_DEPTH * 2 + 2)
        return Limits(size, size, 1)
    sends = depth * (5 if settings.always_invalidate else 3) + 1
    return Limits(min(most, sends), min(most, depth + 1), 1)


def chunks_per_region(settings: ServerSettings) -> int:
    """Return the number of chunks per registration.

    It is 1 where each chunk is invalidated by itself, else as many as one registration can have. It
    divides the number of chunks, since clients refuse others.
    """
    if settings.always_invalidate:
        return 1
    depth = settings.queue_depth
    most = min(depth, settings.max_chunks_per_region)
    return next(count for count in range(most, 0, -1) if depth % count == 0)
