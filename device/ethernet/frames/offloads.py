"""Checksums and VLAN tags that an adapter puts into frames it sends (Linux `mlx4/en_tx.c`)."""

from __future__ import annotations

from typing import Final

from bluebridge.device.ethernet.frames.frame import (
    CHECKSUM_OFFSET,
    IPV4_CHECKSUM,
    ONES,
    UDP,
    FrameHeaders,
    checksum_of,
    ones_complement,
    ones_sum,
)
from bluebridge.device.layout.net.ethernet import HEADER_SIZE

ADDRESSES: Final = 12
IP_CHECKSUM: Final = 1
L4_CHECKSUM: Final = 2
ALL_CHECKSUMS: Final = IP_CHECKSUM | L4_CHECKSUM
"""Checksums that the adapter is to compute."""


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
