"""Finds out about a received frame what an adapter does: its ring, its form there, its checksums.

Receive side scaling: an indirection queue pair spreads frames over rings by a hash. The functions
are those of the context: Toeplitz with the driver's key (Microsoft's receive side scaling), or XOR
of the same bytes. Linux `en_rx.c: mlx4_en_config_rss_steer`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct
from typing import Final
from zlib import crc32

from bluebridge.device.frames.frame import ONES, TCP, UDP, Frame, FrameHeaders
from bluebridge.device.layout.net.ethernet import HEADER_SIZE

PORT_BYTES: Final = 4
MAX_FLOWS: Final = 4096
"""Number of flows whose hash is remembered, as a guest can invent any number of them."""

HASH_IPV4: Final = 1 << 0
HASH_IPV6: Final = 1 << 1
HASH_TCP_IPV4: Final = 1 << 2
HASH_TCP_IPV6: Final = 1 << 3
HASH_UDP_IPV4: Final = 1 << 4
HASH_UDP_IPV6: Final = 1 << 5
"""Flags of the headers that are hashed."""
_ADDRESS_FLAG: Final = {4: HASH_IPV4, 6: HASH_IPV6}
_PORT_FLAG: Final = {
    (4, TCP): HASH_TCP_IPV4,
    (6, TCP): HASH_TCP_IPV6,
    (4, UDP): HASH_UDP_IPV4,
    (6, UDP): HASH_UDP_IPV6,
}

TAG_SIZE: Final = 4
_TYPE_OFFSET: Final = HEADER_SIZE - 2
_STRIP: Final = 1
_KEEP: Final = 2
_FCS: Final = Struct("<I")

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


def toeplitz(data: bytes, key: bytes) -> int:
    """Return the 32-bit Toeplitz hash: for each set bit the 32 bits of the key that start there."""
    wide, bits = int.from_bytes(key, "big"), len(key) * 8
    result = 0
    for index in range(len(data) * 8):
        if data[index >> 3] >> (7 - (index & 7)) & 1:
            result ^= wide >> (bits - 32 - index) & 0xFFFFFFFF
    return result


def xor_hash(data: bytes) -> int:
    """Return the XOR of all 32-bit words of the input."""
    result = 0
    for start in range(0, len(data), 4):
        result ^= int.from_bytes(data[start : start + 4], "big")
    return result


@dataclass(slots=True, eq=False, kw_only=True)
class Spreader:
    """The spreading of one RSS queue pair; `choose` returns the hash and QP number for a frame.

    `hashed` are the headers that are hashed, by the Toeplitz function with `key`, or by XOR if that
    is None. Queue pairs are numbered from `base` on, 2**`log_size` of them, or from `base_udp` on
    for UDP; `default` gets frames without a hash.
    """

    log_size: int
    base: int
    base_udp: int
    default: int
    hashed: int
    key: bytes | None
    flows: dict[bytes, int] = field(default_factory=dict)

    def choose(self, frame: Frame, headers: FrameHeaders) -> tuple[int, int]:
        """Return the hash of a frame (0 if it has none) and the queue pair that gets it."""
        flow = self._flow(frame, headers)
        if not flow:
            return 0, self.default
        value = self.flows.get(flow)
        if value is None:
            value = xor_hash(flow) if self.key is None else toeplitz(flow, self.key)
            if len(self.flows) >= MAX_FLOWS:
                self.flows.clear()
            self.flows[flow] = value
        base = self.base_udp if headers.whole and headers.protocol == UDP else self.base
        return value, base + (value & ((1 << self.log_size) - 1))

    def _flow(self, frame: Frame, headers: FrameHeaders) -> bytes:
        """Return the bytes to hash: addresses, with ports where the context asks for them."""
        if not headers.version:
            return b""
        if headers.whole and self.hashed & _PORT_FLAG[headers.version, headers.protocol]:
            ports = frame[headers.transport : headers.transport + PORT_BYTES]
            return headers.addresses(frame) + bytes(ports)
        if self.hashed & _ADDRESS_FLAG[headers.version]:
            return headers.addresses(frame)
        return b""


class TrainForms:
    """The frames of one train, made once in each form: a group may have a thousand rings."""

    __slots__ = ("_frames", "_made")

    def __init__(self, frames: list[bytes]) -> None:
        self._frames = frames
        self._made: dict[int, list[bytes]] = {}

    def frames(self, strip: bool, keep_fcs: bool) -> list[bytes]:
        """Return the frames; `strip` removes the outermost tag, which must be there.

        `keep_fcs` appends the frame check sequence (IEEE 802.3, 3.2.9), which covers the frame with
        its tag: so it came over the wire.
        """
        if not (strip or keep_fcs):
            return self._frames
        form = (_STRIP if strip else 0) | (_KEEP if keep_fcs else 0)
        made = self._made.get(form)
        if made is None:
            made = self._made[form] = self._make(strip, keep_fcs)
        return made

    def _make(self, strip: bool, keep_fcs: bool) -> list[bytes]:
        cut, pack = _TYPE_OFFSET + TAG_SIZE, _FCS.pack
        made = []
        for frame in self._frames:
            form = frame + pack(crc32(frame)) if keep_fcs else frame
            made.append(form[:_TYPE_OFFSET] + form[cut:] if strip else form)
        return made


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
