"""A tap on the cable of one port: every message it sends goes into the bus log, once."""

from __future__ import annotations

import time

from device.buslog import wire
from device.buslog.record import RECORD
from device.buslog.writer import EventLog
from device.fabric.addresses import LID_SIZE
from device.fabric.messages import (
    Datagram,
    Fabric,
    FabricPort,
    Frames,
    Message,
    Op,
    Payload,
    Request,
    Response,
    Route,
)
from device.layout.buslog import Kind, What
from device.layout.net.roce import GSI_QPN

PAYLOAD_BYTES = 256
"""What is kept of a payload at least: small messages are to be whole in a capture."""
HEADER_BYTES = 128
"""What is kept of a frame at least: the headers of TCP over IPv6 with their options."""

_clock = time.monotonic_ns
_head = wire.RECORD_HEAD.pack
_HEAD_SIZE = wire.HEAD.size
_WIRE, _REQUEST, _RESPONSE = int(Kind.WIRE), int(What.REQUEST), int(What.RESPONSE)
_FIRST_ATOMIC = int(Op.COMPARE_SWAP)


class CapturedFabric:
    """A `Fabric` for the port of `device`: records, then hands on.

    What is recorded is what leaves the port, delivered or not, as on a real cable. MADs are kept
    whole, since little else explains a connection; of all else `events.capture` bytes, if they
    are more than the least.
    """

    __slots__ = ("_device", "_events", "_fabric", "_limit")

    def __init__(self, fabric: Fabric, events: EventLog, device: str) -> None:
        self._fabric = fabric
        self._events = events
        self._device = events.device(device)
        self._limit = max(PAYLOAD_BYTES, events.capture)

    def attach(self, port: FabricPort) -> None:
        """Connect a port."""
        self._fabric.attach(port)

    def detach(self, port: FabricPort) -> None:
        """Disconnect a port."""
        self._fabric.detach(port)

    def send(self, source: FabricPort, message: Message) -> None:
        """Record a message, unless the link is down, and deliver it with what it is for."""
        message.work = self._events.work
        if source.link_up:
            if isinstance(message, Request):
                self._request(message)
            elif isinstance(message, Response):
                self._response(message)
            elif isinstance(message, Datagram):
                self._datagram(message)
            else:
                self._frames(message)
        self._fabric.send(source, message)

    def _request(self, message: Request) -> None:
        op, route = message.op, message.route
        data = route.image or _image(route)
        flags = wire.SOLICITED * message.solicited | wire.RELIABLE * message.reliable
        if message.srqn is not None:
            flags |= wire.XRC
            data += wire.TARGET_SRQ.pack(message.srqn)
        if op >= _FIRST_ATOMIC:
            data += wire.OPERANDS.pack(*message.atomic)
        elif message.payload:
            data += _beginning(message.payload, self._limit)
        self._events.wire(
            _head(
                _clock(), self._device, _WIRE, 0, _REQUEST, message.target_qpn,
                message.remote_address, message.length, _HEAD_SIZE + len(data), self._events.work,
                flags, op, 0,
                message.source_qpn, message.psn, message.packets, message.rkey, message.immediate,
            ) + data
        )  # fmt: skip

    def _response(self, message: Response) -> None:
        route, original, payload = message.route, message.atomic_original, message.payload
        flags = wire.RELIABLE | wire.READ * message.read | wire.XRC * message.xrc
        if original is None:
            original = 0
        else:
            flags |= wire.ATOMIC
        data, length = route.image or _image(route), 0
        if payload:
            length = sum(view.nbytes for view in payload)
            data += _beginning(payload, self._limit)
        self._events.wire(
            _head(
                _clock(), self._device, _WIRE, 0, _RESPONSE, message.target_qpn,
                original, length, _HEAD_SIZE + len(data), self._events.work,
                flags, 0, message.syndrome,
                0, message.psn, message.packets, message.msn, 0,
            ) + data
        )  # fmt: skip

    def _datagram(self, message: Datagram) -> None:
        immediate, payload = message.immediate, message.payload
        flags = wire.SOLICITED * message.solicited
        if immediate is None:
            immediate = 0
        else:
            flags |= wire.IMMEDIATE
        limit = len(payload) if message.target_qpn <= GSI_QPN else self._limit
        data = _pack_route(message.route, message.pkey)
        data += payload[:limit]
        self._events.wire(
            _head(
                _clock(), self._device, _WIRE, 0, What.DATAGRAM, message.target_qpn,
                0, len(payload), _HEAD_SIZE + len(data), self._events.work,
                flags, 0, 0,
                message.source_qpn, message.psn, 1, message.qkey, immediate,
            ) + data
        )  # fmt: skip

    def _frames(self, message: Frames) -> None:
        limit, now, device, wire, work = (
            max(HEADER_BYTES, self._events.capture), _clock(), self._device, self._events.wire,
            self._events.work,
        )  # fmt: skip
        for train in message.trains:
            for data in train.frames:
                kept = data[:limit]
                wire(
                    RECORD.pack(
                        now, device, _WIRE, 0, What.FRAME, 0, 0, len(data), len(kept), work
                    )
                    + kept
                )


def _beginning(views: Payload, limit: int) -> bytes:
    """The first bytes of a payload, at most `limit`."""
    data = bytes(views[0][:limit])
    for view in views[1:]:
        if len(data) >= limit:
            break
        data += view[: limit - len(data)]
    return data


def _image(route: Route) -> bytes:
    """A route as the log keeps it, made once: a connection's never changes."""
    route.image = _pack_route(route, route.pkey)
    return route.image


def _pack_route(route: Route, pkey: int) -> bytes:
    return wire.ROUTE.pack(
        route.smac,
        route.dmac,
        route.sgid,
        route.dgid,
        route.vlan,
        pkey,
        route.flow_label,
        route.traffic_class,
        route.hop_limit,
        route.service_level,
        wire.INFINIBAND if len(route.smac) == LID_SIZE else route.roce,
    )
