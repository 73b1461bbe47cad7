"""What the adapter does to frames on their way out: checksums and VLAN tags (mlx4/en_tx.c)."""

from __future__ import annotations

from device.layout.net.ethernet import (
    ETHERTYPE_IPV4,
    ETHERTYPE_IPV6,
    ETHERTYPE_VLAN,
    HEADER_SIZE,
)

TCP, UDP = 6, 17
_CHECKSUM_OFFSET = {TCP: 16, UDP: 6}
_IPV4_HEADER = 20
_IPV6_HEADER = 40
_IPV4_CHECKSUM = 10
_MORE_FRAGMENTS_OR_OFFSET = 0x3FFF
_IPV6_OPTIONS = (0, 43, 60)  # hop by hop, routing, destination
_ONES = 0xFFFF


def ones_complement(data: bytes | bytearray, seed: int = 0) -> int:
    """The Internet checksum (RFC 1071) of `data`, started with the sum `seed`.

    A number modulo 65535 is the one's complement sum of its 16-bit digits.
    """
    if len(data) & 1:
        data = bytes(data) + b"\0"
    total = int.from_bytes(data, "big") + seed
    remainder = total % _ONES
    return ~(remainder or (_ONES if total else 0)) & _ONES


def insert_vlan(frame: bytearray, tag: int) -> None:
    """Put an 802.1Q tag behind the addresses."""
    frame[12:12] = ETHERTYPE_VLAN.to_bytes(2, "big") + (tag & 0xFFFF).to_bytes(2, "big")


def _network(frame: bytearray) -> tuple[int, int]:
    """Ethertype of the payload and the offset of its header, behind VLAN tags."""
    position = HEADER_SIZE
    kind = int.from_bytes(frame[12:14], "big")
    while kind == ETHERTYPE_VLAN and position + 4 <= len(frame):
        kind = int.from_bytes(frame[position + 2 : position + 4], "big")
        position += 4
    return kind, position


def _ipv4_header(frame: bytearray, start: int) -> int:
    """Length of the IPv4 header at `start`; 0 when there is none."""
    if len(frame) < start + _IPV4_HEADER or frame[start] >> 4 != 4:
        return 0
    length = (frame[start] & 15) * 4
    return length if _IPV4_HEADER <= length <= len(frame) - start else 0


def fill_ip_checksum(frame: bytearray) -> None:
    """Compute the checksum of an IPv4 header; other frames stay as they are."""
    kind, start = _network(frame)
    length = _ipv4_header(frame, start) if kind == ETHERTYPE_IPV4 else 0
    if length:
        field = start + _IPV4_CHECKSUM
        frame[field : field + 2] = b"\0\0"
        frame[field : field + 2] = ones_complement(frame[start : start + length]).to_bytes(2, "big")


def fill_l4_checksum(frame: bytearray) -> None:
    """Compute the checksum of TCP or UDP over IPv4 or IPv6; fragments stay as they are.

    Whatever software left in the field (the sum of the pseudo header) is replaced.
    """
    kind, start = _network(frame)
    if kind == ETHERTYPE_IPV4:
        found = _find_ipv4(frame, start)
    elif kind == ETHERTYPE_IPV6:
        found = _find_ipv6(frame, start)
    else:
        return
    if found is None:
        return
    protocol, addresses, begin, end = found
    field = begin + _CHECKSUM_OFFSET[protocol]
    if field + 2 > end:
        return
    frame[field : field + 2] = b"\0\0"
    pseudo = int.from_bytes(addresses, "big") + protocol + (end - begin)
    value = ones_complement(frame[begin:end], pseudo)
    if protocol == UDP and not value:
        value = _ONES
    frame[field : field + 2] = value.to_bytes(2, "big")


def _find_ipv4(frame: bytearray, start: int) -> tuple[int, bytes, int, int] | None:
    length = _ipv4_header(frame, start)
    protocol = frame[start + 9] if length else 0
    if protocol not in _CHECKSUM_OFFSET:
        return None
    if int.from_bytes(frame[start + 6 : start + 8], "big") & _MORE_FRAGMENTS_OR_OFFSET:
        return None
    end = start + int.from_bytes(frame[start + 2 : start + 4], "big")
    if not start + length <= end <= len(frame):
        return None
    return protocol, bytes(frame[start + 12 : start + 20]), start + length, end


def _find_ipv6(frame: bytearray, start: int) -> tuple[int, bytes, int, int] | None:
    if len(frame) < start + _IPV6_HEADER:
        return None
    end = start + _IPV6_HEADER + int.from_bytes(frame[start + 4 : start + 6], "big")
    protocol, begin = frame[start + 6], start + _IPV6_HEADER
    while protocol in _IPV6_OPTIONS and begin + 8 <= len(frame):
        protocol, begin = frame[begin], begin + 8 * (frame[begin + 1] + 1)
    if protocol not in _CHECKSUM_OFFSET or not begin <= end <= len(frame):
        return None
    return protocol, bytes(frame[start + 8 : start + 40]), begin, end
