"""The headers of a frame as the number that flow entries match: `steering.OUTER_HEADERS`."""

from __future__ import annotations

from struct import Struct
from typing import Final

from bluebridge.device.frames.frame import (
    HEADER_BYTES,
    IPV4_HEADER,
    IPV6_HEADER,
    MORE_FRAGMENTS_OR_OFFSET,
    TCP,
    UDP,
    Frame,
    FrameHeaders,
)
from bluebridge.device.layout.net.ethernet import (
    ETHERTYPE_IPV4,
    ETHERTYPE_IPV6,
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

    Ports are those of a whole TCP or UDP header; fragments have none. Headers match also where the
    length that they tell is not that of the frame.
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
    version, protocol, fragment = headers.version, headers.protocol, headers.fragment
    start, transport, whole = headers.network, headers.transport, headers.whole
    if not version:
        version, protocol, transport, fragment = _told(frame, start, kind)
        whole = not fragment and transport + HEADER_BYTES.get(protocol, len(frame)) <= len(frame)
    if version:
        flags |= version << _VERSION_SHIFT
        if fragment:
            flags |= _FRAGMENT
        ends = (12, 20) if version == 4 else (8, 40)
        addresses = bytes(frame[start + ends[0] : start + ends[1]])
        half = len(addresses) // 2
        source, target = addresses[:half].rjust(16, b"\0"), addresses[half:].rjust(16, b"\0")
        if version == 4:
            traffic_class, hops = frame[start + 1], frame[start + 8]
        else:
            traffic_class, hops = _U16(frame, start)[0] >> 4 & 0xFF, frame[start + 7]
    if whole:
        (sport,), (dport,) = _U16(frame, transport), _U16(frame, transport + 2)
        if protocol == TCP:
            tcp_source, tcp_target = sport, dport
            flags |= _U16(frame, transport + _TCP_FLAGS_AT)[0] & _TCP_FLAGS
        elif protocol == UDP:
            udp_source, udp_target = sport, dport
    raw = _OUTER.pack(
        bytes(frame[6:12]), kind, bytes(frame[:6]), tag,
        protocol, traffic_class, flags,
        tcp_source, tcp_target, hops, udp_source, udp_target, source, target,
    )  # fmt: skip
    return int.from_bytes(raw, "big")


def _told(frame: Frame, start: int, kind: int) -> tuple[int, int, int, bool]:
    """Return version, protocol, transport and fragment of an IP header whose length lies."""
    size = len(frame) - start
    if kind == ETHERTYPE_IPV6 and size >= IPV6_HEADER and frame[start] >> 4 == 6:
        return 6, frame[start + 6], start + IPV6_HEADER, False
    if kind == ETHERTYPE_IPV4 and size >= IPV4_HEADER and frame[start] >> 4 == 4:
        fragment = bool(_U16(frame, start + 6)[0] & MORE_FRAGMENTS_OR_OFFSET)
        return 4, frame[start + 9], start + (frame[start] & 15) * 4, fragment
    return 0, 0, len(frame), False
