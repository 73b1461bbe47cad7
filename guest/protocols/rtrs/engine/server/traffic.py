"""Requests and responses on a connected path, on the server's side.

As in the kernel's rtrs-srv.c: rtrs_srv_rdma_done, process_io_req, rdma_write_sg.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from bluebridge.device.layout.net.rtrs import (
    PAYLOAD_BITS,
    PAYLOAD_MASK,
    ImmediateType,
    MessageType,
    immediate,
    offset_bits,
    response_payload,
)
from bluebridge.guest.protocols.rtrs.engine.actions import (
    Invalidate,
    PostReceive,
    Received,
    Register,
    Send,
    SendInvalidate,
    WorkRequest,
    WriteChunk,
    WriteImmediate,
)
from bluebridge.guest.protocols.rtrs.engine.connection import (
    ACKNOWLEDGEMENT,
    FIRST_SLOT_TOKEN,
    NEW_KEY,
    EngineConnection,
    next_key,
)
from bluebridge.guest.protocols.rtrs.engine.interface import EnginePath
from bluebridge.guest.protocols.rtrs.engine.server.operations import (
    BadRequest,
    ChunkUse,
    Message,
    Operation,
    Session,
    Shared,
    read_request,
)

_IO_REQ: Final = int(ImmediateType.IO_REQ)
_HB_MSG: Final = int(ImmediateType.HB_MSG)
_HB_ACK: Final = int(ImmediateType.HB_ACK)


def response(
    operation: Operation, message: Message, session: int, renewal: Register | None, token: int
) -> list[WorkRequest]:
    """Return the chain for a response.

    It has the data of a read, a new registration of the chunk, the end of the client's key, and the
    response. `renewal` brings the chunk's new key, None keeps the old one. An error response ends
    the client's key first, as the kernel's does.
    """
    chain: list[WorkRequest] = []
    ending = message.need_inval and message.answer > 0
    if not operation.errno and message.answer:
        chunk, length = operation.chunk, message.answer
        chain.append(WriteChunk(session, chunk, length, message.address, message.rkey))
    elif ending:
        chain.append(SendInvalidate(message.rkey))
    if renewal is not None:
        chain.append(renewal)
    if ending and not operation.errno:
        chain.append(SendInvalidate(message.rkey))
    chain.append(_last(operation, ending, renewal, token))
    return chain


def _last(operation: Operation, ending: bool, renewal: Register | None, token: int) -> WorkRequest:
    kind = ImmediateType.IO_RSP_W_INV if ending else ImmediateType.IO_RSP
    value = immediate(kind, response_payload(operation.chunk, operation.errno))
    if renewal is None:
        return WriteImmediate(value, token)
    data = NEW_KEY.pack(MessageType.RKEY_RSP, operation.chunk, renewal.key)
    return Send(data, value, token)


class Traffic:
    """The requests and responses of a connected path.

    `keys` are those of the path's registrations: one for each chunk with `always_invalidate`.
    `alive` becomes false when the path is closed: nothing is posted any more.
    """

    def __init__(
        self,
        shared: Shared,
        session: Session,
        path: EnginePath,
        connections: Sequence[EngineConnection],
        keys: list[int],
    ) -> None:
        self._shared = shared
        self._outbox = shared.outbox
        self._session = session
        self._path = path.number
        self._connections = connections
        self._keys = keys
        self._statistics = path.statistics
        self._heartbeat = path.heartbeat
        settings = shared.settings
        self._depth = settings.queue_depth
        self._chunk_size = settings.max_chunk_size
        self._always_invalidate = settings.always_invalidate
        self._offset_bits = offset_bits(settings.queue_depth)
        self._operations: dict[int, Operation] = {}
        """The operations in progress by their chunk."""
        self.alive = True

    @property
    def chunk_use(self) -> ChunkUse:
        """The use of the session's chunks."""
        return self._session.chunk_use

    @property
    def operations(self) -> Collection[Operation]:
        """Return the operations in progress."""
        return self._operations.values()

    def received(self, connection: EngineConnection, received: Received, now: float) -> None:
        """Take the completion of a receive. Raises `BadRequest`."""
        self._heartbeat.heard()
        immediate = received.immediate
        if immediate is None or not received.write:
            raise BadRequest("a SEND")
        self._outbox.append(PostReceive(connection.number, 1))
        kind = immediate >> PAYLOAD_BITS
        if kind == _IO_REQ:
            self._requested(connection, immediate & PAYLOAD_MASK)
        elif kind == _HB_MSG:
            self._connections[0].queue.post_immediate(ACKNOWLEDGEMENT)
        elif kind == _HB_ACK:
            self._heartbeat.acknowledged(now)

    def sent(self, connection: EngineConnection, token: int) -> None:
        """Take the completion of a signaled work request. Raises `BadRequest`."""
        connection.queue.completed()
        if token < FIRST_SLOT_TOKEN:
            return
        operation = self._operations.get(token - FIRST_SLOT_TOKEN)
        if operation is not None and operation.connection is connection:
            self._begin(operation)

    def drained(self) -> None:
        """End the operations that wait for the end of a key, which will not come any more."""
        for chunk, operation in list(self._operations.items()):
            if operation.message is None:
                operation.over = True
                del self._operations[chunk]

    def serve(self, operation: Operation) -> None:
        """Give an operation to the layer above."""
        self._shared.serve(operation, self._session.number)

    def answer(self, operation: Operation) -> None:
        """Respond to an operation, if the client can still hear it; it is over."""
        operation.over = True
        del self._operations[operation.chunk]
        message = operation.message
        if not self.alive or message is None:
            return
        queue = operation.connection.queue
        renewal = self._renewal(operation.chunk) if self._always_invalidate else None
        queue.post(response(operation, message, self._session.number, renewal, queue.token()))

    def _requested(self, connection: EngineConnection, payload: int) -> None:
        chunk = payload >> self._offset_bits
        offset = payload & ((1 << self._offset_bits) - 1)
        if chunk >= self._depth or offset >= self._chunk_size:
            raise BadRequest(f"a request at byte {offset} of chunk {chunk}")
        if chunk in self._operations:
            raise BadRequest(f"a second request for chunk {chunk}")
        operation = Operation(self, connection, chunk, offset)
        self._operations[chunk] = operation
        if self._always_invalidate:
            connection.queue.post([Invalidate(self._keys[chunk], FIRST_SLOT_TOKEN + chunk)])
        else:
            self._begin(operation)

    def _begin(self, operation: Operation) -> None:
        """Read and start a request once the client cannot change its chunk any more.

        Without `always_invalidate` the client is trusted not to.
        """
        message = operation.message = read_request(
            self._shared.memory,
            self._session.number,
            operation.chunk,
            operation.offset,
            self._chunk_size,
        )
        self._statistics.count(message.direction, operation.offset)
        self._session.chunk_use.begin(operation)

    def _renewal(self, chunk: int) -> Register:
        key = self._keys[chunk] = next_key(self._keys[chunk])
        return Register(self._path, chunk, key, self._chunk_size, True)
