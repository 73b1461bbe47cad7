"""The fields of an Ethernet frame that rules can name, as one number (`rules.fields`)."""

from __future__ import annotations

from typing import Final

from bluebridge.device.ethernet.frames.frame import TCP, UDP, Frame, FrameHeaders
from bluebridge.device.ethernet.rules import fields
from bluebridge.device.layout.net.ethernet import HEADER_SIZE, VLAN_TAG_TYPES

VXLAN_PORT: Final = 4789
VXLAN_HEADER: Final = 8
_UDP_HEADER: Final = 8
_ADDRESS: Final = 6
_TYPE: Final = 12
_FLAGS: Final = {TCP: fields.TCP, UDP: fields.UDP}


def number_of(frame: bytes, depth: int) -> int:
    """Return the number of a frame, with the fields that rules of this depth look at."""
    if depth == fields.BY_ADDRESS:
        return int.from_bytes(frame[:_ADDRESS], "big")
    headers = FrameHeaders(frame)
    number = link_number(frame, headers)
    if depth == fields.BY_LINK:
        return number
    number |= transport_number(frame, headers)
    return number | _inner_number(frame, headers) if depth == fields.BY_INNER else number


def link_number(frame: Frame, headers: FrameHeaders) -> int:
    """Return addresses, the Ethertype behind the tags and the outermost tag, as one number."""
    number = (
        int.from_bytes(frame[:_ADDRESS], "big")
        | int.from_bytes(frame[_ADDRESS:_TYPE], "big") << fields.SMAC
        | int.from_bytes(frame[headers.network - 2 : headers.network], "big") << fields.ETHERTYPE
    )
    if frame[_TYPE:HEADER_SIZE] in VLAN_TAG_TYPES:
        number |= int.from_bytes(frame[HEADER_SIZE : HEADER_SIZE + 2], "big") << fields.VLAN
    return number


def transport_number(frame: Frame, headers: FrameHeaders) -> int:
    """Return IPv4 addresses and, where their header is whole, TCP or UDP ports, as one number."""
    number = 0
    if headers.version == 4:
        addresses = headers.addresses(frame)
        number = (
            fields.IPV4
            | int.from_bytes(addresses[:4], "big") << fields.SOURCE
            | int.from_bytes(addresses[4:], "big") << fields.DESTINATION
        )
    if headers.whole:
        start = headers.transport
        number |= (
            _FLAGS[headers.protocol]
            | int.from_bytes(frame[start : start + 2], "big") << fields.SOURCE_PORT
            | int.from_bytes(frame[start + 2 : start + 4], "big") << fields.DESTINATION_PORT
        )
    return number


def _inner_number(frame: bytes, headers: FrameHeaders) -> int:
    """Return the fields of a VXLAN header and the frame in it (RFC 7348); 0 without VXLAN."""
    start = headers.transport + _UDP_HEADER
    if not headers.whole or headers.protocol != UDP or headers.end < start + VXLAN_HEADER:
        return 0
    if int.from_bytes(frame[start - 6 : start - 4], "big") != VXLAN_PORT:
        return 0
    vni = int.from_bytes(frame[start + 4 : start + 7], "big")
    inner = frame[start + VXLAN_HEADER : headers.end]
    own = FrameHeaders(inner)
    number = link_number(inner, own) | transport_number(inner, own)
    return fields.VXLAN | vni << fields.VNI | number << fields.INNER
