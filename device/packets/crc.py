"""The two checks of an InfiniBand packet (InfiniBand vol. 1, 7.8; annexes A16 and A17).

The invariant CRC covers what no switch changes: fields that may change count as all ones. RoCE has
no LRH, eight bytes of ones stand for it.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

from bluebridge.device.layout.ib.link import LRH_SIZE
from bluebridge.device.layout.net.ip import IPV4

_NO_LRH: Final = b"\xff" * LRH_SIZE
_RESERVED: Final = 4  # byte of the BTH: FECN, BECN, reserved
_VCRC_POLYNOMIAL: Final = 0xD008  # 0x100B with its bits reversed


def before_roce_v1(grh: bytes) -> int:
    """Return the CRC of a RoCE v1 packet up to its BTH, which `invariant` continues."""
    return crc32(_NO_LRH + _masked_grh(grh))


def before_roce_v2(ip: bytes, udp: bytes) -> int:
    """Return the CRC of a RoCE v2 packet over IPv4 or IPv6 up to its BTH."""
    if len(ip) != IPV4.size:
        return crc32(_NO_LRH + _masked_grh(ip) + udp[:6] + b"\xff\xff")
    masked = ip[:1] + b"\xff" + ip[2:8] + b"\xff" + ip[9:10] + b"\xff\xff" + ip[12:]
    return crc32(_NO_LRH + masked + udp[:6] + b"\xff\xff")


def before_infiniband(lrh: bytes, grh: bytes) -> int:
    """Return the CRC of an InfiniBand packet up to its BTH; `grh` is empty where there is none."""
    masked_lrh = bytes((lrh[0] | 0xF0,)) + lrh[1:]  # the virtual lane
    return crc32(masked_lrh + (_masked_grh(grh) if grh else b""))


def invariant(before: int, transport: bytes, more: bytes | memoryview = b"") -> bytes:
    """Return the ICRC of a packet: `transport` and `more` are from its BTH to its padding."""
    value = crc32(transport[:_RESERVED] + b"\xff" + transport[_RESERVED + 1 :], before)
    return crc32(more, value).to_bytes(4, "little")


def _masked_grh(grh: bytes) -> bytes:
    """Return a GRH or IPv6 header with ones in traffic class, flow label and hop limit."""
    return b"\x6f\xff\xff\xff" + grh[4:7] + b"\xff" + grh[8:]


def variant(packet: bytes) -> bytes:
    """Return the VCRC of an InfiniBand packet: CRC-16 of everything from the LRH to the ICRC."""
    value = 0xFFFF
    for byte in packet:
        value = value >> 8 ^ _VCRC_TABLE[(value ^ byte) & 0xFF]
    return (value ^ 0xFFFF).to_bytes(2, "little")


def _vcrc_of(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ _VCRC_POLYNOMIAL * (byte & 1)
    return byte


_VCRC_TABLE: Final = tuple(_vcrc_of(byte) for byte in range(256))
