"""What completions tell of a frame that came: the parts that are right, its headers, its sum.

Linux `core/en_rx.c: mlx5e_build_rx_skb, mlx5e_handle_csum`.
"""

from __future__ import annotations

from typing import Final

from bluebridge.device.frames.frame import (
    CHECKSUM_OFFSET,
    ONES,
    TCP,
    UDP,
    Frame,
    FrameHeaders,
    ones_sum,
)
from bluebridge.device.layout.mlx5.cqe import Checked, L3Header, L4Header

_L3: Final = {4: int(L3Header.IPV4) << 2, 6: int(L3Header.IPV6) << 2}
_TCP_FLAGS_AT: Final = 13
_ACK: Final = 0x10
_L4_SHIFT: Final = 4


def findings(frame: Frame, headers: FrameHeaders, good: bool) -> tuple[int, int]:
    """Return what is right of a frame (`Checked`) and above it its headers, and its sum.

    The sum is that of all bytes from the network header to the end of the packet: drivers add
    VLAN tags before it and padding behind it themselves. `good`: the sending adapter computed the
    checksums itself; then no pass over the bytes is needed, as a right checksum makes header and
    payload sum up to zero.
    """
    if not headers.version:
        return int(Checked.L2), 0
    kinds = _L3[headers.version] | _transport(frame, headers) << _L4_SHIFT
    checked = int(Checked.L2)
    if good and headers.whole:
        rest = ones_sum(frame[headers.network : headers.transport]) - headers.pseudo_sum(frame)
        checked |= Checked.L3 | Checked.L4
        return checked | kinds << 8, rest % ONES or ONES
    total = ones_sum(frame[headers.network : headers.end])
    front = ones_sum(frame[headers.network : headers.transport])
    if headers.version == 6 or not front:
        checked |= Checked.L3
    sums_up = headers.whole and not (total - front + headers.pseudo_sum(frame)) % ONES
    if sums_up and _has_checksum(frame, headers):
        checked |= Checked.L4
    return checked | kinds << 8, total or ONES


def _has_checksum(frame: Frame, headers: FrameHeaders) -> bool:
    """Return False for UDP without a checksum."""
    field = headers.transport + CHECKSUM_OFFSET[headers.protocol]
    return headers.protocol != UDP or any(frame[field : field + 2])


def _transport(frame: Frame, headers: FrameHeaders) -> int:
    """Return the kind of the transport header (`L4Header`)."""
    if not headers.whole:
        return int(L4Header.NONE)
    if headers.protocol != TCP:
        return int(L4Header.UDP)
    start = headers.transport
    if not frame[start + _TCP_FLAGS_AT] & _ACK:
        return int(L4Header.TCP_NO_ACK)
    data = start + (frame[start + _TCP_FLAGS_AT - 1] >> 4) * 4 < headers.end
    return int(L4Header.TCP_ACK_AND_DATA if data else L4Header.TCP_ACK_NO_DATA)
