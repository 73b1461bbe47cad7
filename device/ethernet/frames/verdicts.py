"""The findings of an adapter on a received packet, for its completion."""

from __future__ import annotations

from typing import Final

from bluebridge.device.ethernet.frames.frame import ONES, TCP, UDP, Frame, FrameHeaders

IS_IPV4: Final = 1 << 0
IS_FRAGMENT: Final = 1 << 1
IS_IPV6: Final = 1 << 2
HAS_OPTIONS: Final = 1 << 3
IS_TCP: Final = 1 << 4
IS_UDP: Final = 1 << 5
IP_GOOD: Final = 1 << 6
L4_GOOD: Final = 1 << 7
"""Findings are bits: the kind of a packet, and which of its checksums are right."""
FINDINGS: Final = 8
"""Number of bits that findings have."""

_TRANSPORT: Final = {TCP: IS_TCP, UDP: IS_UDP}


def findings(frame: Frame, headers: FrameHeaders, good: bool) -> tuple[int, int]:
    """Return the findings on a packet, and its L4 checksum.

    The checksum is all ones if it is right, else the sum that software continues with.

    `good`: the sending adapter computed the checksums itself. Linux `en_rx.c:
    mlx4_en_process_rx_cq, check_csum`: CHECKSUM_UNNECESSARY and _COMPLETE.
    """
    if not headers.version:
        return 0, 0
    if headers.version == 4:
        found = IS_IPV4
        if headers.fragment:
            found |= IS_FRAGMENT
        if headers.options:
            found |= HAS_OPTIONS
    else:
        found = IS_IPV6
    if headers.whole:
        found |= _TRANSPORT[headers.protocol]
    if good:
        return found | IP_GOOD | L4_GOOD, ONES
    if headers.header_is_good(frame):
        found |= IP_GOOD
    if headers.transport_is_good(frame):
        return found | L4_GOOD, ONES
    return found, headers.partial_sum(frame)
