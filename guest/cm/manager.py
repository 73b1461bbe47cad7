"""The connection manager of one HCA: a thread that receives MADs, keeps timers and finds owners."""

from __future__ import annotations

import os
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
from bluebridge.guest.cm.identifier import CmEvent, CmId
from bluebridge.guest.cm.interface import (
    CmEvents,
    LocalPort,
    MadTransport,
    Peer,
    Received,
    Resolver,
)
from bluebridge.guest.cm.messages import MalformedMessage, Message, decode, encode
from bluebridge.guest.cm.table import ConnectionTable
from bluebridge.guest.verbs import HEALTH_SECONDS, AddressVector, DeviceLost


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
        self.table: ConnectionTable[CmId] = ConnectionTable(port, self._send, self._timer_started)
        self._resolver = resolver
        self._way_to = way_to
        self._transport = transport
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="cm", daemon=True)
        self._thread.start()

    def create_id(self, events: CmEvents[CmEvent] | None = None) -> CmId:
        """Make an identifier, with an event queue of its own unless one is given."""
        return CmId(self.table, self._resolver, self._way_to, events)

    def close(self) -> None:
        """Let posted MADs leave, stop the thread and close the transport; to be called once."""
        with self.table.lock:
            if self._closing:
                return
            self._closing = True
        os.eventfd_write(self._wake, 1)
        self._thread.join()
        os.close(self._wake)
        self._transport.flush(1.0)
        self._transport.close()

    def _timer_started(self) -> None:
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
            with self.table.lock:
                for owner in self.table.everybody():
                    owner.device_removed()

    def _serve(self) -> None:
        poller = select.poll()
        poller.register(self._transport.fileno(), select.POLLIN)
        poller.register(self._wake, select.POLLIN)
        while not self._closing:
            for news in self._transport.receive():
                if isinstance(news, Received):
                    self._dispatch(news)
                else:
                    self._peers_lost()
            wait = self._expire()
            for fd, _ in poller.poll(wait):
                if fd == self._wake:
                    os.eventfd_read(self._wake)

    def _expire(self) -> float:
        """Serve passed deadlines; returns milliseconds until the next, or the next health check."""
        with self.table.lock:
            now = time.monotonic()
            for owner in self.table.connected():
                owner.expire(now)
            owners = self.table.connected()
            deadlines = [at for owner in owners if (at := owner.deadline) is not None]
        rest = min(deadlines, default=now + HEALTH_SECONDS) - time.monotonic()
        return min(max(0.0, rest), HEALTH_SECONDS) * 1000 + 1

    def _peers_lost(self) -> None:
        with self.table.lock:
            for owner in self.table.connected():
                owner.peer_lost()

    def _dispatch(self, received: Received) -> None:
        try:
            message = decode(received.mad)
        except MalformedMessage:
            return
        with self.table.lock:
            if message.kind is CmAttribute.REQ:
                self._dispatch_request(message, received.peer)
                return
            owner = self.table.owner(message, received.peer)
            if owner is not None:
                owner.handle(message)
            elif message.kind is CmAttribute.DREQ:
                self._answer(CmAttribute.DREP, message, received.peer, {})
                for waiting in self.table.connected():
                    waiting.old_connection_over(message["remote_qpn"], received.peer)
            elif message.kind is CmAttribute.REP:
                # The requester is gone: without this its listener would wait for an RTU.
                fields = {"answered": Answered.REP, "reason": RejectReason.INVALID_COMM_ID}
                self._answer(CmAttribute.REJ, message, received.peer, fields)

    def _dispatch_request(self, message: Message, peer: Peer) -> None:
        """Take a REQ: new, repeated, for a port without listener, or of a restarted peer."""
        known = self.table.owner_of_request(message, peer)
        if known is not None:
            known.handle(message)
            return
        for owner in self.table.connected():  # the DREQ of an old connection may have been lost
            owner.drop_if_stale(message["local_qpn"], peer)
        listener = self.table.listener(message["service_id"] & SERVICE_PORT_MASK)
        if message["service_id"] & ~SERVICE_PORT_MASK != SERVICE_ID_TCP or listener is None:
            fields = {"answered": Answered.REQ, "reason": RejectReason.INVALID_SERVICE_ID}
            self._answer(CmAttribute.REJ, message, peer, fields)
            return
        child = listener.child(message, peer)
        if child is not None:
            self.table.add_request(message, peer, child)

    def _answer(
        self, kind: CmAttribute, message: Message, peer: Peer, fields: Mapping[str, int]
    ) -> None:
        """Answer a message that belongs to no identifier of this manager."""
        numbers = {"local_comm_id": 0, "remote_comm_id": message["local_comm_id"]}
        if "remote_comm_id" in message.fields:
            numbers["local_comm_id"] = message["remote_comm_id"]
        self._send(encode(kind, message.tid, {**fields, **numbers}), peer)
