"""The client's messages of connecting, and the checks of the server's answers."""

from __future__ import annotations

import random
from typing import NamedTuple

from bluebridge.device.layout.net.rtrs import (
    CONN_REQ,
    CONN_RSP,
    INFO_REQ,
    INFO_RSP,
    MAGIC,
    NAME_BYTES,
    PAYLOAD_BITS,
    SG_DESC,
    VERSION,
    MessageFlag,
    MessageType,
)


class MessageError(ValueError):
    """A message does not follow the protocol; the text says what is wrong."""


class DepthChanged(MessageError):
    """The server has another number of chunks than when the session was opened."""


class Response(NamedTuple):
    """The CONN_RSP of a connection that was accepted."""

    queue_depth: int
    max_io_size: int
    max_header_size: int
    new_rkey: bool

    @property
    def chunk_size(self) -> int:
        """The bytes of a chunk."""
        return self.max_io_size + self.max_header_size


class Buffer(NamedTuple):
    """A chunk of the server as the client sees it: the address to write to, and its key."""

    address: int
    rkey: int


def new_uuid(source: random.Random) -> bytes:
    """Return a random UUID (version 4) of 16 bytes."""
    data = bytearray(source.getrandbits(128).to_bytes(16, "little"))
    data[6] = data[6] & 0x0F | 0x40
    data[8] = data[8] & 0x3F | 0x80
    return bytes(data)


def connection_request(
    cid: int, count: int, attempt: int, path: bytes, session: bytes, first: bool
) -> bytes:
    """Return CONN_REQ for connection `cid` of `count` at a path's `attempt`th attempt."""
    return bytes(
        CONN_REQ.pack(
            magic=MAGIC,
            version=VERSION,
            cid=cid,
            cid_num=count,
            recon_cnt=attempt & 0xFFFF,
            sess_uuid=path,
            paths_uuid=session,
            first_conn=int(first),
        )
    )


def parse_response(data: bytes) -> Response:
    """Parse the CONN_RSP of an accepted connection; raises `MessageError`."""
    if len(data) < CONN_RSP.size:
        raise MessageError(f"connection response of {len(data)} bytes")
    if CONN_RSP.get(data, "magic") != MAGIC:
        raise MessageError("connection response with a wrong magic")
    version = CONN_RSP.get(data, "version")
    if version >> 8 != VERSION >> 8:
        raise MessageError(f"the server speaks version {version >> 8}")
    if errno := CONN_RSP.get(data, "errno"):
        raise MessageError(f"accepted with error {errno}")
    return Response(
        CONN_RSP.get(data, "queue_depth"),
        CONN_RSP.get(data, "max_io_size"),
        CONN_RSP.get(data, "max_hdr_size"),
        bool(CONN_RSP.get(data, "flags") & MessageFlag.NEW_RKEY),
    )


def refusal(data: bytes) -> int | None:
    """Return the positive errno of a CONN_RSP in a REJ, None if the server gave none."""
    if len(data) < CONN_RSP.size:
        return None
    errno = CONN_RSP.get(data, "errno")
    return 0x10000 - errno if errno & 0x8000 else errno


def info_request(name: bytes) -> bytes:
    """Return INFO_REQ with the session's name."""
    return bytes(INFO_REQ.pack(type=MessageType.INFO_REQ, pathname=name.ljust(NAME_BYTES, b"\0")))


def parse_info(data: bytes, queue_depth: int, chunk_size: int) -> list[Buffer]:
    """Return all chunks that INFO_RSP names; raises `MessageError`."""
    if len(data) < INFO_RSP.size or INFO_RSP.get(data, "type") != MessageType.INFO_RSP:
        raise MessageError(f"info response of {len(data)} bytes with a wrong type")
    count = INFO_RSP.get(data, "sg_cnt")
    if len(data) < INFO_RSP.size + count * SG_DESC.size:
        raise MessageError(f"info response of {len(data)} bytes for {count} pieces")
    if not count or queue_depth % count:
        raise MessageError(f"{count} pieces for {queue_depth} chunks")
    if (count - 1).bit_length() + (chunk_size - 1).bit_length() > PAYLOAD_BITS:
        raise MessageError(f"{count} pieces of {chunk_size} bytes are too many for an immediate")
    buffers: list[Buffer] = []
    for index in range(count):
        buffers += _chunks_of(data, INFO_RSP.size + index * SG_DESC.size, chunk_size, queue_depth)
    if len(buffers) != queue_depth:
        raise MessageError(f"room for {len(buffers)} chunks of {queue_depth}")
    return buffers


def _chunks_of(data: bytes, base: int, chunk_size: int, queue_depth: int) -> list[Buffer]:
    length = SG_DESC.get(data, "len", base)
    if not length or length % chunk_size or length // chunk_size > queue_depth:
        raise MessageError(f"a piece of {length} bytes")
    address, rkey = SG_DESC.get(data, "addr", base), SG_DESC.get(data, "key", base)
    return [Buffer(address + offset, rkey) for offset in range(0, length, chunk_size)]
