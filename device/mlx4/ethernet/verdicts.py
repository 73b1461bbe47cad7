"""What the adapter finds in a packet that came in, for its completion."""

from __future__ import annotations

from typing import Final

from bluebridge.device.layout.mlx4.cqe import CHECKSUM_GOOD, L4_CHECKED, FrameStatus
from bluebridge.device.mlx4.ethernet.frame import TCP, UDP, Frame, FrameHeaders

_GOOD: Final = (L4_CHECKED, CHECKSUM_GOOD)
_UNKNOWN: Final = (0, 0)
_IPV4: Final = int(FrameStatus.IPV4)
_IPV6: Final = int(FrameStatus.IPV6)
_FRAGMENT: Final = int(FrameStatus.IPV4_FRAGMENT)
_OPTIONS: Final = int(FrameStatus.IPV4_OPTIONS)
_IP_OK: Final = int(FrameStatus.IP_OK)
_TRANSPORT: Final = {TCP: int(FrameStatus.TCP), UDP: int(FrameStatus.UDP)}


def findings(frame: Frame, headers: FrameHeaders, good: bool) -> tuple[int, tuple[int, int]]:
    """Status bits of a packet, and its L4 checksum: verified, or what software goes on with.

    `good`: the sending adapter computed the checksums itself. Linux `en_rx.c:
    mlx4_en_process_rx_cq, check_csum`: CHECKSUM_UNNECESSARY and _COMPLETE.
    """
    if not headers.version:
        return 0, _UNKNOWN
    if headers.version == 4:
        status = _IPV4 | (_FRAGMENT if headers.fragment else 0) | headers.options * _OPTIONS
    else:
        status = _IPV6
    if headers.whole:
        status |= _TRANSPORT[headers.protocol]
    if good:
        return status | _IP_OK, _GOOD
    if headers.header_is_good(frame):
        status |= _IP_OK
    if headers.transport_is_good(frame):
        return status, _GOOD
    return status, (0, headers.partial_sum(frame))
