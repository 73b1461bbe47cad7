"""Connection identifiers: the rdma_cm interface on top of the CM protocol."""

from __future__ import annotations

import errno
import ipaddress
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from bluebridge.device.layout.net.cm import RejectReason
from bluebridge.device.layout.net.roce import MTU_BYTES, ip_gid
from bluebridge.guest.cm.connection import CmConnection, Notice, State
from bluebridge.guest.cm.interface import CmError, CmEvents, ConnParam, EventType, Peer, Resolver
from bluebridge.guest.cm.messages import (
    MTU_1024,
    REMOTE_ACCESS,
    MalformedMessage,
    Message,
    parse_ip_header,
    reply_fields,
    request_fields,
    request_param,
    rtr_of,
    rts_of,
)
from bluebridge.guest.cm.table import ConnectionTable
from bluebridge.guest.verbs import AddressVector, QpAttr, QpState, QueuePair, VerbsError

PSN_BITS = 24


@dataclass(frozen=True, slots=True)
class CmEvent:
    """An event of a connection: `status` is 0, a negative errno, or the reason of a rejection."""

    type: EventType
    id: CmId
    status: int = 0
    private_data: bytes = b""
    listener: CmId | None = None
    param: ConnParam = field(default_factory=ConnParam)


class CmId:
    """One end of a connection, or a listener.

    Events arrive in `events`; a connection a listener hands out shares the listener's queue, so
    that one thread serves both, and each event names its identifier. `qp` is the queue pair that
    `attach` got, `peer` the other end once it is known. `traffic_class` is the type of service of
    what an active side sends, to be set before `resolve_addr` (rdma_set_service_type).
    """

    def __init__(
        self,
        table: ConnectionTable[CmId],
        resolver: Resolver,
        way_to: Callable[[Peer], AddressVector],
        events: CmEvents[CmEvent] | None = None,
    ) -> None:
        self.events: CmEvents[CmEvent] = CmEvents() if events is None else events
        self.qp: QueuePair | None = None
        self.peer: Peer | None = None
        self.address = ""
        self.port = 0
        self.peer_address = ""
        self.peer_port = 0
        self.traffic_class = 0
        self._table = table
        self._resolver = resolver
        self._way_to = way_to
        self._owns_events = events is None
        self._listener: CmId | None = None
        self._connection: CmConnection | None = None
        self._request: Message | None = None
        self._param = ConnParam()
        self._psn = secrets.randbits(PSN_BITS)
        self._destroyed = False

    @property
    def deadline(self) -> float | None:
        """The time on the monotonic clock at which `expire` has something to do; None for never."""
        return self._connection.deadline if self._connection else None

    def bind_addr(self, address: str, port: int) -> None:
        """Choose the local address (0.0.0.0 or :: for any) and port; `CmError` EADDRNOTAVAIL."""
        own = self._table.port.ip
        if address not in (own, "0.0.0.0", "::"):
            reason = f"{address} is not an address of this HCA, which has {own}"
            raise CmError(errno.EADDRNOTAVAIL, reason)
        if not 0 < port <= 0xFFFF:
            raise CmError(errno.EINVAL, f"port {port} is not in 1..65535")
        self.address, self.port = address, port

    def listen(self) -> None:
        """Take connection requests for the bound port; `CmError` EADDRINUSE."""
        if not self.port:
            raise CmError(errno.EINVAL, "listen before bind_addr")
        self._table.take_port(self.port, self)

    def resolve_addr(self, address: str, port: int, timeout: float = 2.0) -> None:
        """Find the peer's MAC address; ADDR_RESOLVED or ADDR_ERROR follows.

        Blocks up to `timeout` seconds: the caller's own thread speaks ARP.
        """
        try:
            packed = ipaddress.ip_address(address).packed
        except ValueError as error:
            raise CmError(errno.EINVAL, f"{address!r} is no IP address") from error
        local = self._table.port
        try:
            mac = local.mac if address == local.ip else self._resolver.resolve(address, timeout)
        except OSError:
            self._tell(EventType.ADDR_ERROR, -errno.ETIMEDOUT)
            return
        except ValueError:
            self._tell(EventType.ADDR_ERROR, -errno.ENETUNREACH)
            return
        self.address = self.address or local.ip
        self.port = self.port or self._table.ephemeral_port()
        self.peer_address, self.peer_port = address, port
        self.peer = Peer(ip_gid(packed), mac, self.traffic_class)
        self._tell(EventType.ADDR_RESOLVED)

    def resolve_route(self) -> None:
        """Report ROUTE_RESOLVED: on RoCE the route is the address; `CmError` without address."""
        if self.peer is None:
            raise CmError(errno.EINVAL, "resolve_route before the address is resolved")
        self._tell(EventType.ROUTE_RESOLVED)

    def attach(self, qp: QueuePair) -> None:
        """Give this end its queue pair, which goes to INIT; events bring it to later states."""
        qp.modify(QpAttr(state=QpState.INIT, access=REMOTE_ACCESS))
        self.qp = qp

    def connect(self, param: ConnParam | None = None) -> None:
        """Send a request to the peer; ESTABLISHED, REJECTED or UNREACHABLE follows."""
        qp, peer = self._need_qp(), self.peer
        if peer is None:
            raise CmError(errno.EINVAL, "connect before the address is resolved")
        self._param = param or ConnParam()
        own = self._table.port, self.port
        fields = request_fields(
            *own, self.peer_address, self.peer_port, peer, qp.qpn, self._psn, self._param
        )
        with self._table.lock:
            self._connection = self._table.new_connection(self, peer, self._notice)
            self._connection.connect(fields)
        self._table.timer_started()

    def accept(self, param: ConnParam | None = None) -> None:
        """Bring the queue pair up and accept the peer's request; ESTABLISHED follows.

        Raises `VerbsError`, `CmError` ECONNRESET when the peer is lost meanwhile.
        """
        qp, request, connection = self._need_qp(), self._request, self._connection
        if request is None or connection is None:
            raise CmError(errno.EINVAL, "accept without a connection request")
        self._param = param or ConnParam()
        self._bring_up(qp, request, connection.peer, request["path_mtu"])
        fields = reply_fields(self._table.port.guid, qp.qpn, self._psn, self._param)
        with self._table.lock:
            if qp.state is QpState.ERR:
                raise CmError(errno.ECONNRESET, "the peer was lost while it was accepted")
            connection.accept(fields)
        self._table.timer_started()

    def reject(
        self, private_data: bytes = b"", reason: RejectReason = RejectReason.CONSUMER_DEFINED
    ) -> None:
        """Refuse a connection request; the peer gets REJECTED with the reason as status."""
        with self._table.lock:
            if self._connection is None:
                raise CmError(errno.EINVAL, "reject without a connection request")
            self._connection.reject(reason, private_data)

    def disconnect(self) -> None:
        """Put the queue pair into error, which flushes it, and disconnect; DISCONNECTED follows."""
        if self.qp is not None:
            self.qp.modify(QpAttr(state=QpState.ERR))
        with self._table.lock:
            if self._connection is not None:
                self._connection.disconnect()
        self._table.timer_started()

    def device_removed(self) -> None:
        """Report that the device is lost; to be called under the manager's lock."""
        self._tell(EventType.DEVICE_REMOVAL)

    @property
    def connected(self) -> bool:
        """True while a DISCONNECTED event is still to come."""
        connection = self._connection
        return connection is not None and connection.state in (
            State.ESTABLISHED,
            State.REP_SENT,
            State.DREQ_SENT,
        )

    def destroy(self) -> None:
        """Leave the peer and the manager; no event follows and the queue pair stays."""
        with self._table.lock:
            if self._destroyed:
                return
            self._destroyed = True
            if self._connection is not None:
                self._connection.abandon()
            self._table.forget(self)
        if self._owns_events:
            self.events.close()

    # What follows is for the manager, under its lock.

    def child(self, request: Message, peer: Peer) -> CmId | None:
        """Return a listener's new connection; None when the request is not for its address."""
        # The path that a REQ describes is that of both directions (core/cm.c: cm_req_handler).
        peer = replace(peer, traffic_class=request["primary_traffic_class"])
        child = CmId(self._table, self._resolver, self._way_to, self.events)
        connection = self._table.new_connection(child, peer, child._notice)
        connection.requested(request)
        child._connection, child._request, child._listener = connection, request, self
        child.peer = peer
        reason = RejectReason.UNSUPPORTED
        try:
            addresses = parse_ip_header(request.raw("private_data"))
            if request["path_mtu"] not in MTU_BYTES:
                reason = RejectReason.INVALID_MTU
                raise MalformedMessage(f"there is no path MTU {request['path_mtu']}")
        except MalformedMessage:
            connection.reject(reason)
            self._table.forget(child)
            return None
        child.address, child.port = addresses.destination, self.port
        child.peer_address, child.peer_port = addresses.source, addresses.port
        child._tell(EventType.CONNECT_REQUEST, param=request_param(request))
        return child

    def handle(self, message: Message) -> None:
        """Take a message from the peer."""
        if self._connection is not None:
            self._connection.handle(message)

    def expire(self, now: float) -> None:
        """Serve the connection's deadline when it has passed."""
        deadline = self.deadline
        if self._connection is not None and deadline is not None and deadline <= now:
            self._connection.expire()

    def drop_if_stale(self, qpn: int, peer: Peer) -> None:
        """End this connection if it is to queue pair `qpn`, for which the peer asks anew."""
        connection = self._connection
        if (
            connection is not None
            and connection.state in (State.ESTABLISHED, State.REP_SENT)
            and connection.remote_qpn == qpn
            and connection.peer.gid == peer.gid
        ):
            connection.peer_lost()

    def peer_lost(self) -> None:
        """End a connection whose peer is lost."""
        if self._connection is not None:
            self._connection.peer_lost()

    def old_connection_over(self, qpn: int, peer: Peer) -> None:
        """Note that the peer ended an older connection with this side's queue pair `qpn`."""
        connection = self._connection
        if (
            connection is not None
            and connection.peer.gid == peer.gid
            and self.qp is not None
            and self.qp.qpn == qpn
        ):
            connection.old_connection_over()

    def _notice(self, notice: Notice) -> None:
        """Move the queue pair to the connection's new state, then report to the user."""
        if notice.type is EventType.CONNECT_RESPONSE and notice.message is not None:
            self._connected(notice.message)
            return
        if notice.type is EventType.TIMEWAIT_EXIT and not self._destroyed:
            self._table.forget(self)
        data = notice.message.raw("private_data") if notice.message else b""
        self._tell(notice.type, notice.status, data)

    def _connected(self, reply: Message) -> None:
        """Go through RTR, RTS, RTU and ESTABLISHED after the REP on the active side."""
        qp, connection = self._need_qp(), self._connection
        if connection is None:
            return
        try:
            self._bring_up(qp, reply, connection.peer, MTU_1024)
        except (OSError, VerbsError):
            connection.reject(RejectReason.NO_QP)
            self._tell(EventType.CONNECT_ERROR, -errno.EIO)
            return
        connection.ready()
        self._tell(EventType.ESTABLISHED, 0, reply.raw("private_data"))

    def _bring_up(self, qp: QueuePair, message: Message, peer: Peer, mtu: int) -> None:
        qp.modify(rtr_of(message, self._param, self._psn, self._way_to(peer), mtu))
        qp.modify(rts_of(message, self._param))

    def _need_qp(self) -> QueuePair:
        if self.qp is None:
            raise CmError(errno.EINVAL, "no queue pair attached to the connection identifier")
        return self.qp

    def _tell(
        self, kind: EventType, status: int = 0, data: bytes = b"", param: ConnParam | None = None
    ) -> None:
        """Queue an event, unless the identifier is gone."""
        if self._destroyed:
            return
        param = param or ConnParam(data)
        self.events.put(CmEvent(kind, self, status, param.private_data, self._listener, param))
