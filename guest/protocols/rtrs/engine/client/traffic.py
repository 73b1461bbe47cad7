"""Requests and answers on a connected path: contents of chunks and meanings of immediates.

As in the kernel's rtrs-clt.c: rtrs_clt_write_req, rtrs_clt_read_req, process_io_rsp.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Final

from bluebridge.device.layout.net.rtrs import (
    PAYLOAD_BITS,
    PAYLOAD_MASK,
    RKEY_RSP,
    SERVICE_QUEUE_DEPTH,
    ImmediateType,
    MessageFlag,
    MessageType,
    offset_bits,
    parse_response,
)
from bluebridge.guest.protocols.rtrs.engine.actions import (
    Direction,
    Finished,
    Invalidate,
    PostReceive,
    Received,
    Region,
    Register,
    WorkRequest,
    WriteRequest,
)
from bluebridge.guest.protocols.rtrs.engine.client.shared import (
    Buffer,
    ClientRequest,
    Response,
    Shared,
)
from bluebridge.guest.protocols.rtrs.engine.connection import (
    ACKNOWLEDGEMENT,
    FIRST_SLOT_TOKEN,
    NEW_KEY,
    EngineConnection,
    next_key,
    read_message,
    write_message,
)
from bluebridge.guest.protocols.rtrs.engine.interface import EnginePath

_IO_RSP: Final = int(ImmediateType.IO_RSP)
_IO_RSP_W_INV: Final = int(ImmediateType.IO_RSP_W_INV)
_HB_MSG: Final = int(ImmediateType.HB_MSG)
_HB_ACK: Final = int(ImmediateType.HB_ACK)
_RKEY_RSP: Final = int(MessageType.RKEY_RSP)
_NEED_INVAL: Final = int(MessageFlag.NEED_INVAL)
_WRITE_BYTES: Final = 4
_READ_BYTES: Final = 8
_DESCRIPTOR_BYTES: Final = 16


class Broken(Exception):
    """The peer violated the protocol, so the path is of no use any more."""


class Traffic:
    """The requests and answers of one connected period of a path.

    Twice as many receives as answers are posted: one that ends a key may come in front of each.
    """

    def __init__(
        self,
        shared: Shared,
        path: EnginePath,
        response: Response,
        connections: Sequence[EngineConnection],
        regions: Sequence[Region],
        buffers: list[Buffer],
    ) -> None:
        self._outbox = shared.outbox
        self._requests = shared.requests
        self._need_inval = shared.settings.need_inval
        self._path = path.number
        self._statistics = path.statistics
        self._heartbeat = path.heartbeat
        self._queue_depth = response.queue_depth
        self._chunk_size = response.chunk_size
        self._max_header = min(response.max_header_size, shared.header_size)
        self._new_rkey = response.new_rkey
        self._offset_bits = offset_bits(response.queue_depth)
        self._receive_length = RKEY_RSP.size if response.new_rkey else 0
        self._connections = connections
        self._regions = regions
        self._keys = [region.key for region in regions]
        self._registered = [False] * len(regions)
        self._addresses = [buffer.address for buffer in buffers]
        self._rkeys = [buffer.rkey for buffer in buffers]
        self.closing = False
        """True while connections drain: answers count, but nothing is posted any more."""
        for connection in connections:
            depth = self._queue_depth if connection.cid else SERVICE_QUEUE_DEPTH
            self._outbox.append(PostReceive(connection.number, 2 * depth, self._receive_length))

    def start(self, request: ClientRequest, counted: bool) -> int:
        """Send a request, in `inflight` if `counted`; returns 0, or EMSGSIZE if it is too long."""
        if not self._fits(request):
            return errno.EMSGSIZE
        others = len(self._connections) - 1
        cid = 0 if request.admin or not others else request.cpu % others + 1
        connection = self._connections[cid]
        self._statistics.count(request.direction, request.length + len(request.user))
        connection.queue.post(self._chain(request, connection.queue.token()))
        request.path = self._path
        request.connection = connection.number
        request.invalidating = False
        request.counted = counted
        if counted:
            self._statistics.inflight += 1
        return 0

    def take_back(self, request: ClientRequest) -> bool:
        """Return True if a request of the broken, drained path has to be repeated.

        It is over if only the end of its key was awaited: no key of the path is valid now.
        """
        if request.invalidating:
            self._finish(request, request.errno)
            return False
        request.path = 0
        if request.counted:
            self._statistics.inflight -= 1
        return True

    def received(self, connection: EngineConnection, received: Received, now: float) -> None:
        """Take the completion of a receive; raises `Broken`."""
        self._heartbeat.heard()
        if not self.closing:
            self._outbox.append(PostReceive(connection.number, 1, self._receive_length))
        immediate = received.immediate
        if immediate is None:
            if received.invalidated is None:
                raise Broken("a SEND without immediate")
            return
        kind = immediate >> PAYLOAD_BITS
        if kind in (_IO_RSP, _IO_RSP_W_INV):
            slot, failed = parse_response(immediate & PAYLOAD_MASK)
            if not received.write:
                self._take_key(slot, received.data)
            self._answered(slot, failed, kind == _IO_RSP_W_INV)
        elif kind == _HB_MSG:
            if not self.closing:
                self._connections[0].queue.post_immediate(ACKNOWLEDGEMENT)
        elif kind == _HB_ACK:
            self._heartbeat.acknowledged(now)

    def sent(self, connection: EngineConnection, token: int) -> None:
        """Take the completion of a signaled work request."""
        if not self.closing:
            connection.queue.completed()
        slot = token - FIRST_SLOT_TOKEN
        if slot < 0:
            return
        request = self._requests[slot]
        if request.connection == connection.number and request.invalidating:
            self._finish(request, request.errno)

    def _fits(self, request: ClientRequest) -> bool:
        """Return True if the server takes a message of this length, behind its data."""
        message = header = _WRITE_BYTES
        if request.direction is Direction.READ:
            message = header = _READ_BYTES
            header += _DESCRIPTOR_BYTES if request.length else 0
        user = len(request.user)
        room = self._chunk_size - request.length
        return user + header <= self._max_header and user + message <= room

    def _chain(self, request: ClientRequest, token: int) -> list[WorkRequest]:
        """Return the write of data and message, for a read behind the registration of its slot."""
        user, length, slot = request.user, request.length, request.slot
        immediate = slot << self._offset_bits | (length + len(user))
        address, rkey = self._addresses[slot], self._rkeys[slot]
        if request.direction is Direction.WRITE:
            request.need_inval = False
            message = write_message(user)
            return [WriteRequest(slot, length, message, address, rkey, immediate, token)]
        request.need_inval = self._need_inval and length > 0
        chain: list[WorkRequest] = []
        if length:
            self._register(slot, length, chain)
        flags = _NEED_INVAL if self._need_inval else 0
        where, key = self._regions[slot].address, self._keys[slot]
        message = read_message(user, flags, where, key, length)
        chain.append(WriteRequest(slot, 0, message, address + length, rkey, immediate, token))
        return chain

    def _register(self, slot: int, length: int, chain: list[WorkRequest]) -> None:
        """Let the server write to a slot, with a new key each time or once for all of it."""
        if not self._need_inval:
            if self._registered[slot]:
                return
            self._registered[slot] = True
            length = self._regions[slot].length
        self._keys[slot] = next_key(self._keys[slot])
        chain.append(Register(self._path, slot, self._keys[slot], length, True))

    def _take_key(self, slot: int, data: bytes) -> None:
        """Take the chunk's key for the next request out of RKEY_RSP."""
        if not self._new_rkey or len(data) < RKEY_RSP.size:
            raise Broken(f"a new key in {len(data)} bytes")
        kind, chunk, rkey = NEW_KEY.unpack_from(data)
        if kind != _RKEY_RSP or chunk != slot or chunk >= self._queue_depth:
            raise Broken(f"message of type {kind} with a key for chunk {chunk}")
        self._rkeys[chunk] = rkey

    def _answered(self, slot: int, failed: int, invalidated: bool) -> None:
        """Take a response; one to a request that is not on this path is dropped."""
        if slot >= self._queue_depth:
            raise Broken(f"response to request {slot}")
        request = self._requests[slot]
        if request.path != self._path or request.invalidating:
            return
        if request.need_inval and not invalidated:
            self._invalidate(request, failed)
        else:
            self._finish(request, failed)

    def _invalidate(self, request: ClientRequest, failed: int) -> None:
        """End a key that the server did not end, before another request gets the slot."""
        request.invalidating = True
        request.errno = failed
        if self.closing:
            return
        for connection in self._connections:
            if connection.number == request.connection:
                token = FIRST_SLOT_TOKEN + request.slot
                connection.queue.post([Invalidate(self._keys[request.slot], token)])

    def _finish(self, request: ClientRequest, failed: int) -> None:
        request.path = 0
        request.invalidating = False
        if request.counted:
            self._statistics.inflight -= 1
        self._outbox.append(Finished(request.slot, failed))
