"""The numbers, ports and owners that the identifiers of one connection manager share."""

from __future__ import annotations

import errno
import secrets
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from bluebridge.device.layout.net.cm import CmAttribute
from bluebridge.guest.cm.connection import CmConnection, Notice
from bluebridge.guest.cm.interface import CmError, LocalPort, Peer
from bluebridge.guest.cm.messages import Message

FIRST_EPHEMERAL_PORT = 49152
LAST_PORT = 0xFFFF


Owner = TypeVar("Owner")


class ConnectionTable(Generic[Owner]):
    """The owners of a manager by communication id, request and port; `lock` guards them.

    `send` posts a MAD, `timer_started` is called when a deadline may have come nearer.
    """

    def __init__(
        self,
        port: LocalPort,
        send: Callable[[bytes, Peer], None],
        timer_started: Callable[[], None],
    ) -> None:
        self.port = port
        self.lock = threading.RLock()
        self.timer_started = timer_started
        self._send = send
        self._owners: dict[int, Owner] = {}
        self._requests: dict[tuple[int, bytes], Owner] = {}
        self._listeners: dict[int, Owner] = {}
        self._next_id = secrets.randbits(32)
        self._next_port = FIRST_EPHEMERAL_PORT

    def take_port(self, port: int, owner: Owner) -> None:
        """Listen on `port` for `owner`; `CmError` EADDRINUSE when another one does."""
        with self.lock:
            if port in self._listeners:
                raise CmError(errno.EADDRINUSE, f"port {port} is taken by another listener")
            self._listeners[port] = owner

    def ephemeral_port(self) -> int:
        """Return the next port number for an active side that bound none."""
        with self.lock:
            port = self._next_port
            self._next_port = port + 1 if port < LAST_PORT else FIRST_EPHEMERAL_PORT
            return port

    def new_connection(
        self, owner: Owner, peer: Peer, notice: Callable[[Notice], None]
    ) -> CmConnection:
        """Make a connection of `owner` with a new id; it calls `notice`. Call under `lock`."""
        while self._next_id in self._owners or self._next_id == 0:
            self._next_id = (self._next_id + 1) & 0xFFFFFFFF
        local_id = self._next_id
        self._next_id = (local_id + 1) & 0xFFFFFFFF
        tid = secrets.randbits(32) << 32 | local_id
        self._owners[local_id] = owner
        return CmConnection(local_id, tid, peer, self._send, time.monotonic, notice)

    def add_request(self, message: Message, peer: Peer, owner: Owner) -> None:
        """Make `owner` the one who answers the REQ `message`; call under `lock`."""
        self._requests[message["local_comm_id"], peer.gid] = owner

    def forget(self, owner: Owner) -> None:
        """Deliver no more messages to `owner`; call under `lock`."""
        self._listeners = {k: v for k, v in self._listeners.items() if v is not owner}
        self._owners = {k: v for k, v in self._owners.items() if v is not owner}
        self._requests = {k: v for k, v in self._requests.items() if v is not owner}

    def connected(self) -> list[Owner]:
        """Return the owners of connections; call under `lock`."""
        return list(self._owners.values())

    def everybody(self) -> set[Owner]:
        """Return the owners of connections and the listeners; call under `lock`."""
        return {*self._owners.values(), *self._listeners.values()}

    def listener(self, port: int) -> Owner | None:
        """Return the listener on `port`, None when there is none."""
        return self._listeners.get(port)

    def owner_of_request(self, message: Message, peer: Peer) -> Owner | None:
        """Return the owner that answers a REQ, or a message that names its sender only."""
        return self._requests.get((message["local_comm_id"], peer.gid))

    def owner(self, message: Message, peer: Peer) -> Owner | None:
        """Return the owner that a message is for.

        A REJ of a REQ that nobody listens to has this side's id only.
        """
        owner = self._owners.get(message["remote_comm_id"])
        if owner is None and message.kind is CmAttribute.REJ:
            # rdma_cm rejects with a timeout before it knows our id: it does not carry ours.
            owner = self.owner_of_request(message, peer)
        return owner
