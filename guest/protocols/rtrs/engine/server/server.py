"""The server's engine, which decides who may connect, and to which session and path.

As in the kernel's rtrs-srv.c: rtrs_rdma_connect, get_or_create_srv.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from bluebridge.device.layout.net.rtrs import MAX_PATHS
from bluebridge.guest.protocols.rtrs.engine.actions import (
    Action,
    AddressPair,
    Closed,
    LinkInfo,
    Received,
    Reject,
    ServerMemory,
    SessionDown,
    SessionUp,
)
from bluebridge.guest.protocols.rtrs.engine.connection import EngineConnection
from bluebridge.guest.protocols.rtrs.engine.interface import PathStatus, SessionStatus
from bluebridge.guest.protocols.rtrs.engine.server.messages import (
    ConnectionRequest,
    Refused,
    parse_request,
    refusal,
)
from bluebridge.guest.protocols.rtrs.engine.server.operations import Operation
from bluebridge.guest.protocols.rtrs.engine.server.path import Path
from bluebridge.guest.protocols.rtrs.engine.server.shared import Session, Shared
from bluebridge.guest.protocols.rtrs.engine.settings import ServerSettings


class Server:
    """The `Engine` of a server with its sessions; raises `ValueError` for invalid settings."""

    def __init__(self, memory: ServerMemory, settings: ServerSettings) -> None:
        self._shared = Shared(memory, settings)
        self._sessions: dict[bytes, Session] = {}
        """The sessions by UUID."""
        self._paths: dict[int, Path] = {}
        self._connections: dict[int, tuple[Path, EngineConnection]] = {}
        self._last_session = 0
        self._last_path = 0
        self._closing = False

    # -- what the layer above asks -----------------------------------------------------------

    @property
    def sessions(self) -> Sequence[SessionStatus]:
        """Return all sessions, in the order in which they came."""
        return [
            SessionStatus(
                session.number, session.name, [_status(path) for path in self._paths_of(session)]
            )
            for session in self._sessions.values()
        ]

    def respond(self, operation: int, errno: int, now: float) -> None:
        """Take the end of an operation of `Serve`."""
        found = self._shared.operations.pop(operation, None)
        if found is None:
            return
        found.errno = errno
        found.path.chunk_use.done(found)
        self._operations_over(now)

    def disconnect_path(self, path: int, now: float) -> None:
        """Disconnect a path."""
        if path not in self._paths:
            raise ValueError(f"there is no path {path}")
        self._paths[path].close("asked to")

    def close(self, now: float) -> None:
        """End all sessions; `Closed` follows."""
        self._closing = True
        for path in list(self._paths.values()):
            path.close("the server ends")
        self._end_if_over()

    # -- what the surroundings tell -------------------------------------------------------------

    def take_actions(self) -> list[Action]:
        """Return the actions since the last call."""
        return self._shared.outbox.take()

    @property
    def deadline(self) -> float | None:
        """Return the time at which `expire` has something to do, None for never."""
        return self._shared.alarms.next

    def expire(self, now: float) -> None:
        """Do what is due: heartbeats and time limits."""
        for number, kind in self._shared.alarms.due(now):
            if number in self._paths:
                self._paths[number].alarm(kind, now)

    def requested(
        self, connection: int, private_data: bytes, addresses: AddressPair, now: float
    ) -> None:
        """Accept a client's connection, or tell it what is wrong."""
        try:
            request = parse_request(private_data)
            path = self._path_for(request, connection, addresses, now)
            self._connections[connection] = path, path.request(connection, request)
        except Refused as error:
            self._shared.outbox.add(Reject(connection, refusal(error.errno)))

    def established(self, connection: int, private_data: bytes, link: LinkInfo, now: float) -> None:
        """Take the event that a connection is up."""
        if (found := self._connections.get(connection)) is not None:
            found[0].established(found[1], link)

    def rejected(self, connection: int, private_data: bytes, now: float) -> None:
        """Take the event that the client refused an accepted connection."""
        self._close(connection, "rejected")

    def connect_failed(self, connection: int, errno: int, now: float) -> None:
        """Take the event that a connection did not come up."""
        self._close(connection, "cannot connect")

    def disconnected(self, connection: int, now: float) -> None:
        """Take the event that the client ended a connection."""
        self._close(connection, "disconnected")

    def received(self, connection: int, received: Received, now: float) -> None:
        """Take the completion of a receive."""
        if (found := self._connections.get(connection)) is not None:
            found[0].received(found[1], received, now)

    def sent(self, connection: int, token: int, now: float) -> None:
        """Take the completion of a signaled work request."""
        if (found := self._connections.get(connection)) is not None:
            found[0].sent(found[1], token, now)

    def failed(self, connection: int, reason: str, now: float) -> None:
        """Take the failure of a work request."""
        self._close(connection, reason)

    def drained(self, connection: int, now: float) -> None:
        """Note that nothing of a connection uses memory any more."""
        if (found := self._connections.get(connection)) is not None:
            found[0].drained(found[1])
            self._operations_over(now)

    def device_removed(self, connection: int, now: float) -> None:
        """Take the event that the device under a connection is gone."""
        self._close(connection, "the device is gone")

    # -- what paths tell (`path.Owner`) -----------------------------------------------------------

    def connection_gone(self, connection: EngineConnection) -> None:
        """Drop all later events of the connection."""
        del self._connections[connection.number]

    def name_taken(self, name: str, session: Session) -> bool:
        """Return True if another session has this name."""
        others = (one for one in self._sessions.values() if one is not session)
        return any(one.name == name for one in others)

    def operations_of(self, session: Session) -> list[Operation]:
        """Return all operations in progress of a session."""
        return [one for path in self._paths_of(session) for one in path.operations]

    def path_connected(self, path: Path, name: str) -> None:
        """Note that a path takes requests: the first one brings its session up."""
        session = path.session
        session.name = name
        session.up += 1
        if session.up == 1:
            self._shared.outbox.add(SessionUp(session.number, name))

    def path_closed(self, path: Path, connected: bool) -> None:
        """Note that a path holds nothing any more; the last one ends its session."""
        session = path.session
        del self._paths[path.number]
        self._shared.waiting.discard(path.number)
        if connected:
            session.up -= 1
            if not session.up:
                self._shared.outbox.add(SessionDown(session.number))
        self._end_if_unused(session)
        self._end_if_over()

    # -- inside ------------------------------------------------------------------------------------

    def _path_for(
        self, request: ConnectionRequest, connection: int, addresses: AddressPair, now: float
    ) -> Path:
        """Return the path of a request, made anew if need be; raises `Refused`."""
        if self._closing:
            raise Refused(errno.ECONNRESET, "the server ends")
        session = self._sessions.get(request.session)
        if session is not None:
            for path in self._paths_of(session):
                if path.uuid == request.path:
                    return path
            self._check_room(session, addresses)
        elif not request.first:
            raise Refused(errno.ENXIO, "no such session")
        try:
            session = session or self._new_session(request)
            return self._new_path(session, request, connection, addresses, now)
        except MemoryError as error:
            if session is not None:
                self._end_if_unused(session)
            raise Refused(errno.ENOMEM, "no memory") from error

    def _check_room(self, session: Session, addresses: AddressPair) -> None:
        paths = self._paths_of(session)
        if len(paths) >= MAX_PATHS:
            raise Refused(errno.ECONNRESET, "too many paths")
        if any(path.addresses == addresses for path in paths):
            raise Refused(errno.EEXIST, "a path between these addresses is there")

    def _new_session(self, request: ConnectionRequest) -> Session:
        settings = self._shared.settings
        self._last_session += 1
        number = self._last_session
        self._shared.memory.create_chunks(number, settings.queue_depth, settings.max_chunk_size)
        session = self._sessions[request.session] = Session(number, request.session)
        return session

    def _new_path(
        self,
        session: Session,
        request: ConnectionRequest,
        connection: int,
        addresses: AddressPair,
        now: float,
    ) -> Path:
        self._last_path += 1
        number = self._last_path
        path = Path(self._shared, self, session, number, request, connection, addresses, now)
        self._paths[number] = path
        return path

    def _paths_of(self, session: Session) -> list[Path]:
        return [path for path in self._paths.values() if path.session is session]

    def _operations_over(self, now: float) -> None:
        for number in sorted(self._shared.waiting):
            if number in self._paths:
                self._paths[number].operations_over(now)

    def _close(self, connection: int, reason: str) -> None:
        if (found := self._connections.get(connection)) is not None:
            found[0].close(reason)

    def _end_if_unused(self, session: Session) -> None:
        if not self._paths_of(session) and self._sessions.pop(session.uuid, None) is not None:
            self._shared.memory.free_chunks(session.number)

    def _end_if_over(self) -> None:
        if self._closing and not self._paths:
            self._closing = False
            self._shared.outbox.add(Closed())


def _status(path: Path) -> PathStatus:
    return PathStatus(
        path.number,
        path.addresses,
        path.state.value,
        path.hca,
        path.port,
        path.heartbeat.latency,
        path.statistics,
    )
