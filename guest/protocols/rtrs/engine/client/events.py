"""Delivery of the events of connections to the paths that the connections belong to."""

from __future__ import annotations

import errno

from bluebridge.guest.protocols.rtrs.engine.actions import LinkInfo, Received
from bluebridge.guest.protocols.rtrs.engine.client.path import Path
from bluebridge.guest.protocols.rtrs.engine.connection import EngineConnection


class ConnectionEvents:
    """The part of a client's `Engine` that takes events of connections.

    Events of connections that are gone are dropped.
    """

    def __init__(self) -> None:
        self._connections: dict[int, tuple[Path, EngineConnection]] = {}

    def connection_opened(self, path: Path, connection: EngineConnection) -> None:
        """Deliver the connection's events to the path from now on."""
        self._connections[connection.number] = path, connection

    def connection_gone(self, connection: EngineConnection) -> None:
        """Drop all later events of the connection."""
        del self._connections[connection.number]

    def established(self, connection: int, private_data: bytes, link: LinkInfo, now: float) -> None:
        """Take the event that a connection is up."""
        if (found := self._connections.get(connection)) is not None:
            found[0].established(found[1], private_data, link, now)

    def rejected(self, connection: int, private_data: bytes, now: float) -> None:
        """Take the event that the server refused a connection."""
        if (found := self._connections.get(connection)) is not None:
            found[0].rejected(private_data, now)

    def connect_failed(self, connection: int, errno: int, now: float) -> None:
        """Take the event that a connection did not come up."""
        if (found := self._connections.get(connection)) is not None:
            found[0].fail(errno, "cannot connect", now)

    def disconnected(self, connection: int, now: float) -> None:
        """Take the event that the server ended a connection, or knows its end."""
        if (found := self._connections.get(connection)) is not None:
            found[0].disconnected(found[1], now)

    def received(self, connection: int, received: Received, now: float) -> None:
        """Take the completion of a receive."""
        if (found := self._connections.get(connection)) is not None:
            found[0].received(found[1], received, now)

    def sent(self, connection: int, token: int, now: float) -> None:
        """Take the completion of a signaled work request."""
        if (found := self._connections.get(connection)) is not None:
            found[0].sent(found[1], token)

    def failed(self, connection: int, reason: str, now: float) -> None:
        """Take the failure of a work request."""
        if (found := self._connections.get(connection)) is not None:
            found[0].fail(errno.ECONNRESET, reason, now)

    def drained(self, connection: int, now: float) -> None:
        """Take the event that nothing of a connection uses memory any more."""
        if (found := self._connections.get(connection)) is not None:
            found[0].drained(found[1], now)

    def device_removed(self, connection: int, now: float) -> None:
        """Close the path of a connection whose device is gone."""
        if (found := self._connections.get(connection)) is not None:
            found[0].close(now)
