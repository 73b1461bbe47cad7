"""Events of connections, told to the paths that these belong to."""

from __future__ import annotations

import errno

from bluebridge.guest.protocols.rtrs.engine.actions import LinkInfo, Received
from bluebridge.guest.protocols.rtrs.engine.client.path import Path
from bluebridge.guest.protocols.rtrs.engine.connection import EngineConnection


class ConnectionEvents:
    """The part of an `Engine` that is about connections; those that are gone are passed over."""

    def __init__(self) -> None:
        self._connections: dict[int, tuple[Path, EngineConnection]] = {}

    def connection_opened(self, path: Path, connection: EngineConnection) -> None:
        """Lead the connection's events to the path."""
        self._connections[connection.number] = path, connection

    def connection_gone(self, connection: EngineConnection) -> None:
        """Expect no more events of the connection."""
        del self._connections[connection.number]

    def established(self, connection: int, private_data: bytes, link: LinkInfo, now: float) -> None:
        """Take the event that a connection is up."""
        if (found := self._connections.get(connection)) is not None:
            found[0].established(found[1], private_data, link, now)

    def rejected(self, connection: int, private_data: bytes, now: float) -> None:
        """The server refused a connection."""
        if (found := self._connections.get(connection)) is not None:
            found[0].rejected(private_data, now)

    def connect_failed(self, connection: int, errno: int, now: float) -> None:
        """A connection did not come up."""
        if (found := self._connections.get(connection)) is not None:
            found[0].fail(errno, "cannot connect", now)

    def disconnected(self, connection: int, now: float) -> None:
        """The server ended a connection, or knows that we have."""
        if (found := self._connections.get(connection)) is not None:
            found[0].disconnected(found[1], now)

    def received(self, connection: int, received: Received, now: float) -> None:
        """Take the completion of a receive."""
        if (found := self._connections.get(connection)) is not None:
            found[0].received(found[1], received, now)

    def sent(self, connection: int, token: int, now: float) -> None:
        """A signaled work request completed."""
        if (found := self._connections.get(connection)) is not None:
            found[0].sent(found[1], token)

    def failed(self, connection: int, reason: str, now: float) -> None:
        """Take the failure of a work request."""
        if (found := self._connections.get(connection)) is not None:
            found[0].fail(errno.ECONNRESET, reason, now)

    def drained(self, connection: int, now: float) -> None:
        """Nothing of a connection uses memory any more."""
        if (found := self._connections.get(connection)) is not None:
            found[0].drained(found[1], now)

    def device_removed(self, connection: int, now: float) -> None:
        """The device under a connection is gone: its path closes."""
        if (found := self._connections.get(connection)) is not None:
            found[0].close(now)
