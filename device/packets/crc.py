"""The two checks of an InfiniBand packet (InfiniBand vol. 1, 7.8; annexes A16 and A17).

The invariant CRC covers what no switch changes: fields that may change count as all ones. RoCE has
no LRH, eight bytes of ones stand for it.
"""

from __future__ import annotations

import zlib
from typing import Final

from bluebridge.device.layout.fields import Struct
from bluebridge.device.layout.ib.link import LRH_SIZE
from bluebridge.device.layout.net.ip import IPV4, IPV6, UDP
from bluebridge.device.layout.net.roce import GRH

_NO_LRH: Final = b"\xff" * LRH_SIZE
_RESERVED: Final = 4  # byte of the BTH: FECN, BECN, reserved
_VCRC_POLYNOMIAL: Final = 0xD008  # 0x100B with its bits reversed


def roce_v1(grh: bytes, transport: bytes) -> bytes:
    """Return the ICRC of a RoCE v1 packet; `transport` reaches from the BTH to the padding."""
    return _crc(_NO_LRH, masked_grh(grh), masked_bth(transport))


def roce_v2(ip: bytes, udp: bytes, transport: bytes) -> bytes:
    """Return the ICRC of a RoCE v2 packet over IPv4 or IPv6."""
    masked_udp = bytearray(udp)
    UDP.set(masked_udp, "checksum", 0xFFFF)
    masked_ip = _masked_ipv4(ip) if len(ip) == IPV4.size else _masked_ipv6(ip)
    return _crc(_NO_LRH, masked_ip, bytes(masked_udp), masked_bth(transport))


def infiniband(lrh: bytes, grh: bytes, transport: bytes) -> bytes:
    """Return the ICRC of an InfiniBand packet; `grh` is empty where there is none."""
    masked_lrh = bytes((lrh[0] | 0xF0,)) + lrh[1:]  # the virtual lane
    return _crc(masked_lrh, masked_grh(grh) if grh else b"", masked_bth(transport))


def variant(packet: bytes) -> bytes:
    """Return the VCRC of an InfiniBand packet: CRC-16 of everything from the LRH to the ICRC."""
    value = 0xFFFF
    for byte in packet:
        value = value >> 8 ^ _VCRC_TABLE[(value ^ byte) & 0xFF]
    return (value ^ 0xFFFF).to_bytes(2, "little")


def masked_bth(transport: bytes) -> bytes:
    """Return a BTH and what follows, with all ones in the byte that switches may change."""
    return transport[:_RESERVED] + b"\xff" + transport[_RESERVED + 1 :]


def masked_grh(grh: bytes) -> bytes:
    """Return a GRH with all ones in the fields that routers may change."""
    return _ones(bytearray(grh), GRH, "traffic_class", "flow_label", "hop_limit")


def _masked_ipv4(header: bytes) -> bytes:
    return _ones(bytearray(header), IPV4, "tos", "ttl", "checksum")


def _masked_ipv6(header: bytes) -> bytes:
    return _ones(bytearray(header), IPV6, "traffic_class", "flow_label", "hop_limit")


def _ones(header: bytearray, table: Struct, *names: str) -> bytes:
    for name in names:
        table.set(header, name, table.field(name).mask)
    return bytes(header)


def _crc(*pieces: bytes) -> bytes:
    """Return the CRC-32 of Ethernet, in the order of its bytes on the wire."""
    value = 0
    for piece in pieces:
        value = zlib.crc32(piece, value)
    return value.to_bytes(4, "little")


def _vcrc_of(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ _VCRC_POLYNOMIAL * (byte & 1)
    return byte


_VCRC_TABLE: Final = tuple(_vcrc_of(byte) for byte in range(256))
