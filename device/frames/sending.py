"""Completes frames that an adapter sends: checksums, VLAN tags, large sends cut to segments.

Of a large send (TCP or, on some adapters, UDP; up to 512 KiB) software gives the headers of the
first frame; each frame gets a copy with its own lengths, IP identification, sequence number, flags
and checksums. Linux `en_tx.c: mlx4_en_xmit`, `core/en_tx.c: mlx5e_sq_xmit_wqe`.
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
_UDP_LENGTH: Final = 4
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
    IPv4 or IPv6, and TCP or, with `udp`, also UDP to the end.
    """

    __slots__ = (
        *("_ip_sum", "_network", "_sum", "_template", "_transport", "_udp", "_v4"),
        *("first_id", "size"),
    )

    def __init__(self, header: bytes, *, ipoib: bool = False, udp: bool = False) -> None:
        self._template = template = bytearray(header)
        self.size = len(header)
        link_header = IPOIB_HEADER_SIZE if ipoib else HEADER_SIZE
        if len(header) < link_header:
            raise SegmentError(f"{len(header)} bytes of headers")
        self._network, kind = network_of(header, link_header)
        self._v4 = kind == ETHERTYPE_IPV4
        if self._v4:
            protocol, start = self._begin_ipv4(template)
        elif kind == ETHERTYPE_IPV6:
            self.first_id, self._ip_sum = 0, 0
            protocol, start = self._begin_ipv6(header)
        else:
            raise SegmentError(f"ethertype {kind:#06x} cannot be cut into segments")
        if protocol != TCP and not (udp and protocol == UDP):
            raise SegmentError(f"only TCP{' and UDP' * udp} can be cut into segments")
        self._transport, self._udp = start, protocol == UDP
        if self._udp:
            self._begin_udp(template, start)
        else:
            self._begin_tcp(template, start)
        self._sum += ones_sum(self._addresses()) + protocol

    def _begin_tcp(self, template: bytearray, start: int) -> None:
        room = self.size - start
        if room < HEADER_BYTES[TCP] or room != (template[start + _TCP_OFFSET] >> 4) * 4:
            raise SegmentError("the headers do not end with a TCP header")
        _U16.pack_into(template, start + CHECKSUM_OFFSET[TCP], 0)
        # everything but length, sequence number and flags: those are added per frame
        self._sum = (
            ones_sum(template[start:])
            - _U32.unpack_from(template, start + _TCP_SEQUENCE)[0]
            - template[start + _TCP_FLAGS]
        )

    def _begin_udp(self, template: bytearray, start: int) -> None:
        if start + HEADER_BYTES[UDP] != self.size:
            raise SegmentError("the headers do not end with a UDP header")
        _U16.pack_into(template, start + _UDP_LENGTH, 0)
        _U16.pack_into(template, start + CHECKSUM_OFFSET[UDP], 0)
        self._sum = ones_sum(template[start:])  # without the length, which stands there, too

    def _begin_ipv4(self, template: bytearray) -> tuple[int, int]:
        """Return the protocol behind the IPv4 header, and where that begins."""
        start = self._network
        if start + IPV4_HEADER > self.size or template[start] >> 4 != 4:
            raise SegmentError("no IPv4 header")
        header = (template[start] & 15) * 4
        if not IPV4_HEADER <= header <= self.size - start:
            raise SegmentError("no IPv4 header")
        self.first_id = _U16.unpack_from(template, start + _IPV4_ID)[0]
        _LENGTH_ID.pack_into(template, start + _IPV4_LENGTH, 0, 0)
        _U16.pack_into(template, start + IPV4_CHECKSUM, 0)
        self._ip_sum = ones_sum(template[start : start + header])
        return template[start + _IPV4_PROTOCOL], start + header

    def _begin_ipv6(self, header: bytes) -> tuple[int, int]:
        """Return the protocol behind the IPv6 header and its options, and where that begins."""
        start = self._network
        if start + IPV6_HEADER > self.size or header[start] >> 4 != 6:
            raise SegmentError("no IPv6 header")
        return ipv6_payload(header, start)

    def _addresses(self) -> bytes:
        start = self._network
        if self._v4:
            return bytes(self._template[start + 12 : start + 20])
        return bytes(self._template[start + 8 : start + 40])

    def cut(self, payload: bytes, mss: int) -> list[bytes]:
        """Return the frames that carry `payload`, `mss` bytes each at most; one if it is empty.

        Raises `SegmentError` for frames whose length the IP header has no room for.
        """
        header = bytearray(self._template)
        frames: list[bytes] = []
        total, start, number = len(payload), 0, 0
        if self.size - self._network + min(mss, total) > ONES:
            raise SegmentError(f"{mss} bytes behind {self.size} of headers")
        while True:
            part = payload[start : start + mss]
            end = start + len(part)
            self._fill_network(header, number, len(part))
            if self._udp:
                self._fill_udp(header, part)
            else:
                self._fill_tcp(header, part, start, last=end >= total)
            frames.append(bytes(header) + part)
            if end >= total:
                return frames
            start, number = end, number + 1

    def _fill_network(self, header: bytearray, number: int, size: int) -> None:
        """Store what the IP header of frame `number` has of its own, `size` bytes behind it."""
        network, length = self._network, self.size - self._network + size
        if not self._v4:
            _U16.pack_into(header, network + _IPV6_LENGTH, length - IPV6_HEADER)
            return
        identification = (self.first_id + number) & ONES
        _LENGTH_ID.pack_into(header, network + _IPV4_LENGTH, length, identification)
        value = checksum_of(self._ip_sum + length + identification)
        _U16.pack_into(header, network + IPV4_CHECKSUM, value)

    def _fill_tcp(self, header: bytearray, part: bytes, start: int, *, last: bool) -> None:
        """Store what the TCP header of a frame has of its own; `part` begins at byte `start`."""
        template, tcp = self._template, self._transport
        sequence = (_U32.unpack_from(template, tcp + _TCP_SEQUENCE)[0] + start) & 0xFFFFFFFF
        flags = template[tcp + _TCP_FLAGS]
        own = flags if last else flags & ~LAST_ONLY
        if start:
            own &= ~CWR
        _U32.pack_into(header, tcp + _TCP_SEQUENCE, sequence)
        header[tcp + _TCP_FLAGS] = own
        size = self.size - tcp + len(part)
        value = checksum_of(self._sum + size + sequence + own + ones_sum(part))
        _U16.pack_into(header, tcp + CHECKSUM_OFFSET[TCP], value)

    def _fill_udp(self, header: bytearray, part: bytes) -> None:
        """Store what the UDP header of the frame with `part` has of its own."""
        udp = self._transport
        size = self.size - udp + len(part)
        _U16.pack_into(header, udp + _UDP_LENGTH, size)
        value = checksum_of(self._sum + 2 * size + ones_sum(part)) or ONES  # 0 would say: none
        _U16.pack_into(header, udp + CHECKSUM_OFFSET[UDP], value)
