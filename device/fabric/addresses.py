"""Link-layer addresses: 6-byte MAC addresses on Ethernet, 2-byte LIDs on InfiniBand."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

LID_SIZE: Final = 2
PERMISSIVE: Final = b"\xff\xff"
"""The LID that addresses the other end of the cable (InfiniBand vol. 1, 4.1.3)."""
NO_LID: Final = b"\0\0"
FIRST_GROUP_LID: Final = 0xC000

_GROUP_BIT: Final = 1  # of the first byte of a MAC address: broadcast or multicast
_GROUP_BYTE: Final = FIRST_GROUP_LID >> 8


class LinkLayer(StrEnum):
    """The link layer of a port and its cable."""

    ETHERNET = "ethernet"
    INFINIBAND = "infiniband"


def is_group(address: bytes) -> bool:
    """Return True for a group address: broadcast or multicast."""
    if len(address) == LID_SIZE:
        return address[0] >= _GROUP_BYTE and address != PERMISSIVE
    return bool(address[:1]) and bool(address[0] & _GROUP_BIT)


def check_unicast(mac: bytes) -> None:
    """Raise `ValueError` unless `mac` is a MAC address that one port may have."""
    if len(mac) != 6 or mac[0] & _GROUP_BIT or not any(mac):
        raise ValueError(f"{mac.hex(':')} is no unicast MAC address")


def guid_of(mac: bytes) -> int:
    """Return a node's GUID: the MAC's halves around 03 00, the local bit flipped (Mellanox)."""
    return int.from_bytes(bytes((mac[0] ^ 2,)) + mac[1:3] + b"\x03\x00" + mac[3:], "big")


def lid_bytes(lid: int) -> bytes:
    """Return a LID as an address, 2 bytes in network order."""
    return lid.to_bytes(LID_SIZE, "big")


def lid_of(address: bytes) -> int:
    """Return the LID in an address of 2 bytes."""
    return int.from_bytes(address, "big")
