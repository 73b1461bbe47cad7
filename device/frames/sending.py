"""Completes frames that an adapter sends: checksums, VLAN tags, large sends cut to segments.

Of a large send (TCP, up to 512 KiB) software gives the headers of the first frame; each frame gets
a copy with its own lengths, IP identification, sequence number, flags and checksums. Linux
`en_tx.c: mlx4_en_xmit`.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from bluebridge.device.frames.frame import (
    CHECKSUM_OFFSET,
    HEADER_BYTES,
    IPV4_CHECKSUM,
    IPV4_HEADER,
    IPV6_HEADER,
    ONES,
    TCP,
    UDP,
    FrameHeaders,
    checksum_of,
    ipv6_payload,
    network_of,
    ones_sum,
)
from bluebridge.device.layout.net.ethernet import ETHERTYPE_IPV4, ETHERTYPE_IPV6, HEADER_SIZE
from bluebridge.device.layout.net.ip import IPOIB_HEADER_SIZE

ADDRESSES: Final = 12
IP_CHECKSUM: Final = 1
L4_CHECKSUM: Final = 2
ALL_CHECKSUMS: Final = IP_CHECKSUM | L4_CHECKSUM
"""Checksums that the adapter is to compute."""

FIN: Final = 1
PSH: Final = 8
CWR: Final = 128
LAST_ONLY: Final = FIN | PSH
_TCP_SEQUENCE: Final = 4
_TCP_OFFSET: Final = 12
_TCP_FLAGS: Final = 13
_TCP_CHECKSUM: Final = 16
_IPV4_LENGTH: Final = 2
_IPV4_ID: Final = 4
_IPV4_PROTOCOL: Final = 9
_IPV6_LENGTH: Final = 4
_U16: Final = Struct(">H")
_U32: Final = Struct(">I")
_LENGTH_ID: Final = Struct(">HH")


def tagged(frame: bytes, kind: int, tag: int) -> bytes:
    """Return the frame with a VLAN tag of Ethertype `kind` inserted, unchanged if `kind` is 0."""
    if not kind:
        return frame
    return frame[:ADDRESSES] + kind.to_bytes(2, "big") + tag.to_bytes(2, "big") + frame[ADDRESSES:]


def with_checksums(
    packet: bytes, wanted: int, link_header: int = HEADER_SIZE
) -> tuple[bytes, bool]:
    """Return a packet with the checksums that are `wanted`, and whether all are right.

    Of datagrams these are those of IB_SEND_IP_CSUM (Linux `ib/qp.c: mlx4_ib_post_send`).
    """
    image = bytearray(packet)
    headers = FrameHeaders(image, link_header)
    if wanted & IP_CHECKSUM:
        fill_ip_checksum(image, headers)
    if wanted & L4_CHECKSUM:
        fill_l4_checksum(image, headers)
    return bytes(image), wanted == ALL_CHECKSUMS and headers.whole


def fill_ip_checksum(frame: bytearray, headers: FrameHeaders) -> None:
    """Compute the checksum of an IPv4 header; other frames stay as they are."""
    if headers.version == 4:
        field = headers.network + IPV4_CHECKSUM
        frame[field : field + 2] = b"\0\0"
        value = checksum_of(ones_sum(frame[headers.network : headers.transport]) or ONES)
        frame[field : field + 2] = value.to_bytes(2, "big")


def fill_l4_checksum(frame: bytearray, headers: FrameHeaders) -> None:
    """Compute the checksum of TCP or UDP over IPv4 or IPv6; fragments stay as they are.

    Whatever software left in the field (the sum of the pseudo header) is replaced.
    """
    if not headers.whole:
        return
    field = headers.transport + CHECKSUM_OFFSET[headers.protocol]
    frame[field : field + 2] = b"\0\0"
    total = ones_sum(frame[headers.transport : headers.end]) + headers.pseudo_sum(frame)
    value = checksum_of(total)
    if headers.protocol == UDP and not value:
        value = ONES
    frame[field : field + 2] = value.to_bytes(2, "big")


class SegmentError(ValueError):
    """The headers of a large send do not permit to cut it into frames."""


class LargeSendHeaders:
    """The headers of a large send, taken apart once.

    Raises `SegmentError` unless they are Ethernet and VLAN tags or (`ipoib`) the header of IPoIB,
    IPv4 or IPv6, and TCP to the end.
    """

    __slots__ = ("_ip_sum", "_network", "_tcp", "_tcp_sum", "_template", "_v4", "first_id", "size")

    def __init__(self, header: bytes, *, ipoib: bool = False) -> None:
        self._template = template = bytearray(header)
        self.size = len(header)
        link_header = IPOIB_HEADER_SIZE if ipoib else HEADER_SIZE
        if len(header) < link_header:
            raise SegmentError(f"{len(header)} bytes of headers")
        self._network, kind = network_of(header, link_header)
        self._v4 = kind == ETHERTYPE_IPV4
        if self._v4:
            self._tcp = self._begin_ipv4(template)
        elif kind == ETHERTYPE_IPV6:
            self.first_id, self._ip_sum = 0, 0
            self._tcp = self._begin_ipv6(header)
        else:
            raise SegmentError(f"ethertype {kind:#06x} cannot be cut into segments")
        tcp = self._tcp
        if tcp + HEADER_BYTES[TCP] > self.size or tcp + (header[tcp + _TCP_OFFSET] >> 4) * 4 != (
            self.size
        ):
            raise SegmentError("the headers do not end with a TCP header")
        _U16.pack_into(template, tcp + _TCP_CHECKSUM, 0)
        # everything but length, sequence number and flags: those are added per frame
        self._tcp_sum = (
            ones_sum(template[tcp:])
            + ones_sum(self._addresses())
            + TCP
            - _U32.unpack_from(template, tcp + _TCP_SEQUENCE)[0]
            - template[tcp + _TCP_FLAGS]
        )

    def _begin_ipv4(self, template: bytearray) -> int:
        start = self._network
        if start + IPV4_HEADER > self.size or template[start] >> 4 != 4:
            raise SegmentError("no IPv4 header")
        header = (template[start] & 15) * 4
        if header < IPV4_HEADER or template[start + _IPV4_PROTOCOL] != TCP:
            raise SegmentError("only TCP can be cut into segments")
        self.first_id = _U16.unpack_from(template, start + _IPV4_ID)[0]
        _LENGTH_ID.pack_into(template, start + _IPV4_LENGTH, 0, 0)
        _U16.pack_into(template, start + IPV4_CHECKSUM, 0)
        self._ip_sum = ones_sum(template[start : start + header])
        return start + header

    def _begin_ipv6(self, header: bytes) -> int:
        start = self._network
        if start + IPV6_HEADER > self.size or header[start] >> 4 != 6:
            raise SegmentError("no IPv6 header")
        protocol, position = ipv6_payload(header, start)
        if protocol != TCP:
            raise SegmentError("only TCP can be cut into segments")
        return position

    def _addresses(self) -> bytes:
        start = self._network
        if self._v4:
            return bytes(self._template[start + 12 : start + 20])
        return bytes(self._template[start + 8 : start + 40])

    def cut(self, payload: bytes, mss: int) -> list[bytes]:
        """Return the frames that carry `payload`, `mss` bytes each at most; one if it is empty."""
        template, network, tcp = self._template, self._network, self._tcp
        (sequence,) = _U32.unpack_from(template, tcp + _TCP_SEQUENCE)
        flags, identification = template[tcp + _TCP_FLAGS], self.first_id
        tcp_size, ip_size = self.size - tcp, self.size - network
        header = bytearray(template)
        frames: list[bytes] = []
        total, start = len(payload), 0
        while True:
            part = payload[start : start + mss]
            size, end = len(part), start + len(part)
            own = flags if end >= total else flags & ~LAST_ONLY
            if start:
                own &= ~CWR
            if self._v4:
                length = ip_size + size
                _LENGTH_ID.pack_into(header, network + _IPV4_LENGTH, length, identification)
                value = checksum_of(self._ip_sum + length + identification)
                _U16.pack_into(header, network + IPV4_CHECKSUM, value)
                identification = (identification + 1) & ONES
            else:
                _U16.pack_into(header, network + _IPV6_LENGTH, ip_size - IPV6_HEADER + size)
            _U32.pack_into(header, tcp + _TCP_SEQUENCE, sequence)
            header[tcp + _TCP_FLAGS] = own
            value = checksum_of(self._tcp_sum + tcp_size + size + sequence + own + ones_sum(part))
            _U16.pack_into(header, tcp + _TCP_CHECKSUM, value)
            frames.append(bytes(header) + part)
            if end >= total:
                return frames
            sequence, start = (sequence + size) & 0xFFFFFFFF, end
