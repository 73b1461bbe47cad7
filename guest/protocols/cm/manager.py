"""The connection manager of one HCA: a thread that receives MADs, keeps timers and finds owners."""

from __future__ import annotations

import errno
import os
import secrets
import select
import threading
import time
from collections.abc import Callable, Mapping

from bluebridge.device.layout.net.cm import (
    SERVICE_ID_TCP,
    SERVICE_PORT_MASK,
    Answered,
    CmAttribute,
    RejectReason,
)
from bluebridge.guest.protocols.cm.connection import CmConnection, Notice
from bluebridge.guest.protocols.cm.identifier import CmEvent, CmId
from bluebridge.guest.protocols.cm.interface import (
    CmError,
    CmEvents,
    LocalPort,
    MadTransport,
    Peer,
    Received,
    Resolver,
)
from bluebridge.guest.protocols.cm.messages import MalformedMessage, Message, decode, encode
from bluebridge.guest.verbs import HEALTH_SECONDS, AddressVector, DeviceLost

FIRST_EPHEMERAL_PORT = 49152
LAST_PORT = 0xFFFF


class ConnectionManager:
    """The manager of all identifiers of one port, served by its thread until `close`.

    `transport` must be ready; `way_to` gives the address vector that leads to a peer.
    """

    def __init__(
        self,
        port: LocalPort,
        transport: MadTransport,
        resolver: Resolver,
        way_to: Callable[[Peer], AddressVector],
    ) -> None:
        self.port = port
        self.lock = threading.RLock()
        """Guards what identifiers share: communication ids, requests and ports by their owners."""
        self.resolver = resolver
        self.way_to = way_to
        self._owners: dict[int, CmId] = {}
        self._requests: dict[tuple[int, bytes], CmId] = {}
        self._listeners: dict[int, CmId] = {}
        self._next_id = secrets.randbits(32)
        self._next_port = FIRST_EPHEMERAL_PORT
        self._transport = transport
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="cm", daemon=True)
        self._thread.start()

    def create_id(self, events: CmEvents[CmEvent] | None = None) -> CmId:
        """Make an identifier, with an event queue of its own unless one is given."""
        return CmId(self, events)

    def take_port(self, port: int, owner: CmId) -> None:
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
        self, owner: CmId, peer: Peer, notice: Callable[[Notice], None]
    ) -> CmConnection:
        """Make a connection of `owner` with a new id; it calls `notice`. Call under `lock`."""
        while self._next_id in self._owners or self._next_id == 0:
            self._next_id = (self._next_id + 1) & 0xFFFFFFFF
        local_id = self._next_id
        self._next_id = (local_id + 1) & 0xFFFFFFFF
        tid = secrets.randbits(32) << 32 | local_id
        self._owners[local_id] = owner
        return CmConnection(local_id, tid, peer, self._send, time.monotonic, notice)

    def forget(self, owner: CmId) -> None:
        """Deliver no more messages to `owner`; call under `lock`."""
        self._listeners = {k: v for k, v in self._listeners.items() if v is not owner}
        self._owners = {k: v for k, v in self._owners.items() if v is not owner}
        self._requests = {k: v for k, v in self._requests.items() if v is not owner}

    def close(self) -> None:
        """Let posted MADs leave, stop the thread and close the transport; to be called once."""
        with self.lock:
            if self._closing:
                return
            self._closing = True
        os.eventfd_write(self._wake, 1)
        self._thread.join()
        os.close(self._wake)
        self._transport.flush(1.0)
        self._transport.close()

    def timer_started(self) -> None:
        """Look at the deadlines anew, of which one may have come nearer."""
        if threading.current_thread() is not self._thread and not self._closing:
            os.eventfd_write(self._wake, 1)

    def _send(self, mad: bytes, peer: Peer) -> None:
        """Post a MAD; one that cannot be posted is repeated by the timers like a lost one."""
        try:
            self._transport.send(mad, peer)
        except OSError as error:
            print(f"cm: MAD not sent: {error}", flush=True)

    def _run(self) -> None:
        try:
            self._serve()
        except DeviceLost:
            with self.lock:
                for owner in {*self._owners.values(), *self._listeners.values()}:
                    owner.device_removed()

    def _serve(self) -> None:
        poller = select.poll()
        poller.register(self._transport.fileno(), select.POLLIN)
        poller.register(self._wake, select.POLLIN)
        while not self._closing:
            for received in self._transport.receive():
                self._dispatch(received)
            wait = self._expire()
            for fd, _ in poller.poll(wait):
                if fd == self._wake:
                    os.eventfd_read(self._wake)

    def _expire(self) -> float:
        """Serve passed deadlines; returns milliseconds until the next, or the next health check."""
        with self.lock:
            now = time.monotonic()
            for owner in list(self._owners.values()):
                owner.expire(now)
            owners = list(self._owners.values())
            deadlines = [at for owner in owners if (at := owner.deadline) is not None]
        rest = min(deadlines, default=now + HEALTH_SECONDS) - time.monotonic()
        return min(max(0.0, rest), HEALTH_SECONDS) * 1000 + 1

    def _dispatch(self, received: Received) -> None:
        try:
            message = decode(received.mad)
        except MalformedMessage:
            return
        with self.lock:
            if message.kind is CmAttribute.REQ:
                self._dispatch_request(message, received.peer)
                return
            owner = self._owner(message, received.peer)
            if owner is not None:
                owner.handle(message)
            elif message.kind is CmAttribute.DREQ:
                self._answer(CmAttribute.DREP, message, received.peer, {})
                for waiting in list(self._owners.values()):
                    waiting.old_connection_over(message["remote_qpn"], received.peer)
            elif message.kind is CmAttribute.REP:
                # The requester is gone: without this its listener would wait for an RTU.
                fields = {"answered": Answered.REP, "reason": RejectReason.INVALID_COMM_ID}
                self._answer(CmAttribute.REJ, message, received.peer, fields)

    def _dispatch_request(self, message: Message, peer: Peer) -> None:
        """Take a REQ: new, repeated, for a port without listener, or of a restarted peer."""
        known = self._owner_of_request(message, peer)
        if known is not None:
            known.handle(message)
            return
        # The DREQ of an old connection may have been lost.
        for owner in list(self._owners.values()):
            owner.drop_if_stale(message["local_qpn"], peer)
        listener = self._listeners.get(message["service_id"] & SERVICE_PORT_MASK)
        if message["service_id"] & ~SERVICE_PORT_MASK != SERVICE_ID_TCP or listener is None:
            fields = {"answered": Answered.REQ, "reason": RejectReason.INVALID_SERVICE_ID}
            self._answer(CmAttribute.REJ, message, peer, fields)
            return
        child = listener.child(message, peer)
        if child is not None:
            self._requests[message["local_comm_id"], peer.gid] = child

    def _answer(
        self, kind: CmAttribute, message: Message, peer: Peer, fields: Mapping[str, int]
    ) -> None:
        """Answer a message that belongs to no identifier of this manager."""
        numbers = {"local_comm_id": 0, "remote_comm_id": message["local_comm_id"]}
        if "remote_comm_id" in message.fields:
            numbers["local_comm_id"] = message["remote_comm_id"]
        self._send(encode(kind, message.tid, {**fields, **numbers}), peer)

    def _owner_of_request(self, message: Message, peer: Peer) -> CmId | None:
        """Return the owner that answers a REQ, or a message that names its sender only."""
        return self._requests.get((message["local_comm_id"], peer.gid))

    def _owner(self, message: Message, peer: Peer) -> CmId | None:
        """Return the owner that a message is for.

        A REJ of a REQ that nobody listens to has this side's id only.
        """
        owner = self._owners.get(message["remote_comm_id"])
        if owner is None and message.kind is CmAttribute.REJ:
            # rdma_cm rejects with a timeout before it knows our id: it does not carry ours.
            owner = self._owner_of_request(message, peer)
        return owner
