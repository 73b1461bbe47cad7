"""The handshake of a path: one connection after another, then INFO_REQ and INFO_RSP.

As in the kernel's rtrs-clt.c: init_conns, rtrs_rdma_conn_established, rtrs_send_path_info.
"""

from __future__ import annotations

from bluebridge.device.layout.net.rtrs import (
    INFO_RSP,
    MAX_QUEUE_DEPTH,
    SERVICE_QUEUE_DEPTH,
    SG_DESC,
)
from bluebridge.guest.protocols.rtrs.engine.actions import (
    SLOTS,
    AddressPair,
    Limits,
    Open,
    PostReceive,
    Received,
    Region,
    Send,
)
from bluebridge.guest.protocols.rtrs.engine.client.shared import (
    Buffer,
    DepthChanged,
    MessageError,
    Response,
    Shared,
    connection_request,
    info_request,
    parse_info,
    parse_response,
)
from bluebridge.guest.protocols.rtrs.engine.connection import SIGNALED, EngineConnection, SendQueue


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


class Handshake:
    """The `attempt`th attempt to connect; with `first` the server may make a new session."""

    def __init__(
        self,
        shared: Shared,
        path: int,
        uuid: bytes,
        addresses: AddressPair,
        attempt: int,
        first: bool,
    ) -> None:
        self._shared = shared
        self._path = path
        self._uuid = uuid
        self._addresses = addresses
        self._attempt = attempt
        self.first = first
        self.connections: list[EngineConnection] = []
        self.response: Response | None = None
        self.regions: list[Region] | None = None

    @property
    def complete(self) -> bool:
        """True when all connections are established."""
        last = self.connections[-1]
        return last.established and last.cid == self._shared.settings.cpus

    def open_next(self) -> EngineConnection:
        """Ask for one more connection."""
        shared, cid = self._shared, len(self.connections)
        settings, depth = shared.settings, max(1, shared.queue_depth)
        sizes = limits(cid, depth, settings.max_work_requests)
        number = shared.new_connection()
        queue = SendQueue(shared.outbox, number, sizes.send, depth)
        connection = EngineConnection(number, cid, queue)
        self.connections.append(connection)
        request = connection_request(
            cid, settings.cpus + 1, self._attempt, self._uuid, shared.uuid, self.first
        )
        shared.outbox.append(Open(number, self._addresses, settings.port, request, sizes))
        return connection

    def established(self, connection: EngineConnection, data: bytes) -> None:
        """Take the CONN_RSP of a connection; that of connection 0 has the session's sizes.

        Raises `MessageError`, `DepthChanged`, `MemoryError`.
        """
        response = parse_response(data)
        connection.established = True
        if connection.cid:
            return
        depth = response.queue_depth
        if self._shared.queue_depth not in (0, depth):
            raise DepthChanged(f"queue depth {depth} instead of {self._shared.queue_depth}")
        if not 0 < depth <= MAX_QUEUE_DEPTH or not response.max_io_size:
            raise MessageError(f"{depth} chunks of {response.max_io_size} bytes")
        self._shared.adopt(response)
        connection.queue.set_depth(depth)
        self.response = response

    def ask(self) -> None:
        """Map the slots and send INFO_REQ for the server's chunks; raises `MemoryError`."""
        shared, first = self._shared, self.connections[0]
        self.regions = shared.memory.map(self._path, first.number, SLOTS, 1)
        length = INFO_RSP.size + shared.queue_depth * SG_DESC.size
        shared.outbox.append(PostReceive(first.number, 1, length))
        first.queue.post([Send(info_request(shared.name), None, SIGNALED)])

    def buffers(self, connection: EngineConnection, received: Received) -> list[Buffer]:
        """Return the server's chunks that INFO_RSP names; raises `MessageError`."""
        plain = not received.write and received.immediate is None and received.invalidated is None
        if self.response is None or connection.cid or not plain:
            raise MessageError("no info response")
        depth, size = self.response.queue_depth, self.response.chunk_size
        return parse_info(received.data, depth, size)
