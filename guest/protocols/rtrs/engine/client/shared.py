"""Shared by the parts of a client's session: messages of connecting, permits, and its state."""

from __future__ import annotations

import random
from typing import Final, NamedTuple

from bluebridge.device.layout.net.rtrs import (
    CONN_REQ,
    CONN_RSP,
    INFO_REQ,
    INFO_RSP,
    MAGIC,
    NAME_BYTES,
    PAYLOAD_BITS,
    SERVICE_QUEUE_DEPTH,
    SG_DESC,
    VERSION,
    MessageFlag,
    MessageType,
)
from bluebridge.guest.protocols.rtrs.engine.actions import SLOTS, Action, Direction, Limits, Memory
from bluebridge.guest.protocols.rtrs.engine.connection import Alarms
from bluebridge.guest.protocols.rtrs.engine.settings import ClientSettings

NOWHERE: Final = -1
"""The path number of a request whose path broke while no other is connected yet."""

PAGE: Final = 4096
LARGEST_HEADER: Final = 4096
"""The most bytes of memory for a slot's header, even if the server takes longer ones."""


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


class ClientRequest:
    """The request of a slot, kept until its answer, since another path may repeat it."""

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.path = 0
        """The number of the path that the request was sent on; 0 when not in flight, or NOWHERE."""
        self.connection = 0
        """The number of the connection that the request was sent on."""
        self.direction = Direction.READ
        self.user = b""
        self.length = 0
        self.cpu = 0
        self.admin = False
        self.counted = False
        """True if the request counts in the path's `inflight`."""
        self.need_inval = False
        """True while the slot's key is not known to have ended."""
        self.invalidating = False
        """True for a request that is answered and waits for the end of its key."""
        self.errno = 0


class Permits:
    """The use of slots as bits; the lowest free one is taken (rtrs-clt.c: __rtrs_get_permit)."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._free = (1 << count) - 1

    def get(self) -> int | None:
        """Take a slot and return it, None while all are in use."""
        free = self._free
        if not free:
            return None
        lowest = free & -free
        self._free = free ^ lowest
        return lowest.bit_length() - 1

    def put(self, slot: int) -> None:
        """Free a slot; raises `ValueError` if it is free already or does not exist."""
        bit = 1 << slot
        if slot >= self.count or self._free & bit:
            raise ValueError(f"slot {slot} is not in use")
        self._free |= bit

    @property
    def in_use(self) -> int:
        """The number of permits that are given out."""
        return self.count - self._free.bit_count()


class Shared:
    """The common state of one session: name, UUID, slots, outbox and alarms."""

    def __init__(
        self, name: str, memory: Memory, source: random.Random, settings: ClientSettings
    ) -> None:
        self.name = name.encode()
        if not name or "/" in name or "." in name or len(self.name) >= NAME_BYTES:
            raise ValueError(f"{name!r} cannot be the name of a session")
        self.memory = memory
        self.random = source
        self.settings = settings
        self.max_reconnect_attempts = settings.max_reconnect_attempts
        self.uuid = new_uuid(source)
        self.outbox: list[Action] = []
        self.alarms = Alarms()
        self.permits: Permits | None = None
        self.requests: list[ClientRequest] = []
        """The requests by their slot."""
        self.queue_depth = 0
        self.max_io_size = 0
        self.slot_size = 0
        self.header_size = 0
        self._connections = 0

    def new_connection(self) -> int:
        """Return a number for a new connection."""
        self._connections += 1
        return self._connections

    def adopt(self, response: Response) -> None:
        """Make slots of the sizes of the first server; of later sizes, the smallest counts.

        Raises `MemoryError`.
        """
        if not self.queue_depth:
            size = min(response.max_io_size, self.settings.max_segments * PAGE)
            header = min(response.max_header_size, LARGEST_HEADER)
            self.memory.create(SLOTS, response.queue_depth, size, header)
            self.queue_depth = response.queue_depth
            self.max_io_size = self.slot_size = size
            self.header_size = header
            self.permits = Permits(self.queue_depth)
            self.requests = [ClientRequest(slot) for slot in range(self.queue_depth)]
        self.max_io_size = min(self.max_io_size, response.max_io_size)

    def forget_slots(self) -> None:
        """Free the slots, so that another session may be opened."""
        if self.queue_depth:
            self.memory.free(SLOTS)
        self.queue_depth = self.max_io_size = 0
        self.permits = None
        self.requests = []


def limits(cid: int, queue_depth: int, most: int) -> Limits:
    """Return the sizes of a connection's queue pair (rtrs-clt.c: create_con_cq_qp).

    `most` is the device's limit. Connection 0 needs a request and a registration for each of the
    session's requests, and 2 for draining and heartbeats. Others need request, registration and end
    of a key, and two receives for each answer.
    """
    if not cid:
        size = min(most, SERVICE_QUEUE_DEPTH * 2 + 2)
        return Limits(size, size, 2)
    return Limits(min(most, queue_depth * 4 + 1), min(most, queue_depth * 3 + 1), 2)
