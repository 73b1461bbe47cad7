"""Receive side scaling: an indirection queue pair spreads frames over rings by a hash.

The hash functions are those of the context: Toeplitz with the driver's key (Microsoft's receive
side scaling), or XOR of the same bytes. Linux `en_rx.c: mlx4_en_config_rss_steer`.
"""

from __future__ import annotations

from typing import Final

from bluebridge.device.layout.mlx4.commands import Status
from bluebridge.device.layout.mlx4.contexts import RSS, RSS_HASHES, RSS_OFFSET, RssFlag
from bluebridge.device.mlx4.ethernet.frame import TCP, UDP, Frame, FrameHeaders
from bluebridge.device.mlx4.settings.capabilities import LOG_RSS_TABLE
from bluebridge.device.mlx4.settings.refusal import CommandError

HASH_XOR: Final = 0
PORT_BYTES: Final = 4
MAX_FLOWS: Final = 4096
"""Flows whose hash is remembered; a guest can invent as many as it likes."""

_ADDRESS_FLAG: Final = {4: int(RssFlag.IPV4), 6: int(RssFlag.IPV6)}
_PORT_FLAG: Final = {
    (4, TCP): int(RssFlag.TCP_IPV4),
    (6, TCP): int(RssFlag.TCP_IPV6),
    (4, UDP): int(RssFlag.UDP_IPV4),
    (6, UDP): int(RssFlag.UDP_IPV6),
}
_ALL_FLAGS: Final = sum(_ADDRESS_FLAG.values()) + sum(_PORT_FLAG.values())


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
    """What one RSS queue pair does: `choose` gives hash and queue pair number of a frame.

    Raises `CommandError` (BAD_PARAM) for what QUERY_DEV_CAP does not offer: a larger table,
    another hash, headers inside of tunnels.
    """

    __slots__ = ("_base", "_base_udp", "_default", "_flags", "_flows", "_key", "_mask", "_xor")

    def __init__(self, context: bytes | bytearray) -> None:
        _check(context)
        self._mask = (1 << RSS.get(context, "log_table_size", RSS_OFFSET)) - 1
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
        if not headers.version:
            return b""
        if headers.whole and self._flags & _PORT_FLAG[headers.version, headers.protocol]:
            ports = frame[headers.transport : headers.transport + PORT_BYTES]
            return headers.addresses(frame) + bytes(ports)
        if self._flags & _ADDRESS_FLAG[headers.version]:
            return headers.addresses(frame)
        return b""


def _check(context: bytes | bytearray) -> None:
    """Raises `CommandError` (BAD_PARAM) unless QUERY_DEV_CAP offers what an RSS context asks for.

    Of the flags those of headers inside of tunnels are not offered (Linux `mlx4_en.h:
    MLX4_RSS_BY_INNER_HEADERS`).
    """
    log_size = RSS.get(context, "log_table_size", RSS_OFFSET)
    if log_size > LOG_RSS_TABLE:
        raise CommandError(Status.BAD_PARAM, f"an RSS table of 2^{log_size} entries")
    function = RSS.get(context, "hash_fn", RSS_OFFSET)
    if function not in RSS_HASHES:
        raise CommandError(Status.BAD_PARAM, f"RSS hash function {function}")
    flags = RSS.get(context, "flags", RSS_OFFSET)
    if flags & ~_ALL_FLAGS:
        raise CommandError(Status.BAD_PARAM, f"RSS flags {flags:#x}")
