"""Reads RoCE packets off a wire: RoCE v1, RoCE v2 over IPv4 and IPv6.

A frame is what anybody may have sent. One that is not a whole packet in every byte is refused with
a reason, in the order in which an adapter would notice: carrier, lengths, opcode, ICRC.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from bluebridge.device.layout.net.ethernet import (
    ETHERTYPE_IPV4,
    ETHERTYPE_IPV6,
    ETHERTYPE_ROCE,
    ETHERTYPE_VLAN,
    HEADER_SIZE,
    NO_VLAN,
)
from bluebridge.device.layout.net.ip import (
    IPV4,
    IPV6,
    PROTOCOL_UDP,
    ROCE_PORT,
    UDP,
    ones_complement_sum,
)
from bluebridge.device.layout.net.roce import (
    BTH_SIZE,
    GRH_NEXT_BTH,
    HEADERS,
    ICRC_SIZE,
    PSN_MASK,
    SERVICE_MASK,
    WITHOUT_PAYLOAD,
    BthOpcode,
    ipv4_gid,
)
from bluebridge.device.packets import crc, forms
from bluebridge.device.packets.message import PacketError

BTH_WORD: Final = BTH_SIZE - 4
"""Where in the BTH the word with A bit and PSN is."""
_TAG_SIZE: Final = 4
_TAGGED: Final = ETHERTYPE_VLAN.to_bytes(2, "big")
_PROTOCOL_IPV4: Final = 9
_PROTOCOL_IPV6: Final = 6
_PORT_OFFSET: Final = 2
_PORT: Final = ROCE_PORT.to_bytes(2, "big")
_FRAGMENT: Final = 0x3FFF  # more fragments, offset
_HEADS: Final = {
    ETHERTYPE_IPV4.to_bytes(2, "big"): HEADER_SIZE + IPV4.size + UDP.size,
    ETHERTYPE_ROCE.to_bytes(2, "big"): HEADER_SIZE + IPV6.size,
}
"""Bytes in front of the BTH of frames without a tag, by Ethertype."""
MOST_HEADS: Final = 1024
"""Most beginnings of frames that a reader remembers."""
_HEADERS_SIZE: Final = {
    opcode: BTH_SIZE + sum(header.size for header in headers) for opcode, headers in HEADERS.items()
}

_MIDDLES: Final = (
    int(BthOpcode.RC_SEND_MIDDLE),
    int(BthOpcode.RC_WRITE_MIDDLE),
    int(BthOpcode.RC_READ_RESPONSE_MIDDLE),
)

MOST_BYTES: Final = HEADER_SIZE + _TAG_SIZE + IPV6.size + 0xFFFF
"""Greatest length of a frame that a packet can be in: network headers have 16 bits for theirs."""


class Reason(StrEnum):
    """Why a frame is refused."""

    CARRIER = "it is no RoCE packet"
    NETWORK = "its network header is wrong"
    LENGTH = "its lengths do not agree"
    CHECKSUM = "its UDP checksum is wrong"
    VERSION = "its transport version is not 0"
    OPCODE = "no packet has its opcode"
    ICRC = "its ICRC is wrong"


class Refused(PacketError):
    """A frame is no packet that an adapter takes."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.value)
        self.reason = reason


class Head:
    """The bytes that all packets of one path have in front of their BTH, read once.

    The BTH is at `at`, `length` bytes are from there to the end of the ICRC, `before` is the CRC up
    to there. `route` is for who takes packets of that path.
    """

    def __init__(self, packet: WirePacket, at: int, length: int, before: int) -> None:
        self.packet = packet
        self.at = at
        self.length = length
        self.before = before
        self.route: object = None


class WirePacket:
    """A packet as it arrived: addresses, words of the BTH, and where in `frame` the rest is.

    `form` is the version of RoCE. Extended headers begin at `extended`, the payload is `frame`
    from `start` to `end`, without padding. `network` are the bytes of GRH, IPv4 or IPv6 header.
    `head` is there if a reader has met the same bytes in front of a BTH before.
    """

    def __init__(self, frame: bytes) -> None:
        self.frame = frame
        self.destination = frame[:6]
        self.source = frame[6:12]
        self.tag = NO_VLAN
        self.form = 2
        self.network = b""
        self.sgid = self.dgid = b""
        self.traffic_class = self.flow_label = self.hop_limit = 0
        self.source_port = 0
        self.opcode = self.pkey = self.target_qpn = self.psn = 0
        self.solicited = self.migrated = self.ack = False
        self.extended = self.start = self.end = 0
        self.head: Head | None = None

    @property
    def payload(self) -> memoryview:
        """The bytes that the packet brings."""
        return memoryview(self.frame)[self.start : self.end]

    def headers(self) -> dict[str, dict[str, int]]:
        """Return the values of its extended headers, by the names of their tables."""
        found, position = dict[str, dict[str, int]](), self.extended
        for header in HEADERS[self.opcode]:
            values = header.unpack(self.frame, position)
            found[header.name] = {
                name: value for name, value in values.items() if isinstance(value, int)
            }
            position += header.size
        return found


def transport_at(frame: bytes) -> int:
    """Return where the BTH of a RoCE frame begins, 0 for any other frame; nothing is checked."""
    carrier = carrier_of(frame)
    return _network_at(frame) + carrier if carrier else 0


def carrier_of(frame: bytes) -> int:
    """Return the bytes from the network header of a RoCE frame to its BTH, 0 for other frames."""
    at = _network_at(frame)
    kind = int.from_bytes(frame[at - 2 : at], "big")
    if kind == ETHERTYPE_ROCE:
        return IPV6.size
    if kind == ETHERTYPE_IPV4 and len(frame) > at + IPV4.size:
        size, protocol = (frame[at] & 0x0F) * 4, frame[at + _PROTOCOL_IPV4]
    elif kind == ETHERTYPE_IPV6 and len(frame) > at + IPV6.size:
        size, protocol = IPV6.size, frame[at + _PROTOCOL_IPV6]
    else:
        return 0
    port = frame[at + size + _PORT_OFFSET : at + size + _PORT_OFFSET + 2]
    return size + UDP.size if protocol == PROTOCOL_UDP and port == _PORT else 0


def _network_at(frame: bytes) -> int:
    return HEADER_SIZE + _TAG_SIZE * (frame[12:14] == _TAGGED)


def read_packet(frame: bytes, *, whole: bool = True) -> WirePacket:
    """Return the packet in an Ethernet frame without FCS; raises `Refused`.

    The check sums of a frame that is not `whole`, whose end a capture has not kept, are not looked
    at.
    """
    packet = WirePacket(frame)
    kind, position = int.from_bytes(frame[12:14], "big"), HEADER_SIZE
    if kind == ETHERTYPE_VLAN:
        packet.tag = int.from_bytes(frame[14:16], "big")
        kind, position = int.from_bytes(frame[16:18], "big"), position + _TAG_SIZE
    if kind == ETHERTYPE_IPV4:
        bth, length, before = _read_ipv4(packet, position, whole)
    elif kind in (ETHERTYPE_IPV6, ETHERTYPE_ROCE):
        bth, length, before = _read_ipv6(packet, position, kind == ETHERTYPE_ROCE, whole)
    else:
        raise Refused(Reason.CARRIER)
    _read_transport(packet, bth, bth + length - ICRC_SIZE, before, whole)
    return packet


def _read_ipv4(packet: WirePacket, at: int, whole: bool) -> tuple[int, int, int]:
    """Return where the BTH is, the bytes from there to the ICRC's end, the CRC up to there."""
    network = packet.network = packet.frame[at : at + IPV4.size]
    if len(network) < IPV4.size:
        raise Refused(Reason.LENGTH)
    kind, tos, total, _, fragment, ttl, protocol, _, source, destination = forms.IPV4.unpack(
        network
    )
    if protocol != PROTOCOL_UDP:
        raise Refused(Reason.CARRIER)
    if kind != forms.PLAIN_IPV4 or fragment & _FRAGMENT or ones_complement_sum(network):
        raise Refused(Reason.NETWORK)
    packet.traffic_class, packet.hop_limit = tos, ttl
    packet.sgid, packet.dgid = ipv4_gid(source), ipv4_gid(destination)
    return _read_udp(packet, at + IPV4.size, total - IPV4.size, source + destination, whole)


def _read_ipv6(packet: WirePacket, at: int, plain: bool, whole: bool) -> tuple[int, int, int]:
    """Read an IPv6 header, or a GRH, which is `plain`: the BTH follows without UDP."""
    network = packet.network = packet.frame[at : at + IPV6.size]
    if len(network) < IPV6.size:
        raise Refused(Reason.LENGTH)
    word, length, following, hop_limit, sgid, dgid = forms.GRH.unpack(network)
    if following != (GRH_NEXT_BTH if plain else PROTOCOL_UDP):
        raise Refused(Reason.CARRIER)
    if word >> 28 != forms.IP_VERSION:
        raise Refused(Reason.NETWORK)
    packet.traffic_class, packet.flow_label = word >> 20 & 0xFF, word & 0xFFFFF
    packet.hop_limit, packet.sgid, packet.dgid = hop_limit, sgid, dgid
    if not plain:
        return _read_udp(packet, at + IPV6.size, length, sgid + dgid, whole)
    packet.form = 1
    return at + IPV6.size, length, crc.before_roce_v1(network)


def _read_udp(
    packet: WirePacket, at: int, length: int, addresses: bytes, whole: bool
) -> tuple[int, int, int]:
    """Read the UDP header; `length` is what the network header says is behind it."""
    frame = packet.frame
    header = frame[at : at + UDP.size]
    if len(header) < UDP.size:
        raise Refused(Reason.LENGTH)
    packet.source_port, port, stated, checksum = forms.UDP.unpack(header)
    if port != ROCE_PORT:
        raise Refused(Reason.CARRIER)
    if stated != length or at + length > len(frame):
        raise Refused(Reason.LENGTH)
    if checksum and whole:
        pseudo = addresses + length.to_bytes(4, "big") + bytes((0, 0, 0, PROTOCOL_UDP))
        if ones_complement_sum(pseudo + frame[at : at + length]):
            raise Refused(Reason.CHECKSUM)
    return at + UDP.size, length - UDP.size, crc.before_roce_v2(packet.network, header)


def _read_transport(packet: WirePacket, at: int, end: int, before: int, whole: bool) -> None:
    """Read the BTH at `at`; the ICRC is at `end`, `before` is the CRC up to the BTH."""
    frame = packet.frame
    if end - at < BTH_SIZE or end + ICRC_SIZE > len(frame) or (end - at) & 3:
        raise Refused(Reason.LENGTH)
    opcode, flags, pkey, target, word = forms.BTH.unpack_from(frame, at)
    if flags & 0x0F:
        raise Refused(Reason.VERSION)
    size = _HEADERS_SIZE.get(opcode)
    if size is None:
        raise Refused(Reason.OPCODE)
    packet.extended, packet.start = at + BTH_SIZE, at + size
    packet.end = end - (flags >> 4 & 3)
    if packet.end < packet.start or (opcode in WITHOUT_PAYLOAD and packet.start != end):
        raise Refused(Reason.LENGTH)
    if whole:
        payload = memoryview(frame)[packet.start : end]
        if crc.invariant(before, frame[at : at + size], payload) != frame[end : end + ICRC_SIZE]:
            raise Refused(Reason.ICRC)
    packet.opcode, packet.pkey = opcode, pkey
    packet.target_qpn, packet.psn = target & PSN_MASK, word & PSN_MASK
    packet.solicited, packet.migrated = bool(flags & 0x80), bool(flags & 0x40)
    packet.ack = bool(word >> 31)


def _copy_carrier(packet: WirePacket, to: WirePacket) -> None:
    """Copy what was in front of a BTH."""
    to.form, to.network = packet.form, packet.network
    to.sgid, to.dgid = packet.sgid, packet.dgid
    to.traffic_class, to.flow_label = packet.traffic_class, packet.flow_label
    to.hop_limit, to.source_port = packet.hop_limit, packet.source_port


def _read_known(frame: bytes, head: Head) -> WirePacket:
    """Return the packet in a frame that begins with a head; raises `Refused`."""
    packet = WirePacket(frame)
    _copy_carrier(head.packet, packet)
    packet.head = head
    _read_transport(packet, head.at, head.at + head.length - ICRC_SIZE, head.before, True)
    return packet


class PacketReader:
    """Reads what a port takes from a wire; `refused` counts, by reason, what it did not take."""

    def __init__(self) -> None:
        self.refused: dict[Reason, int] = dict.fromkeys(Reason, 0)
        self._known: dict[bytes, Head] = {}

    def read(self, frame: bytes) -> WirePacket | None:
        """Return the packet in a frame, or None after counting why there is none."""
        size = _HEADS.get(frame[12:14], 0)
        try:
            head = self._known.get(frame[:size]) if size else None
            if head is not None and head.at + head.length <= len(frame):
                return _read_known(frame, head)
            packet = read_packet(frame)
        except Refused as refusal:
            self.refused[refusal.reason] += 1
            return None
        if packet.extended == size + BTH_SIZE and (
            packet.form == 1 or not (any(frame[40:42]) or any(frame[18:20]))
        ):
            self._learn(packet, size)
        return packet

    def follow(self, packet: WirePacket, frames: list[bytes], at: int) -> list[memoryview]:
        """Return the payloads of packets that go on with another one, in the frames from `at` on.

        They are in the middle of the same message: each has the same headers but the next PSN. One
        that asks for an acknowledgement is the last, and `packet` has its request then.
        """
        found: list[memoryview] = []
        head, frame = packet.head, packet.frame
        if head is None or packet.ack or packet.opcode & ~SERVICE_MASK not in _MIDDLES:
            return found
        word_at, start, size = head.at + BTH_WORD, packet.start, len(frame)
        check, after = head.at + head.length - ICRC_SIZE, word_at + forms.WORD.size
        alike, extended, psn = frame[:word_at], frame[after:start], packet.psn
        while at < len(frames):
            frame, at, psn = frames[at], at + 1, (psn + 1) & PSN_MASK
            if len(frame) != size or frame[:word_at] != alike or frame[after:start] != extended:
                break
            (word,) = forms.WORD.unpack_from(frame, word_at)
            view = memoryview(frame)
            icrc = crc.invariant(head.before, frame[head.at : start], view[start:check])
            if word & PSN_MASK != psn or icrc != frame[check : check + ICRC_SIZE]:
                break
            found.append(view[start : packet.end])
            if word >> 31:
                packet.ack = True
                break
        return found

    def _learn(self, packet: WirePacket, size: int) -> None:
        """Remember what is in front of a BTH, unless a check sum of all bytes is in it."""
        frame, network = packet.frame, packet.network
        if packet.form == 1:
            length = int.from_bytes(network[4:6], "big")
            before = crc.before_roce_v1(network)
        else:
            length = int.from_bytes(network[2:4], "big") - IPV4.size - UDP.size
            before = crc.before_roce_v2(network, frame[size - UDP.size : size])
        if len(self._known) == MOST_HEADS:
            self._known.clear()
        like = WirePacket(frame[:size])
        _copy_carrier(packet, like)
        self._known[like.frame] = packet.head = Head(like, size, length, before)
