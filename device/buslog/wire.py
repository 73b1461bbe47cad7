"""The record of a fabric message in the bus log.

In a record of `Kind.WIRE`, `what` is the kind of message. `obj` is the target's QP number,
`address` the remote address of a request or the value an atomic found, `length` the bytes of the
message. The data of an Ethernet frame are the frame. Those of other messages are `HEAD`, `ROUTE`,
`UDP_PORT` if the form says so, `TARGET_SRQ` if the request is one of XRC, `OPERANDS` if it is an
atomic, and as much of the payload as was captured.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import Final

from bluebridge.device.buslog.reader import Event, LogError
from bluebridge.device.buslog.record import HEAD
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.net.roce import ATOMICS, Op
from bluebridge.device.packets.message import INFINIBAND, XRC, WireMessage
from bluebridge.device.packets.reader import (
    MOST_BYTES,
    Refused,
    WirePacket,
    read_packet,
    transport_at,
)

ROUTE: Final = Struct("<6s6s16s16sHHIBBBB")
"""Source and destination address, GIDs, VLAN, P_Key, flow label, traffic class, hop limit, service
level, form: RoCE version, 0 for InfiniBand, whose addresses are LIDs of two bytes; `HAS_UDP_PORT`
is added where the sender has chosen a source port."""

HAS_UDP_PORT: Final = 0x80
UDP_PORT: Final = Struct("<H")
"""Source port of UDP; where it is missing, it is computed from the numbers of the queue pairs."""

PREFIX_BYTES: Final = HEAD.size + ROUTE.size
"""Bytes of `HEAD` and `ROUTE`, with which every message but a frame begins."""

TARGET_SRQ: Final = Struct("<I")
"""Number of the shared receive queue that an XRC request is for."""

OPERANDS: Final = Struct("<QQQQ")
"""Operands of an atomic: swap or add, compare, and the masks of both."""


def read_message(event: Event) -> WireMessage:
    """Read the message in a record of `Kind.WIRE`; raises `LogError` when it is damaged."""
    message = WireMessage(event.what, event.length, event.data)
    if event.what == What.FRAME:
        return message
    data = event.data
    if len(data) < PREFIX_BYTES:
        raise _damaged(event)
    message.target_qpn, message.address = event.obj, event.address
    (
        message.flags, code, message.syndrome, message.source_qpn,
        message.psn, message.packets, message.key, message.immediate,
    ) = HEAD.unpack_from(data)  # fmt: skip
    start = PREFIX_BYTES
    if _route(message, data):
        if len(data) < start + UDP_PORT.size:
            raise _damaged(event)
        (message.udp_port,) = UDP_PORT.unpack_from(data, start)
        start += UDP_PORT.size
    if event.what == What.REQUEST:
        try:
            message.op = Op(code)
            if message.flags & XRC:
                (message.srqn,) = TARGET_SRQ.unpack_from(data, start)
                start += TARGET_SRQ.size
            if message.op in ATOMICS:
                message.atomic = OPERANDS.unpack_from(data, start)
                start += OPERANDS.size
        except (ValueError, StructError) as error:
            raise _damaged(event) from error
    message.payload = data[start:]
    return message


def packet_of(event: Event) -> WirePacket | None:
    """Return the RoCE packet in a frame that left a port; None for other frames and events.

    Zeros stand for bytes that were not kept, so check sums are not looked at.
    """
    if event.what is not What.FRAME or event.kind is not Kind.WIRE or event.length > MOST_BYTES:
        return None
    if not transport_at(event.data):
        return None
    try:
        return read_packet(event.data.ljust(event.length, b"\0"), whole=False)
    except Refused:
        return None


def _route(message: WireMessage, data: bytes) -> bool:
    """Read the route of a message; returns True if a source port of UDP follows."""
    (
        message.source, message.destination, message.sgid, message.dgid,
        message.vlan, message.pkey, message.flow_label, message.traffic_class,
        message.hop_limit, message.service_level, form,
    ) = ROUTE.unpack_from(data, HEAD.size)  # fmt: skip
    message.form = form & ~HAS_UDP_PORT
    if message.form == INFINIBAND:
        message.source, message.destination = message.source[:2], message.destination[:2]
    return bool(form & HAS_UDP_PORT)


def _damaged(event: Event) -> LogError:
    return LogError(f"the message recorded at {event.time:.6f} s is damaged")
