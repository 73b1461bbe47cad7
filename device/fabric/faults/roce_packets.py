"""RoCE packets in the frames that fault rules meet: what rules match, their damage and changes.

Check sums are right again after a change, so that only what a field says is wrong.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final

from bluebridge.device.fabric.messages import Frames, Message
from bluebridge.device.layout.fields import Struct
from bluebridge.device.layout.net.ethernet import ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_ROCE
from bluebridge.device.layout.net.ip import (
    CONGESTION_EXPERIENCED,
    IPV4,
    IPV6,
    UDP,
    ones_complement_sum,
)
from bluebridge.device.layout.net.roce import (
    BTH,
    BTH_SIZE,
    GRH,
    HEADERS,
    ICRC_SIZE,
    PSN_MASK,
    SERVICE_MASK,
    BthOpcode,
    packet_name,
)
from bluebridge.device.packets import crc, forms
from bluebridge.device.packets.reader import carrier_of, transport_at

NETWORKS: Final = {ETHERTYPE_IPV4: IPV4, ETHERTYPE_IPV6: IPV6, ETHERTYPE_ROCE: GRH}
"""The network headers of packets, by Ethertype."""
DATAGRAMS: Final = (BthOpcode.UD_SEND_ONLY, BthOpcode.UD_SEND_ONLY_IMM)
_ANSWERS: Final = range(BthOpcode.RC_READ_RESPONSE_FIRST, BthOpcode.RC_ATOMIC_ACK + 1)
_BEGINS: Final = frozenset(
    int(code)
    for code in BthOpcode
    if not code.name.endswith(("_MIDDLE", "_LAST", "_LAST_IMM", "_LAST_INV"))
)
_UDP_CHECKSUM: Final = 2
"""Bytes from the UDP checksum to the BTH."""

_CLASSES: Final = {IPV4.name: "tos", IPV6.name: "traffic_class"}
"""The field of a network header whose low two bits are for ECN; RoCE v1 has none."""
_EXTENDED: Final = {header.name: header for headers in HEADERS.values() for header in headers}
_TABLES: Final = {
    table.name.lower(): table for table in (IPV4, IPV6, GRH, UDP, BTH, *_EXTENDED.values())
}


@dataclass(frozen=True, slots=True)
class RocePacket:
    """A packet by what rules ask for; its payload is `frame` from `start` to `end`.

    Its network header, of the Ethertype `kind`, begins at `network`, its BTH at `transport`.
    """

    frame: bytes
    network: int
    transport: int
    opcode: int
    target_qpn: int
    psn: int
    start: int
    end: int

    @property
    def kind(self) -> int:
        """The Ethertype, one of `NETWORKS`."""
        return _kind(self.frame, self.network)

    @property
    def name(self) -> str:
        """The operation, such as WRITE_MIDDLE, whatever the service."""
        return packet_name(self.opcode)

    @property
    def connected(self) -> bool:
        """True for a packet of RC, UC or XRC."""
        return self.opcode not in DATAGRAMS and self.opcode != BthOpcode.CNP

    @property
    def answers(self) -> bool:
        """True for what a responder sends."""
        return self.connected and self.opcode & ~SERVICE_MASK in _ANSWERS

    @property
    def begins(self) -> bool:
        """True for the first or only packet of a message."""
        return self.opcode & ~SERVICE_MASK in _BEGINS

    @property
    def payload(self) -> bytes:
        """The bytes that it brings."""
        return self.frame[self.start : self.end]


def _kind(frame: bytes, network: int) -> int:
    return int.from_bytes(frame[network - 2 : network], "big")


def packet_of(message: Message) -> RocePacket | None:
    """Return the packet that a message is on a wire of packets, None for anything else."""
    if not isinstance(message, Frames) or len(message.trains) != 1:
        return None
    frames = message.trains[0].frames
    at = transport_at(frames[0]) if len(frames) == 1 else 0
    return _read(frames[0], at) if at else None


def _read(frame: bytes, at: int) -> RocePacket | None:
    if len(frame) < at + BTH_SIZE + ICRC_SIZE:
        return None
    opcode, flags, _, target, word = forms.BTH.unpack_from(frame, at)
    headers = HEADERS.get(opcode)
    if headers is None:
        return None
    start = at + BTH_SIZE + sum(header.size for header in headers)
    network = at - carrier_of(frame)
    end = _icrc(frame, network, at) - (flags >> 4 & 3)
    if not start <= end <= len(frame):
        return None
    return RocePacket(frame, network, at, opcode, target & PSN_MASK, word & PSN_MASK, start, end)


def _icrc(frame: bytes, network: int, at: int) -> int:
    """Return where the ICRC begins, which the header in front of the BTH says."""
    if _kind(frame, network) == ETHERTYPE_ROCE:
        return at + GRH.get(frame, "payload_length", network) - ICRC_SIZE
    return at - UDP.size + UDP.get(frame, "length", at - UDP.size) - ICRC_SIZE


def damaged(packet: RocePacket, *, hidden: bool) -> bytes:
    """Return the frame with one bit wrong, in its payload if it has any.

    If it is `hidden`, the check sums are right again, so that nobody below the payload can tell.
    """
    frame = bytearray(packet.frame)
    place = packet.start if packet.start < packet.end else packet.start - 1
    frame[place] ^= 1
    return mended(packet, frame) if hidden else bytes(frame)


def mended(packet: RocePacket, frame: bytearray) -> bytes:
    """Return `frame`, in which values of a packet were changed, with the check sums they ask for.

    Those are the ICRC and that of IPv4; a UDP checksum becomes 0, which stands for none. Where they
    are is what the packet said before.
    """
    at = packet.transport
    icrc = _icrc(packet.frame, packet.network, at)
    if packet.kind == ETHERTYPE_ROCE:
        before = crc.before_roce_v1(bytes(frame[packet.network : at]))
    else:
        ip, udp = slice(packet.network, at - UDP.size), slice(at - UDP.size, at)
        frame[at - _UDP_CHECKSUM : at] = bytes(_UDP_CHECKSUM)
        if packet.kind == ETHERTYPE_IPV4:
            IPV4.set(frame, "checksum", 0, ip.start)
            IPV4.set(frame, "checksum", ones_complement_sum(bytes(frame[ip])), ip.start)
        before = crc.before_roce_v2(bytes(frame[ip]), bytes(frame[udp]))
    frame[icrc : icrc + ICRC_SIZE] = crc.invariant(before, bytes(frame[at:icrc]))
    return bytes(frame)


class Change(ABC):
    """A change of packets; one that a rule makes does not keep the next rules from them."""

    @abstractmethod
    def fits(self, packet: RocePacket) -> bool:
        """Return True if a packet has what is changed."""

    @abstractmethod
    def of(self, packet: RocePacket) -> bytes:
        """Return the frame of a packet that fits, changed."""


class Mark(Change):
    """Congestion experienced, in a packet whose sender says that it knows of ECN (RFC 3168)."""

    def fits(self, packet: RocePacket) -> bool:
        """Return True for a packet of RoCE v2 that may be marked and is not."""
        table = NETWORKS[packet.kind]
        field = _CLASSES.get(table.name)
        if field is None:
            return False
        codepoint = table.get(packet.frame, field, packet.network) & CONGESTION_EXPERIENCED
        return codepoint not in (0, CONGESTION_EXPERIENCED)

    def of(self, packet: RocePacket) -> bytes:
        """Return the frame, marked."""
        table, place = NETWORKS[packet.kind], packet.network
        field, frame = _CLASSES[table.name], bytearray(packet.frame)
        table.set(frame, field, table.get(frame, field, place) | CONGESTION_EXPERIENCED, place)
        return mended(packet, frame)


class Rewrite(Change):
    """Another `value` in a `field` of a header, both as their table calls them."""

    def __init__(self, table: Struct, field: str, value: int) -> None:
        self._table = table
        self._field = field
        self._value = value

    def fits(self, packet: RocePacket) -> bool:
        """Return True for a packet that has the header."""
        return self._table.name in _places(packet)

    def of(self, packet: RocePacket) -> bytes:
        """Return the frame with the value in the field."""
        frame = bytearray(packet.frame)
        self._table.set(frame, self._field, self._value, _places(packet)[self._table.name])
        return mended(packet, frame)


def rewrite_of(words: str) -> Rewrite:
    """Return the change that `HEADER.FIELD=VALUE` asks for; raises `ValueError` that says why not.

    Check sums are no fields here, since they follow from all others, and neither are addresses.
    """
    name, _, text = words.partition("=")
    header, _, field = name.partition(".")
    table = _TABLES.get(header)
    if table is None:
        raise ValueError(f"{words!r}: write HEADER.FIELD=VALUE, with one of {', '.join(_TABLES)}")
    fields = [each.name for each in table if not each.raw and each.name != "checksum"]
    if field not in fields:
        raise ValueError(
            f"{words!r}: {header}: choose from {', '.join(fields) or 'another header'}"
        )
    most = table.field(field).mask
    try:
        value = int(text, 0)
    except ValueError:
        value = -1
    if not 0 <= value <= most:
        raise ValueError(f"{words!r}: write a value from 0 to {most:#x}")
    return Rewrite(table, field, value)


def _places(packet: RocePacket) -> dict[str, int]:
    """Return where the headers of a packet begin in its frame, by name."""
    table, at = NETWORKS[packet.kind], packet.transport
    places = {table.name: packet.network, BTH.name: at}
    if table is not GRH:
        places[UDP.name] = at - UDP.size
    at += BTH.size
    for header in HEADERS[packet.opcode]:
        places[header.name] = at
        at += header.size
    return places
