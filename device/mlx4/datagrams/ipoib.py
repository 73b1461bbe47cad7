"""What completions say of IP packets in datagrams (Linux `ib/cq.c: mlx4_ib_ipoib_csum_ok`)."""

from __future__ import annotations

from struct import Struct
from typing import Final

from bluebridge.device.fabric.messages import Datagram
from bluebridge.device.layout.net.ipoib import HEADER_SIZE
from bluebridge.device.mlx4.ethernet.frame import FrameHeaders
from bluebridge.device.mlx4.ethernet.verdicts import findings

_FINDINGS: Final = Struct(">HxB")
"""Behind the sender's LID in a completion: status bits, and how far the L4 checksum was checked."""


def found(message: Datagram) -> tuple[bytes, int]:
    """What a completion says of the packet in a datagram: bytes behind the LID, and a checksum."""
    packet = message.payload
    status, (checked, checksum) = findings(packet, FrameHeaders(packet, HEADER_SIZE), message.good)
    return _FINDINGS.pack(status, checked), checksum
