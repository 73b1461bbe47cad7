"""Receive side scaling: an indirection queue pair spreads frames over rings by a hash.

The hash functions are those of the context: Toeplitz with the driver's key (Microsoft's receive
side scaling), or XOR of the same bytes. Linux `en_rx.c: mlx4_en_config_rss_steer`.
"""

from __future__ import annotations

from typing import Final

from bluebridge.device.ethernet.frames.frame import TCP, UDP, Frame, FrameHeaders

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


class Spreader:
    """The spreading of one RSS queue pair; `choose` returns the hash and QP number for a frame.

    `hashed` are the headers that are hashed, by the Toeplitz function with `key`, or by XOR if that
    is None. Queue pairs are numbered from `base` on, 2**`log_size` of them, or from `base_udp` on
    for UDP; `default` gets frames without a hash.
    """

    __slots__ = ("_base", "_base_udp", "_default", "_flags", "_key", "_mask", "flows")

    def __init__(
        self,
        *,
        log_size: int,
        base: int,
        base_udp: int,
        default: int,
        hashed: int,
        key: bytes | None,
    ) -> None:
        self._mask = (1 << log_size) - 1
        self._base = base
        self._base_udp = base_udp
        self._default = default
        self._flags = hashed
        self._key = key
        self.flows: dict[bytes, int] = {}

    def choose(self, frame: Frame, headers: FrameHeaders) -> tuple[int, int]:
        """Return the hash of a frame (0 if it has none) and the queue pair that gets it."""
        flow = self._flow(frame, headers)
        if not flow:
            return 0, self._default
        value = self.flows.get(flow)
        if value is None:
            value = xor_hash(flow) if self._key is None else toeplitz(flow, self._key)
            if len(self.flows) >= MAX_FLOWS:
                self.flows.clear()
            self.flows[flow] = value
        base = self._base_udp if headers.whole and headers.protocol == UDP else self._base
        return value, base + (value & self._mask)

    def _flow(self, frame: Frame, headers: FrameHeaders) -> bytes:
        """Return the bytes to hash: addresses, with ports where the context asks for them."""
        if not headers.version:
            return b""
        if headers.whole and self._flags & _PORT_FLAG[headers.version, headers.protocol]:
            ports = frame[headers.transport : headers.transport + PORT_BYTES]
            return headers.addresses(frame) + bytes(ports)
        if self._flags & _ADDRESS_FLAG[headers.version]:
            return headers.addresses(frame)
        return b""
