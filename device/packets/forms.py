"""Headers of packets by compiled formats; their tables are in `device/layout/net`."""

from __future__ import annotations

from struct import Struct
from typing import Final

from bluebridge.device.layout.net.ip import PROTOCOL_UDP, ones_complement_sum

GRH: Final = Struct(">IHBB16s16s")
"""Also of an IPv6 header."""
IPV4: Final = Struct(">BBHHHBBH4s4s")
UDP: Final = Struct(">HHHH")
BTH: Final = Struct(">BBHII")
DETH: Final = Struct(">II")
RETH: Final = Struct(">QII")
AETH: Final = Struct(">I")
ATOMIC_ETH: Final = Struct(">QIQQ")
ATOMIC_ACK_ETH: Final = Struct(">Q")
WORD: Final = Struct(">I")
"""An immediate value, the key of an invalidation, or the SRQ of XRC."""
CNP: Final = bytes(16)
"""What stands in a report of congestion: reserved bytes."""

IP_VERSION: Final = 6
PLAIN_IPV4: Final = 0x45
"""Version 4, and a header of five words: no options."""
_DONT_FRAGMENT: Final = 0x4000


def grh(
    traffic_class: int,
    flow_label: int,
    length: int,
    following: int,
    hop_limit: int,
    source: bytes,
    destination: bytes,
) -> bytes:
    """Return a GRH or IPv6 header; `length` bytes and the header numbered `following` are next."""
    word = IP_VERSION << 28 | traffic_class << 20 | flow_label
    return GRH.pack(word, length, following, hop_limit, source, destination)


def ipv4(tos: int, length: int, ttl: int, source: bytes, destination: bytes) -> bytes:
    """Return the IPv4 header of a UDP packet that has `length` bytes with this header."""
    header = IPV4.pack(
        PLAIN_IPV4, tos, length, 0, _DONT_FRAGMENT, ttl, PROTOCOL_UDP, 0, source, destination
    )
    return header[:10] + ones_complement_sum(header).to_bytes(2, "big") + header[12:]
