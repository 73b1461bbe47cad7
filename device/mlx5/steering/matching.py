"""The headers of a frame as the number that flow entries match: `steering.OUTER_HEADERS`."""

from __future__ import annotations

from struct import Struct
from typing import Final

from bluebridge.device.frames.frame import TCP, UDP, Frame, FrameHeaders
from bluebridge.device.layout.net.ethernet import (
    ETHERTYPE_SERVICE_VLAN,
    ETHERTYPE_VLAN,
    HEADER_SIZE,
)

_OUTER: Final = Struct(">6sH6sHBBHHH3xBHH16s16s")
"""The table OUTER_HEADERS, compiled for the hot path."""
_U16: Final = Struct(">H").unpack_from
_TYPE_AT: Final = 12
_TAG_FLAGS: Final = {ETHERTYPE_VLAN: 1 << 15, ETHERTYPE_SERVICE_VLAN: 1 << 14}
_FRAGMENT: Final = 1 << 13
_VERSION_SHIFT: Final = 9
_TCP_FLAGS_AT: Final = 12
_TCP_FLAGS: Final = 0x1FF
_NO_ADDRESS: Final = bytes(16)


def number_of(frame: Frame, headers: FrameHeaders) -> int:
    """Return the fields that entries match as one number, of a frame with a whole Ethernet header.

    Ports are those of a whole TCP or UDP header; fragments have none.
    """
    (kind,) = _U16(frame, _TYPE_AT)
    flags = _TAG_FLAGS.get(kind, 0)
    tag = 0
    if flags and len(frame) >= HEADER_SIZE + 4:
        (tag,) = _U16(frame, HEADER_SIZE)
        (kind,) = _U16(frame, headers.network - 2)
    tcp_source = tcp_target = udp_source = udp_target = 0
    traffic_class = hops = 0
    source = target = _NO_ADDRESS
    version = headers.version
    if version:
        flags |= version << _VERSION_SHIFT
        if headers.fragment:
            flags |= _FRAGMENT
        start = headers.network
        addresses = headers.addresses(frame)
        half = len(addresses) // 2
        source, target = addresses[:half].rjust(16, b"\0"), addresses[half:].rjust(16, b"\0")
        if version == 4:
            traffic_class, hops = frame[start + 1], frame[start + 8]
        else:
            traffic_class, hops = _U16(frame, start)[0] >> 4 & 0xFF, frame[start + 7]
    if headers.whole:
        start = headers.transport
        (sport,), (dport,) = _U16(frame, start), _U16(frame, start + 2)
        if headers.protocol == TCP:
            tcp_source, tcp_target = sport, dport
            flags |= _U16(frame, start + _TCP_FLAGS_AT)[0] & _TCP_FLAGS
        elif headers.protocol == UDP:
            udp_source, udp_target = sport, dport
    raw = _OUTER.pack(
        bytes(frame[6:12]), kind, bytes(frame[:6]), tag,
        headers.protocol, traffic_class, flags,
        tcp_source, tcp_target, hops, udp_source, udp_target, source, target,
    )  # fmt: skip
    return int.from_bytes(raw, "big")
