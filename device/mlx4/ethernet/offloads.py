"""What the adapter does to frames on their way out: checksums and VLAN tags (mlx4/en_tx.c)."""

from __future__ import annotations

from typing import Final

from bluebridge.device.layout.mlx4.wqe import (
    INSERT_CVLAN,
    INSERT_SVLAN,
    IP_CSUM,
    TCP_UDP_CSUM,
)
from bluebridge.device.layout.net.ethernet import (
    ETHERTYPE_SERVICE_VLAN,
    ETHERTYPE_VLAN,
    HEADER_SIZE,
)
from bluebridge.device.mlx4.ethernet.frame import (
    CHECKSUM_OFFSET,
    IPV4_CHECKSUM,
    ONES,
    UDP,
    FrameHeaders,
    checksum_of,
    ones_complement,
    ones_sum,
)

ADDRESSES: Final = 12
CHECKSUM_FLAGS: Final = IP_CSUM | TCP_UDP_CSUM
_TAG_TYPES: Final = {
    INSERT_CVLAN: ETHERTYPE_VLAN.to_bytes(2, "big"),
    INSERT_SVLAN: ETHERTYPE_SERVICE_VLAN.to_bytes(2, "big"),
}


def tagged(frame: bytes, word1: int) -> bytes:
    """The frame with the tag that dword 1 of its work queue entry asks for, if any."""
    kind = _TAG_TYPES.get(word1 >> 8 & (INSERT_CVLAN | INSERT_SVLAN))
    if kind is None:
        return frame
    return frame[:ADDRESSES] + kind + (word1 >> 16).to_bytes(2, "big") + frame[ADDRESSES:]


def with_checksums(packet: bytes, flags: int, link_header: int = HEADER_SIZE) -> tuple[bytes, bool]:
    """A packet with the checksums that the control segment asks for, and whether all are right.

    Of datagrams these are the flags of IB_SEND_IP_CSUM (Linux `ib/qp.c: mlx4_ib_post_send`).
    """
    image = bytearray(packet)
    headers = FrameHeaders(image, link_header)
    if flags & IP_CSUM:
        fill_ip_checksum(image, headers)
    if flags & TCP_UDP_CSUM:
        fill_l4_checksum(image, headers)
    return bytes(image), flags & CHECKSUM_FLAGS == CHECKSUM_FLAGS and headers.whole


def fill_ip_checksum(frame: bytearray, headers: FrameHeaders) -> None:
    """Compute the checksum of an IPv4 header; other frames stay as they are."""
    if headers.version == 4:
        field = headers.network + IPV4_CHECKSUM
        frame[field : field + 2] = b"\0\0"
        value = ones_complement(frame[headers.network : headers.transport])
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
