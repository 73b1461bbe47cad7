"""The headers of an Ethernet frame: their places, checksums, and fields as one number for rules."""

from __future__ import annotations

from struct import Struct
from typing import Final

from bluebridge.device.frames import rules
from bluebridge.device.layout.net.ethernet import (
    ETHERTYPE_IPV4,
    ETHERTYPE_IPV6,
    ETHERTYPE_SERVICE_VLAN,
    ETHERTYPE_VLAN,
    HEADER_SIZE,
    VLAN_TAG_TYPES,
)

TCP: Final = 6
UDP: Final = 17
CHECKSUM_OFFSET: Final = {TCP: 16, UDP: 6}
HEADER_BYTES: Final = {TCP: 20, UDP: 8}
IPV4_HEADER: Final = 20
IPV6_HEADER: Final = 40
IPV4_CHECKSUM: Final = 10
ONES: Final = 0xFFFF

_TYPE_OFFSET: Final = 12
_TAG: Final = 4
_TAGS: Final = (ETHERTYPE_VLAN, ETHERTYPE_SERVICE_VLAN)
MORE_FRAGMENTS_OR_OFFSET: Final = 0x3FFF
_IPV6_OPTIONS: Final = (0, 43, 60)  # hop by hop, routing, destination
_IPV6_FRAGMENT: Final = 44
_FOLD_BYTES: Final = 512

_U16: Final = Struct(">H").unpack_from

Frame = bytes | bytearray | memoryview

VXLAN_PORT: Final = 4789
VXLAN_HEADER: Final = 8
_UDP_HEADER: Final = 8
_ADDRESS: Final = 6
_TYPE: Final = 12
_FLAGS: Final = {TCP: rules.TCP, UDP: rules.UDP}


def ones_sum(data: Frame) -> int:
    """Return a number congruent to the one's complement sum of `data` modulo 65535.

    A number modulo 65535 is the one's complement sum of its 16-bit digits (RFC 1071). Odd data
    is padded with a zero byte.
    """
    number = int.from_bytes(data, "big")
    length = len(data)
    if length & 1:
        number <<= 8
        length += 1
    if length > _FOLD_BYTES:  # adding halves is cheaper than dividing them
        shift = (length >> 1 & ~1) << 3
        number = (number >> shift) + (number & ((1 << shift) - 1))
        shift = (length >> 2 & ~1) << 3
        number = (number >> shift) + (number & ((1 << shift) - 1))
    return number % ONES


def checksum_of(total: int) -> int:
    """Return the Internet checksum of a sum of digits; zero only if all of them were."""
    return ~(total % ONES or (ONES if total else 0)) & ONES


def network_of(frame: Frame, link_header: int) -> tuple[int, int]:
    """Return the offset of the network header behind VLAN tags (IPoIB: 4), and its Ethertype."""
    position, length = link_header, len(frame)
    (kind,) = _U16(frame, _TYPE_OFFSET if link_header == HEADER_SIZE else 0)
    while kind in _TAGS and position + _TAG <= length:
        (kind,) = _U16(frame, position + 2)
        position += _TAG
    return position, kind


def ipv6_payload(frame: Frame, start: int) -> tuple[int, int]:
    """Return the protocol behind the options of an IPv6 header at `start`, and its offset."""
    protocol, begin, length = frame[start + 6], start + IPV6_HEADER, len(frame)
    while protocol in _IPV6_OPTIONS and begin + 8 <= length:
        protocol, begin = frame[begin], begin + 8 * (frame[begin + 1] + 1)
    return protocol, begin


class FrameHeaders:
    """The places of the headers of one frame, and the values of some of their fields.

    `network` is the offset of the IP header, `version` 4, 6, or 0 for anything else; `protocol`
    the one behind it and `transport` its offset. `end` is where the IP packet ends: what follows
    is padding. `fragment` says that this is only a part of a datagram, `options` that the IP
    header has some, `whole` that TCP or UDP is there with a complete header.
    """

    __slots__ = (
        "end", "fragment", "network", "options", "protocol", "transport", "version", "whole",
    )  # fmt: skip

    def __init__(self, frame: Frame, link_header: int = HEADER_SIZE) -> None:
        """Read a frame, or a packet of IPoIB, for which `link_header` is 4 (bytes)."""
        self.version = self.protocol = 0
        self.fragment = self.options = self.whole = False
        self.network = position = link_header
        self.transport = self.end = len(frame)
        length = len(frame)
        if length < link_header:
            return
        self.network, kind = network_of(frame, link_header)
        position = self.network
        if kind == ETHERTYPE_IPV4:
            self._ipv4(frame, position, length)
        elif kind == ETHERTYPE_IPV6:
            self._ipv6(frame, position, length)

    def _ipv4(self, frame: Frame, start: int, length: int) -> None:
        if length < start + IPV4_HEADER or frame[start] >> 4 != 4:
            return
        header = (frame[start] & 15) * 4
        total = _U16(frame, start + 2)[0]
        if not IPV4_HEADER <= header <= total <= length - start:
            return
        self.version = 4
        self.options = header > IPV4_HEADER
        self.transport, self.end = start + header, start + total
        self.protocol = frame[start + 9]
        self.fragment = bool(_U16(frame, start + 6)[0] & MORE_FRAGMENTS_OR_OFFSET)
        self._check_transport()

    def _ipv6(self, frame: Frame, start: int, length: int) -> None:
        if length < start + IPV6_HEADER or frame[start] >> 4 != 6:
            return
        end = start + IPV6_HEADER + _U16(frame, start + 4)[0]
        protocol, begin = ipv6_payload(frame, start)
        self.options = begin > start + IPV6_HEADER
        if not begin <= end <= length:
            return
        self.version = 6
        self.transport, self.end = begin, end
        self.protocol = protocol
        self.fragment = protocol == _IPV6_FRAGMENT
        self._check_transport()

    def _check_transport(self) -> None:
        header = HEADER_BYTES.get(self.protocol)
        self.whole = (
            header is not None and not self.fragment and self.transport + header <= self.end
        )

    def addresses(self, frame: Frame) -> bytes:
        """Return source and destination address of the IP header: 8 or 32 bytes."""
        start = self.network
        if self.version == 4:
            return bytes(frame[start + 12 : start + 20])
        return bytes(frame[start + 8 : start + 40])

    def pseudo_sum(self, frame: Frame) -> int:
        """Return the sum of the pseudo header of TCP or UDP (RFC 793, RFC 8200, 8.1)."""
        size = self.end - self.transport
        return int.from_bytes(self.addresses(frame), "big") + self.protocol + size

    def header_is_good(self, frame: Frame) -> bool:
        """Return True if the checksum of the IPv4 header is right; IPv6 has none."""
        if self.version == 4:
            return not ones_sum(frame[self.network : self.transport])
        return self.version == 6

    def transport_is_good(self, frame: Frame) -> bool:
        """Return True if the checksum of a whole TCP or UDP packet is there and right."""
        if not self.whole:
            return False
        field = self.transport + CHECKSUM_OFFSET[self.protocol]
        if self.protocol == UDP and not any(frame[field : field + 2]):
            return False
        total = ones_sum(frame[self.transport : self.end]) + self.pseudo_sum(frame)
        return not total % ONES

    def partial_sum(self, frame: Frame) -> int:
        """Return the sum of all bytes behind the IP header and of what adapters add to it, 16 bits.

        That is the pseudo header for IPv4, and lengths and addresses for IPv6 (Linux `en_rx.c:
        get_fixed_ipv4_csum, get_fixed_ipv6_csum`).
        """
        if self.version == 4:
            begin, extra = self.transport, self.pseudo_sum(frame)
        else:
            begin = self.network + IPV6_HEADER
            extra = int.from_bytes(self.addresses(frame), "big") + self.end - begin
        return (ones_sum(frame[begin : self.end]) + extra) % ONES or ONES


def number_of(frame: bytes, depth: int) -> int:
    """Return the number of a frame, with the fields that rules of this depth look at."""
    if depth == rules.BY_ADDRESS:
        return int.from_bytes(frame[:_ADDRESS], "big")
    headers = FrameHeaders(frame)
    number = link_number(frame, headers)
    if depth == rules.BY_LINK:
        return number
    number |= transport_number(frame, headers)
    return number | _inner_number(frame, headers) if depth == rules.BY_INNER else number


def link_number(frame: Frame, headers: FrameHeaders) -> int:
    """Return addresses, the Ethertype behind the tags and the outermost tag, as one number."""
    number = (
        int.from_bytes(frame[:_ADDRESS], "big")
        | int.from_bytes(frame[_ADDRESS:_TYPE], "big") << rules.SMAC
        | int.from_bytes(frame[headers.network - 2 : headers.network], "big") << rules.ETHERTYPE
    )
    if frame[_TYPE:HEADER_SIZE] in VLAN_TAG_TYPES:
        number |= int.from_bytes(frame[HEADER_SIZE : HEADER_SIZE + 2], "big") << rules.VLAN
    return number


def transport_number(frame: Frame, headers: FrameHeaders) -> int:
    """Return IPv4 addresses and, where their header is whole, TCP or UDP ports, as one number."""
    number = 0
    if headers.version == 4:
        addresses = headers.addresses(frame)
        number = (
            rules.IPV4
            | int.from_bytes(addresses[:4], "big") << rules.SOURCE
            | int.from_bytes(addresses[4:], "big") << rules.DESTINATION
        )
    if headers.whole:
        start = headers.transport
        number |= (
            _FLAGS[headers.protocol]
            | int.from_bytes(frame[start : start + 2], "big") << rules.SOURCE_PORT
            | int.from_bytes(frame[start + 2 : start + 4], "big") << rules.DESTINATION_PORT
        )
    return number


def _inner_number(frame: bytes, headers: FrameHeaders) -> int:
    """Return the fields of a VXLAN header and the frame in it (RFC 7348); 0 without VXLAN."""
    start = headers.transport + _UDP_HEADER
    if not headers.whole or headers.protocol != UDP or headers.end < start + VXLAN_HEADER:
        return 0
    if int.from_bytes(frame[start - 6 : start - 4], "big") != VXLAN_PORT:
        return 0
    vni = int.from_bytes(frame[start + 4 : start + 7], "big")
    inner = frame[start + VXLAN_HEADER : headers.end]
    own = FrameHeaders(inner)
    number = link_number(inner, own) | transport_number(inner, own)
    return rules.VXLAN | vni << rules.VNI | number << rules.INNER
