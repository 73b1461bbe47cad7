"""What the adapter does with IP packets of UD queue pairs: checksums and large sends of IPoIB.

Linux `ib/qp.c: build_lso_seg, mlx4_ib_post_send` (the flags of IB_SEND_IP_CSUM), `ib/cq.c:
mlx4_ib_ipoib_csum_ok`.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from bluebridge.device.fabric.messages import Datagram
from bluebridge.device.hca.ethernet.frame import FrameHeaders
from bluebridge.device.hca.ethernet.offloads import fill_ip_checksum, fill_l4_checksum
from bluebridge.device.hca.ethernet.verdicts import findings
from bluebridge.device.layout.mlx4.wqe import IP_CSUM, TCP_UDP_CSUM
from bluebridge.device.layout.net.ipoib import HEADER_SIZE

CHECKSUM_FLAGS: Final = IP_CSUM | TCP_UDP_CSUM
_FINDINGS: Final = Struct(">HxB")
"""Behind the sender's LID in a completion: status bits, and how far the L4 checksum was checked."""


def with_checksums(packet: bytes, flags: int) -> tuple[bytes, bool]:
    """A packet with the checksums that the control segment asks for, and whether all are right."""
    image = bytearray(packet)
    headers = FrameHeaders(image, HEADER_SIZE)
    if flags & IP_CSUM:
        fill_ip_checksum(image, headers)
    if flags & TCP_UDP_CSUM:
        fill_l4_checksum(image, headers)
    return bytes(image), flags & CHECKSUM_FLAGS == CHECKSUM_FLAGS and headers.whole


def found(message: Datagram) -> tuple[bytes, int]:
    """What a completion says of the packet in a datagram: bytes behind the LID, and a checksum."""
    packet = message.payload
    status, (checked, checksum) = findings(packet, FrameHeaders(packet, HEADER_SIZE), message.good)
    return _FINDINGS.pack(status, checked), checksum
