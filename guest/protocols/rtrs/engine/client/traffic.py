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
    WriteImmediate,
    WriteRequest,
)
from bluebridge.guest.protocols.rtrs.engine.client.messages import Buffer, Response
from bluebridge.guest.protocols.rtrs.engine.client.shared import ClientRequest, Shared
from bluebridge.guest.protocols.rtrs.engine.connection import FIRST_SLOT_TOKEN, EngineConnection
from bluebridge.guest.protocols.rtrs.engine.formats import (
    NEW_KEY,
    next_key,
    read_message,
    write_message,
)
from bluebridge.guest.protocols.rtrs.engine.heartbeat import ACKNOWLEDGEMENT, Heartbeat
from bluebridge.guest.protocols.rtrs.engine.interface import Statistics

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
    """The requests and answers of one connected period of a path."""

    def __init__(
        self,
        shared: Shared,
        path: int,
        response: Response,
        statistics: Statistics,
        heartbeat: Heartbeat,
    ) -> None:
        self._outbox = shared.outbox
        self._requests = shared.requests
        self._need_inval = shared.settings.need_inval
        self._path = path
        self._statistics = statistics
        self._heartbeat = heartbeat
        self._queue_depth = response.queue_depth
        self._chunk_size = response.chunk_size
        self._max_header = min(response.max_header_size, shared.header_size)
        self._new_rkey = response.new_rkey
        self._offset_bits = offset_bits(response.queue_depth)
        self._receive_length = RKEY_RSP.size if response.new_rkey else 0
        self._connections: Sequence[EngineConnection] = ()
        self._regions: Sequence[Region] = ()
        self._keys: list[int] = []
        self._registered: list[bool] = []
        self._addresses: list[int] = []
        self._rkeys: list[int] = []
        self.closing = False
        """True while connections drain: answers count, but nothing is posted any more."""

    def begin(
        self,
        connections: Sequence[EngineConnection],
        regions: Sequence[Region],
        buffers: list[Buffer],
    ) -> None:
        """Post the receives for answers on a path that has become connected.

        Twice as many receives as answers: one that ends a key may come in front of each.
        """
        self._connections = connections
        self._regions = regions
        self._keys = [region.key for region in regions]
        self._registered = [False] * len(regions)
        self._addresses = [buffer.address for buffer in buffers]
        self._rkeys = [buffer.rkey for buffer in buffers]
        for connection in connections:
            depth = self._queue_depth if connection.cid else SERVICE_QUEUE_DEPTH
            self._outbox.add(PostReceive(connection.number, 2 * depth, self._receive_length))

    def start(self, request: ClientRequest, counted: bool) -> int:
        """Send a request; returns 0, or a positive errno if it cannot be sent.

        `counted` requests are in `inflight`.
        """
        others = len(self._connections) - 1
        cid = 0 if request.admin or not others else request.cpu % others + 1
        connection = self._connections[cid]
        if request.direction is Direction.WRITE:
            failed = self._write(request, connection)
        else:
            failed = self._read(request, connection)
        if failed:
            return failed
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
            self._outbox.add(PostReceive(connection.number, 1, self._receive_length))
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
                self.beat(ACKNOWLEDGEMENT)
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

    def beat(self, immediate: int) -> None:
        """Send a heartbeat, or the answer to one."""
        queue = self._connections[0].queue
        token = queue.token()
        queue.post([WriteImmediate(immediate, token)], token != 0)

    def _write(self, request: ClientRequest, connection: EngineConnection) -> int:
        user, length, slot = request.user, request.length, request.slot
        offset = length + len(user)
        if len(user) + _WRITE_BYTES > self._max_header or offset + _WRITE_BYTES > self._chunk_size:
            return errno.EMSGSIZE
        request.need_inval = False
        self._statistics.count_write(offset)
        queue = connection.queue
        token = queue.token()
        write = WriteRequest(
            slot,
            length,
            write_message(user),
            self._addresses[slot],
            self._rkeys[slot],
            slot << self._offset_bits | offset,
            token,
        )
        queue.post([write], token != 0)
        return 0

    def _read(self, request: ClientRequest, connection: EngineConnection) -> int:
        user, length, slot = request.user, request.length, request.slot
        offset = length + len(user)
        header = len(user) + _READ_BYTES + (_DESCRIPTOR_BYTES if length else 0)
        if header > self._max_header or offset + _READ_BYTES > self._chunk_size:
            return errno.EMSGSIZE
        request.need_inval = self._need_inval and length > 0
        self._statistics.count_read(offset)
        chain: list[WorkRequest] = []
        if length:
            self._register(slot, length, chain)
        flags = _NEED_INVAL if self._need_inval else 0
        where = self._regions[slot].address
        queue = connection.queue
        token = queue.token()
        write = WriteRequest(
            slot,
            0,
            read_message(user, flags, where, self._keys[slot], length),
            self._addresses[slot] + length,
            self._rkeys[slot],
            slot << self._offset_bits | offset,
            token,
        )
        chain.append(write)
        queue.post(chain, token != 0)
        return 0

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
                connection.queue.post([Invalidate(self._keys[request.slot], token)], True)

    def _finish(self, request: ClientRequest, failed: int) -> None:
        request.path = 0
        request.invalidating = False
        if request.counted:
            self._statistics.inflight -= 1
        self._outbox.add(Finished(request.slot, failed))
