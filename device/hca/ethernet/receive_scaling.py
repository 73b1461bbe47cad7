"""Receive side scaling: an indirection queue pair spreads frames over rings by a hash.

The hash functions are those of the context: Toeplitz with the driver's key (Microsoft's receive
side scaling), or XOR of the same bytes. Linux `en_rx.c: mlx4_en_config_rss_steer`.
"""

from __future__ import annotations

from typing import Final

from bluebridge.device.hca.ethernet.frame import TCP, UDP, Frame, FrameHeaders
from bluebridge.device.layout.mlx4.contexts import RSS, RSS_OFFSET, RssFlag

HASH_XOR: Final = 0
PORT_BYTES: Final = 4
MAX_FLOWS: Final = 4096
"""Flows whose hash is remembered; a guest can invent as many as it likes."""

_ADDRESS_FLAG: Final = {4: RssFlag.IPV4, 6: RssFlag.IPV6}
_PORT_FLAG: Final = {
    (4, TCP): RssFlag.TCP_IPV4,
    (6, TCP): RssFlag.TCP_IPV6,
    (4, UDP): RssFlag.UDP_IPV4,
    (6, UDP): RssFlag.UDP_IPV6,
}


def toeplitz(data: bytes, key: bytes) -> int:
    """The 32-bit Toeplitz hash: for each set bit the 32 bits of the key that start there."""
    wide, bits = int.from_bytes(key, "big"), len(key) * 8
    result = 0
    for index in range(len(data) * 8):
        if data[index >> 3] >> (7 - (index & 7)) & 1:
            result ^= wide >> (bits - 32 - index) & 0xFFFFFFFF
    return result


def xor_hash(data: bytes) -> int:
    """All 32-bit words of the input, XORed."""
    result = 0
    for start in range(0, len(data), 4):
        result ^= int.from_bytes(data[start : start + 4], "big")
    return result


class Spreader:
    """What one RSS queue pair does: `choose` gives hash and queue pair number of a frame."""

    __slots__ = ("_base", "_base_udp", "_default", "_flags", "_flows", "_key", "_mask", "_xor")

    def __init__(self, context: bytes | bytearray) -> None:
        self._mask = (1 << (RSS.get(context, "log_table_size", RSS_OFFSET) & 0xF)) - 1
        self._base = RSS.get(context, "base_qpn", RSS_OFFSET)
        self._base_udp = RSS.get(context, "base_qpn_udp", RSS_OFFSET) or self._base
        self._default = RSS.get(context, "default_qpn", RSS_OFFSET)
        self._flags = RSS.get(context, "flags", RSS_OFFSET)
        self._xor = RSS.get(context, "hash_fn", RSS_OFFSET) == HASH_XOR
        self._key = RSS.get_raw(context, "key", RSS_OFFSET)
        self._flows: dict[bytes, int] = {}

    def choose(self, frame: Frame, headers: FrameHeaders) -> tuple[int, int]:
        """Hash of a frame (0 if it has none) and the queue pair that gets it."""
        flow = self._flow(frame, headers)
        if not flow:
            return 0, self._default or self._base
        value = self._flows.get(flow)
        if value is None:
            value = xor_hash(flow) if self._xor else toeplitz(flow, self._key)
            if len(self._flows) >= MAX_FLOWS:
                self._flows.clear()
            self._flows[flow] = value
        base = self._base_udp if headers.whole and headers.protocol == UDP else self._base
        return value, base + (value & self._mask)

    def _flow(self, frame: Frame, headers: FrameHeaders) -> bytes:
        """The bytes that are hashed: addresses, with ports where the context wants them."""
        if not headers.version or not self._flags & _ADDRESS_FLAG[headers.version]:
            return b""
        flow = headers.addresses(frame)
        flag = _PORT_FLAG.get((headers.version, headers.protocol), 0)
        if headers.whole and self._flags & flag:
            flow += bytes(frame[headers.transport : headers.transport + PORT_BYTES])
        return flow
