"""A fabric decorator for one device, which records every message it sends in the bus log once."""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from bluebridge.device import pieces
from bluebridge.device.buslog import wire
from bluebridge.device.buslog.writer import EventLog
from bluebridge.device.fabric.addresses import LID_SIZE
from bluebridge.device.fabric.interface import Fabric, FabricPort
from bluebridge.device.fabric.messages import (
    Datagram,
    Frames,
    Message,
    Payload,
    Request,
    Response,
    Route,
)
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.net.roce import GSI_QPN, Op
from bluebridge.device.packets.message import (
    ATOMIC,
    IMMEDIATE,
    INFINIBAND,
    READ,
    RELIABLE,
    SOLICITED,
    XRC,
)

PAYLOAD_BYTES: Final = 256
"""Least number of payload bytes that are kept: small messages are to be whole in a capture."""
HEADER_BYTES: Final = 128
"""Least number of frame bytes that are kept: headers of TCP over IPv6 with their options."""

_WIRE: Final = int(Kind.WIRE)
_REQUEST: Final = int(What.REQUEST)
_RESPONSE: Final = int(What.RESPONSE)
_DATAGRAM: Final = int(What.DATAGRAM)
_FRAME: Final = int(What.FRAME)
_FIRST_ATOMIC: Final = int(Op.COMPARE_SWAP)


class CapturedFabric:
    """A `Fabric` in front of `fabric` for the ports of `device`: records messages, then sends them.

    What is recorded is what leaves the port, delivered or not, as on a real cable. A message that
    moves in parts is recorded once, with its first part, and acknowledged once, for its last.
    MADs are kept whole, since little else explains a connection; of all else `events.capture`
    bytes, if they are more than the least.
    """

    __slots__ = ("_device", "_down", "_events", "_fabric", "_limit")

    def __init__(self, fabric: Fabric, events: EventLog, device: str) -> None:
        self._fabric = fabric
        self._events = events
        self._device = events.device(device)
        # Ports of switches announce nothing: who is not in here counts as up.
        self._down: set[FabricPort] = set()
        self._limit = max(PAYLOAD_BYTES, events.capture)

    def attach(self, port: FabricPort) -> None:
        """Connect a port to the fabric behind, with its link down."""
        self._fabric.attach(port)

    def detach(self, port: FabricPort) -> None:
        """Disconnect a port; the fabric may announce its link once more while it does so."""
        self._fabric.detach(port)
        self._down.discard(port)

    def announce(self, port: FabricPort, addresses: Set[bytes], *, up: bool) -> None:
        """Note the link state of a port, which sends nothing while it is down, and pass it on."""
        if up:
            self._down.discard(port)
        else:
            self._down.add(port)
        self._fabric.announce(port, addresses, up=up)

    def send(self, source: FabricPort, message: Message) -> int:
        """Record a message, unless the link is down, and send it on with its work number."""
        message.work = self._events.work
        if source not in self._down:
            if isinstance(message, Request):
                self._request(message)
            elif isinstance(message, Response):
                self._response(message)
            elif isinstance(message, Datagram):
                self._datagram(message)
            else:
                self._frames(message)
        return self._fabric.send(source, message)

    def _request(self, message: Request) -> None:
        op, route, payload = message.op, message.route, message.payload
        length, packets, part = message.length, message.packets, message.part
        if part is not None:
            if not part.begins:
                return
            length, packets = part.total - part.offset, part.packets
        before, kept = route.image or _image(route), b""
        flags = RELIABLE if message.reliable else 0
        if message.solicited:
            flags |= SOLICITED
        if message.srqn is not None:
            flags |= XRC
            before += wire.TARGET_SRQ.pack(message.srqn)
        if op >= _FIRST_ATOMIC:
            before += wire.OPERANDS.pack(*message.atomic)
        elif payload:
            view = payload[0]
            one = len(payload) == 1 and view.nbytes <= self._limit
            kept = view.tobytes() if one else _beginning(payload, self._limit)
        self._events.message(
            self._device, _REQUEST, message.target_qpn, message.remote_address, length,
            flags, op, 0, message.source_qpn, message.psn, packets, message.rkey,
            message.immediate, before, kept,
        )  # fmt: skip

    def _response(self, message: Response) -> None:
        route, original, payload = message.route, message.atomic_original, message.payload
        flags, length, kept = RELIABLE, 0, b""
        packets, part = message.packets, message.part
        if part is not None and not (part.begins if message.read else part.last):
            return
        if message.read:
            flags |= READ
        if message.xrc:
            flags |= XRC
        if original is None:
            original = 0
        else:
            flags |= ATOMIC
        if payload:
            length = pieces.size(payload)
            kept = _beginning(payload, self._limit)
            if part is not None:
                length, packets = part.total - part.offset, part.packets
        self._events.message(
            self._device, _RESPONSE, message.target_qpn, original, length,
            flags, 0, message.syndrome, message.source_qpn, message.psn, packets, message.msn, 0,
            route.image or _image(route), kept,
        )  # fmt: skip

    def _datagram(self, message: Datagram) -> None:
        immediate, payload = message.immediate, message.payload
        flags = SOLICITED * message.solicited
        if immediate is None:
            immediate = 0
        else:
            flags |= IMMEDIATE
        limit = len(payload) if message.target_qpn <= GSI_QPN else self._limit
        kept = bytes(payload[:limit])
        self._events.message(
            self._device, _DATAGRAM, message.target_qpn, 0, len(payload),
            flags, 0, 0, message.source_qpn, message.psn, 1, message.qkey, immediate,
            _pack_route(message.route, message.pkey), kept,
        )  # fmt: skip

    def _frames(self, message: Frames) -> None:
        limit = max(HEADER_BYTES, self._events.capture)
        events, device = self._events, self._device
        for train in message.trains:
            for data in train.frames:
                events.keep(device, _WIRE, 0, 0, len(data), bytes(data[:limit]), _FRAME)


def _beginning(views: Payload, limit: int) -> bytes:
    """Return the first bytes of a payload, at most `limit`."""
    kept = b""
    for view in views:
        kept += view[: limit - len(kept)]
        if len(kept) == limit:
            break
    return kept


def _image(route: Route) -> bytes:
    """Return a route as the log keeps it, made once, since a connection's never changes."""
    route.image = _pack_route(route, route.pkey)
    return route.image


def _pack_route(route: Route, pkey: int) -> bytes:
    form = INFINIBAND if len(route.smac) == LID_SIZE else route.roce
    port = b""
    if route.udp_port:
        form, port = form | wire.HAS_UDP_PORT, wire.UDP_PORT.pack(route.udp_port)
    return wire.ROUTE.pack(
        route.smac, route.dmac, route.sgid, route.dgid, route.vlan, pkey, route.flow_label,
        route.traffic_class, route.hop_limit, route.service_level, form,
    ) + port  # fmt: skip
