"""What a message takes on its link: how many packets, and all their bytes.

Bytes are counted as ports count them: from the Ethernet header or the LRH to the ICRC, without the
check sum of the link.
"""

from __future__ import annotations

from typing import Final

from bluebridge.device import pieces
from bluebridge.device.fabric.addresses import LID_SIZE
from bluebridge.device.fabric.messages import Datagram, Frames, Message, Request, Response, Route
from bluebridge.device.layout.ib.link import LRH_SIZE
from bluebridge.device.layout.net.ethernet import HEADER_SIZE, MIN_FRAME, NO_VLAN, TAG_SIZE
from bluebridge.device.layout.net.ip import IPV4, IPV4_MAPPED, UDP
from bluebridge.device.layout.net.roce import (
    BTH_SIZE,
    GRH_SIZE,
    HEADERS,
    ICRC_SIZE,
    NO_GID,
    XRC_ETH,
    BthOpcode,
    Op,
)
from bluebridge.device.packets.segmentation import opcode_of
from bluebridge.device.packets.transport import TransportPacket

_EXTENDED: Final = {
    int(opcode): sum(header.size for header in headers) for opcode, headers in HEADERS.items()
}
"""Bytes of the extended headers of a packet, by opcode."""
_PLAIN: Final = {Op.MASKED_COMPARE_SWAP: Op.COMPARE_SWAP, Op.MASKED_FETCH_ADD: Op.FETCH_ADD}
"""Masked atomics have no standard packets: they are shown, and counted, as the plain ones."""
_SINGLE: Final = {
    int(op): _EXTENDED[
        BthOpcode.RC_READ_REQUEST if op is Op.READ else opcode_of(_PLAIN.get(op, op), 0, 1)
    ]
    for op in Op
}
"""Bytes of the extended headers of a request of one packet, by `Op`."""
_PAYLOADS: Final = tuple(op for op in Op if op < Op.READ)
_BEGINS: Final = {int(op): _EXTENDED[opcode_of(op, 0, 2)] for op in _PAYLOADS}
_ENDS: Final = {int(op): _EXTENDED[opcode_of(op, 1, 2)] for op in _PAYLOADS}
"""The same of the first and of the last packet of several."""
_ACK: Final = _EXTENDED[BthOpcode.RC_ACK]
_ATOMIC_ACK: Final = _EXTENDED[BthOpcode.RC_ATOMIC_ACK]
_DATA: Final = _EXTENDED[BthOpcode.RC_READ_RESPONSE_ONLY]
"""Of the first and of the last packet that answers a READ, and of the only one."""
_DATAGRAM: Final = _EXTENDED[BthOpcode.UD_SEND_ONLY]
_DATAGRAM_IMMEDIATE: Final = _EXTENDED[BthOpcode.UD_SEND_ONLY_IMM]


def size_of(message: Message) -> tuple[int, int]:
    """Return packets and bytes of a message.

    Some messages about a part of a long one stand for no packet: a request for data that was asked
    for already, the answer to a part that others follow.
    """
    if isinstance(message, Request):
        return size_of_request(message)
    if isinstance(message, Response):
        return size_of_response(message)
    if isinstance(message, Datagram):
        extended = _DATAGRAM if message.immediate is None else _DATAGRAM_IMMEDIATE
        return 1, _bytes(message.route, 1, extended, len(message.payload))
    if isinstance(message, Frames):
        sizes = [len(frame) for train in message.trains for frame in train.frames]
        return len(sizes), sum(sizes)
    return 0, 0


def size_of_packet(route: Route, packet: TransportPacket) -> tuple[int, int]:
    """Return packets and bytes of a packet of a connection, or of a run."""
    extended, count = _EXTENDED[packet.opcode + packet.service], 1 + len(packet.more)
    return count, count * _bytes(route, 1, extended, len(packet.payload))


def size_of_request(message: Request) -> tuple[int, int]:
    """Return packets and bytes of a request; see `size_of` for parts that stand for none."""
    op, part = message.op, message.part
    packets, length, extended = message.packets, message.length, 0
    if op >= Op.READ:
        if part is not None and not part.begins:
            return 0, 0
        packets, length, extended = 1, 0, _SINGLE[op]
    else:
        first = part is None or not part.offset
        last = part is None or part.last
        if packets == 1 and first and last:
            extended = _SINGLE[op]
        else:
            extended = (_BEGINS[op] if first else 0) + (_ENDS[op] if last else 0)
    if message.srqn is not None:
        extended += packets * XRC_ETH.size
    return packets, _bytes(message.route, packets, extended, length)


def size_of_response(message: Response) -> tuple[int, int]:
    """Return packets and bytes of an answer; see `size_of` for parts that stand for none."""
    part, packets = message.part, message.packets
    if not message.read:
        if part is not None and not part.last and not message.syndrome:
            return 0, 0
        extended = _ACK if message.atomic_original is None else _ATOMIC_ACK
        return 1, _bytes(message.route, 1, extended, 0)
    first = part is None or part.begins
    last = part is None or part.last
    extended = _DATA * (1 if packets == 1 and first and last else first + last)
    return packets, _bytes(message.route, packets, extended, pieces.size(message.payload))


def _bytes(route: Route, packets: int, extended: int, length: int) -> int:
    """Return the bytes of packets with `length` bytes of payload; only the last one is padded."""
    before = route.overhead or _measure(route)
    total = packets * (before + BTH_SIZE + ICRC_SIZE) + extended + length + (-length & 3)
    return total if total >= MIN_FRAME or len(route.dmac) == LID_SIZE else MIN_FRAME


def _measure(route: Route) -> int:
    """Return the bytes in front of the BTH on this route, which keeps them."""
    if len(route.dmac) == LID_SIZE:
        size = LRH_SIZE + (GRH_SIZE if route.dgid != NO_GID else 0)
    else:
        size = HEADER_SIZE + (TAG_SIZE if route.vlan != NO_VLAN else 0)
        if route.roce == 1:
            size += GRH_SIZE
        else:
            over_ipv4 = route.sgid.startswith(IPV4_MAPPED) and route.dgid.startswith(IPV4_MAPPED)
            size += (IPV4.size if over_ipv4 else GRH_SIZE) + UDP.size
    route.overhead = size
    return size
