"""The server's engine, which decides who may connect, and to which session and path.

As in the kernel's rtrs-srv.c: rtrs_rdma_connect, get_or_create_srv.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from bluebridge.device.layout.net.rtrs import MAX_PATHS
from bluebridge.guest.protocols.rtrs.engine.actions import (
    AddressPair,
    Closed,
    Memory,
    Reject,
    SessionDown,
    SessionUp,
)
from bluebridge.guest.protocols.rtrs.engine.interface import Engine, SessionStatus
from bluebridge.guest.protocols.rtrs.engine.server.messages import (
    ConnectionRequest,
    Refused,
    parse_request,
    refusal,
)
from bluebridge.guest.protocols.rtrs.engine.server.operations import Operation, Session, Shared
from bluebridge.guest.protocols.rtrs.engine.server.path import Path
from bluebridge.guest.protocols.rtrs.engine.settings import ServerSettings


class Server(Engine):
    """The `Engine` of a server with its sessions; raises `ValueError` for invalid settings."""

    def __init__(self, memory: Memory, settings: ServerSettings) -> None:
        self._shared = Shared(memory, settings)
        super().__init__(self._shared.outbox, self._shared.alarms)
        self._sessions: dict[bytes, Session] = {}
        """The sessions by UUID."""
        self._paths: dict[int, Path] = {}
        self._last_session = 0
        self._last_path = 0
        self._closing = False

    # -- what the layer above asks -----------------------------------------------------------

    @property
    def sessions(self) -> Sequence[SessionStatus]:
        """Return all sessions, in the order in which they came."""
        return [
            SessionStatus(
                session.number, session.name, [path.status for path in self._paths_of(session)]
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

    def requested(
        self, connection: int, private_data: bytes, addresses: AddressPair, now: float
    ) -> None:
        """Accept a client's connection, or tell it what is wrong."""
        try:
            request = parse_request(private_data)
            path = self._path_for(request, connection, addresses, now)
            self.connection_opened(path, path.request(connection, request))
        except Refused as error:
            self._outbox.append(Reject(connection, refusal(error.errno)))

    def drained(self, connection: int, now: float) -> None:
        """Note that nothing of a connection uses memory any more."""
        super().drained(connection, now)
        self._operations_over(now)

    # -- what paths tell --------------------------------------------------------------------------

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
            self._outbox.append(SessionUp(session.number, name))

    def path_closed(self, path: Path, connected: bool) -> None:
        """Note that a path holds nothing any more; the last one ends its session."""
        session = path.session
        del self._paths[path.number]
        self._shared.waiting.discard(path.number)
        if connected:
            session.up -= 1
            if not session.up:
                self._outbox.append(SessionDown(session.number))
        self._end_if_unused(session)
        self._end_if_over()

    # -- inside ------------------------------------------------------------------------------------

    def _path(self, number: int) -> Path | None:
        return self._paths.get(number)

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
            self._last_path += 1
            number = self._last_path
            path = Path(self._shared, self, session, number, request, connection, addresses, now)
        except MemoryError as error:
            if session is not None:
                self._end_if_unused(session)
            raise Refused(errno.ENOMEM, "no memory") from error
        self._paths[number] = path
        return path

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
        self._shared.memory.create(number, settings.queue_depth, settings.max_chunk_size)
        session = self._sessions[request.session] = Session(number, request.session)
        return session

    def _paths_of(self, session: Session) -> list[Path]:
        return [path for path in self._paths.values() if path.session is session]

    def _operations_over(self, now: float) -> None:
        for number in sorted(self._shared.waiting):
            if number in self._paths:
                self._paths[number].operations_over(now)

    def _end_if_unused(self, session: Session) -> None:
        if not self._paths_of(session) and self._sessions.pop(session.uuid, None) is not None:
            self._shared.memory.free(session.number)

    def _end_if_over(self) -> None:
        if self._closing and not self._paths:
            self._closing = False
            self._outbox.append(Closed())
