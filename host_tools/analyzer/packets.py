"""RoCE packets of a log, of a network of packets and of Soft-RoCE: in words and by headers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from bluebridge.device.layout.fields import Struct
from bluebridge.device.layout.net.ethernet import ETHERNET, ETHERTYPE_IPV4, ETHERTYPE_ROCE
from bluebridge.device.layout.net.ip import IPV4, IPV6, UDP
from bluebridge.device.layout.net.roce import (
    ANSWERS,
    BTH,
    CONGESTION_SERVICE,
    GRH,
    HEADERS,
    RELIABLE_SERVICE,
    SERVICE_MASK,
    UNRELIABLE_SERVICE,
    XRC_SERVICE,
    BthOpcode,
    Syndrome,
    packet_name,
)
from bluebridge.device.packets.reader import WirePacket, carrier_of
from bluebridge.host_tools.analyzer.devices.model import named

DATAGRAMS: Final = (BthOpcode.UD_SEND_ONLY, BthOpcode.UD_SEND_ONLY_IMM)
_SERVICES: Final = {
    RELIABLE_SERVICE: "RC ",
    UNRELIABLE_SERVICE: "UC ",
    XRC_SERVICE: "XRC ",
    CONGESTION_SERVICE: "",
}
_PLACE: Final = re.compile(r"_(?:FIRST|MIDDLE|LAST|ONLY|REQUEST)(?=_|$)")
"""What the name of a packet says of its place in the message."""
_OWN_WORDS: Final = frozenset(("syndrome", "source_qpn", "reserved"))
"""Fields of extended headers that the words say in another way."""


def is_answer(packet: WirePacket) -> bool:
    """Return True for what a responder sends."""
    connected = packet.opcode not in DATAGRAMS and packet.opcode != BthOpcode.CNP
    return connected and packet.opcode & ~SERVICE_MASK in ANSWERS


def operation(packet: WirePacket) -> tuple[str, ...]:
    """Return the name of a packet's operation, such as SEND_ONLY_IMM, and the work's: SEND_IMM."""
    name = packet_name(packet.opcode)
    return (name,) if is_answer(packet) else (name, _PLACE.sub("", name))


def syndrome_of(packet: WirePacket) -> int | None:
    """Return the syndrome of an answer, 0 for an acknowledgement; None for other packets."""
    found = packet.headers().get("AETH")
    if found is None:
        return None
    return found["syndrome"] if found["syndrome"] >> 5 else int(Syndrome.ACK)


def words(packet: WirePacket) -> str:
    """Describe a packet in one line: operation, queue pair, PSN, bytes, extended headers."""
    headers, name = packet.headers(), packet_name(packet.opcode)
    service = _SERVICES.get(packet.opcode & SERVICE_MASK, "")
    if packet.opcode in DATAGRAMS:
        head = f"UD {name} qpn={headers['DETH']['source_qpn']:#x}"
    elif packet.opcode == BthOpcode.CNP:
        head = name
    elif is_answer(packet):
        head = name if name != "ACK" else syndrome_words(syndrome_of(packet) or 0)
    else:
        head = f"{service}{name}"
    more = "".join(
        f" {field}={value}" if field in ("msn", "length") else f" {field}={value:#x}"
        for values in headers.values()
        for field, value in values.items()
        if field not in _OWN_WORDS
    )
    size = packet.end - packet.start
    return f"{head} > qpn={packet.target_qpn:#x} psn={packet.psn:#x} bytes={size}{more}"


def syndrome_words(value: int) -> str:
    """Return the name of a syndrome, with the timer code of an RNR NAK."""
    if value & 0x60 == Syndrome.RNR_NAK:
        return f"RNR_NAK timer={value & 0x1F}"
    return named(Syndrome, value)


def parts(packet: WirePacket) -> Iterator[tuple[Struct, int]]:
    """Yield the headers of a packet, each with the byte of the frame where it begins."""
    frame, at = packet.frame, packet.extended - BTH.size
    network = at - carrier_of(frame)
    kind = int.from_bytes(frame[network - 2 : network], "big")
    yield ETHERNET, 0
    if kind == ETHERTYPE_ROCE:
        yield GRH, network
    else:
        yield (IPV4 if kind == ETHERTYPE_IPV4 else IPV6), network
        yield UDP, at - UDP.size
    yield BTH, at
    position = packet.extended
    for header in HEADERS[packet.opcode]:
        yield header, position
        position += header.size
