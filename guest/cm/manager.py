"""The connection manager of one HCA: a thread that receives MADs, keeps timers and finds owners."""

from __future__ import annotations

import errno
import os
import secrets
import select
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from bluebridge.device.layout.net.cm import (
    SERVICE_ID_TCP,
    SERVICE_PORT_MASK,
    Answered,
    CmAttribute,
    RejectReason,
)
from bluebridge.guest.cm.connection import Connection
from bluebridge.guest.cm.events import CmError
from bluebridge.guest.cm.identifier import CmId
from bluebridge.guest.cm.messages import MalformedMessage, Message, decode, encode
from bluebridge.guest.cm.transport import MadTransport, Peer, Received
from bluebridge.guest.hca.errors import DeviceLost
from bluebridge.guest.hca.resources.health import PERIOD

FIRST_EPHEMERAL_PORT = 49152
LAST_PORT = 0xFFFF


class Resolver(Protocol):
    """Finds the MAC address behind an IPv4 address (bluebridge.guest.netif.NetInterface)."""

    def resolve(self, ip: str, timeout: float = ...) -> bytes:
        """6 bytes; raises `OSError` when nobody answers, `ValueError` for no neighbour."""


@dataclass(frozen=True, slots=True)
class LocalPort:
    """This HCA's port: dotted IPv4 address, 6-byte MAC, 16-byte GID and its index, node GUID."""

    ip: str
    mac: bytes
    gid: bytes
    gid_index: int
    guid: int


class ConnectionManager:
    """Everything `CmId`s share. Made with a transport that is ready; `close` ends it."""

    def __init__(self, port: LocalPort, transport: MadTransport, resolver: Resolver) -> None:
        self.port = port
        self.resolver = resolver
        self.lock = threading.RLock()
        self._transport = transport
        self._ids: dict[int, CmId] = {}
        self._requests: dict[tuple[int, bytes], CmId] = {}
        self._listeners: dict[int, CmId] = {}
        self._next_id = secrets.randbits(32)
        self._next_port = FIRST_EPHEMERAL_PORT
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="cm", daemon=True)
        self._thread.start()

    def create_id(self) -> CmId:
        """A fresh identifier with its own event queue."""
        return CmId(self)

    def close(self) -> None:
        """Let posted MADs leave, stop the thread and close the transport. Once only."""
        with self.lock:
            if self._closing:
                return
            self._closing = True
        os.eventfd_write(self._wake, 1)
        self._thread.join()
        os.close(self._wake)
        self._transport.flush(1.0)
        self._transport.close()

    def take_port(self, port: int, owner: CmId) -> None:
        """Listen on `port` for `owner`; `CmError` EADDRINUSE when another one does."""
        with self.lock:
            if port in self._listeners:
                raise CmError(errno.EADDRINUSE, f"port {port} is taken by another listener")
            self._listeners[port] = owner

    def ephemeral_port(self) -> int:
        """The next port number for an active side that bound none."""
        with self.lock:
            port = self._next_port
            self._next_port = port + 1 if port < LAST_PORT else FIRST_EPHEMERAL_PORT
            return port

    def new_connection(self, owner: CmId, peer: Peer) -> Connection:
        """A connection with a fresh id whose notices go to `owner`; call under `lock`."""
        while self._next_id in self._ids or self._next_id == 0:
            self._next_id = (self._next_id + 1) & 0xFFFFFFFF
        local_id = self._next_id
        self._next_id = (local_id + 1) & 0xFFFFFFFF
        tid = secrets.randbits(32) << 32 | local_id
        self._ids[local_id] = owner
        return Connection(local_id, tid, peer, self._send, time.monotonic, owner.notice)

    def wake(self) -> None:
        """A timer may have been started: look at the deadlines anew."""
        if threading.current_thread() is not self._thread and not self._closing:
            os.eventfd_write(self._wake, 1)

    def forget(self, owner: CmId) -> None:
        """`owner` wants no more messages; call under `lock`."""
        self._listeners = {k: v for k, v in self._listeners.items() if v is not owner}
        self._ids = {k: v for k, v in self._ids.items() if v is not owner}
        self._requests = {k: v for k, v in self._requests.items() if v is not owner}

    def _send(self, mad: bytes, peer: Peer) -> None:
        """Post a MAD. Failing to post is like losing it: the timers repeat it."""
        try:
            self._transport.send(mad, peer)
        except OSError as error:
            print(f"cm: MAD not sent: {error}", flush=True)

    def _run(self) -> None:
        """The thread: it serves until it is told to end, or the device is lost."""
        try:
            self._serve()
        except DeviceLost:
            with self.lock:
                for owner in {*self._ids.values(), *self._listeners.values()}:
                    owner.device_removed()

    def _serve(self) -> None:
        """MADs as they come, deadlines as they pass."""
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
        """Serve passed deadlines; milliseconds until the next, or until the device is looked at."""
        with self.lock:
            now = time.monotonic()
            for owner in list(self._ids.values()):
                owner.expire(now)
            deadlines = [at for owner in self._ids.values() if (at := owner.deadline) is not None]
        rest = min(deadlines, default=now + PERIOD) - time.monotonic()
        return min(max(0.0, rest), PERIOD) * 1000 + 1

    def _dispatch(self, received: Received) -> None:
        """Hand one MAD to whom it belongs."""
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
                for waiting in list(self._ids.values()):
                    waiting.old_connection_over(message["remote_qpn"], received.peer)
            elif message.kind is CmAttribute.REP:
                # The requester is gone: without this its listener would wait for an RTU.
                fields = {"answered": Answered.REP, "reason": RejectReason.INVALID_COMM_ID}
                self._answer(CmAttribute.REJ, message, received.peer, fields)

    def _owner(self, message: Message, peer: Peer) -> CmId | None:
        """Whose message this is. A REJ of a REQ that nobody listens to knows only our id."""
        owner = self._ids.get(message["remote_comm_id"])
        if owner is None and message.kind is CmAttribute.REJ:
            # rdma_cm rejects with a timeout before it has heard our id: ours is unknown to it.
            owner = self._requests.get((message["local_comm_id"], peer.gid))
        return owner

    def _dispatch_request(self, message: Message, peer: Peer) -> None:
        """A REQ: new, repeated, for a port nobody listens on, or from a peer that restarted."""
        key = (message["local_comm_id"], peer.gid)
        known = self._requests.get(key)
        if known is not None:
            known.handle(message)
            return
        self._drop_stale(message["local_qpn"], peer)
        listener = self._listeners.get(message["service_id"] & SERVICE_PORT_MASK)
        if message["service_id"] & ~SERVICE_PORT_MASK != SERVICE_ID_TCP or listener is None:
            fields = {"answered": Answered.REQ, "reason": RejectReason.INVALID_SERVICE_ID}
            self._answer(CmAttribute.REJ, message, peer, fields)
            return
        child = listener.child(message, peer)
        if child is not None:
            self._requests[key] = child

    def _drop_stale(self, qpn: int, peer: Peer) -> None:
        """A peer's queue pair asks anew: its old connection ended without a DREQ we heard."""
        for owner in list(self._ids.values()):
            owner.drop_if_stale(qpn, peer)

    def _answer(
        self, kind: CmAttribute, message: Message, peer: Peer, fields: Mapping[str, int]
    ) -> None:
        """Answer a message that belongs to no identifier of ours."""
        numbers = {"local_comm_id": 0, "remote_comm_id": message["local_comm_id"]}
        if "remote_comm_id" in message.fields:
            numbers["local_comm_id"] = message["remote_comm_id"]
        self._send(encode(kind, message.tid, {**fields, **numbers}), peer)
