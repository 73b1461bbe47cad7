"""TIRs and tables of receive queues: which queue gets a frame, by the hash of its headers.

Linux `core/en/tir.c`, `core/en/rqt.c`, `core/en/rss.c`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from bluebridge.device.frames.frame import TCP, UDP, Frame, FrameHeaders
from bluebridge.device.frames.receiving import toeplitz
from bluebridge.device.layout.mlx5.contexts import TIRC, Dispatch, HashFunction
from bluebridge.device.layout.mlx5.cqe import HashedL3, HashedL4

MAX_FLOWS: Final = 4096
"""Number of flows whose hash an adapter remembers, as a guest can invent any number of them."""
SOURCE, TARGET, SOURCE_PORT, TARGET_PORT = 1, 2, 4, 8
"""Fields that are hashed."""
_PORT_FIELDS: Final = SOURCE_PORT | TARGET_PORT
_L3: Final = {4: int(HashedL3.IPV4) << 2, 6: int(HashedL3.IPV6) << 2}
_L4: Final = {TCP: int(HashedL4.TCP) << 6, UDP: int(HashedL4.UDP) << 6}


Hashes = dict[tuple[int, bytes, bytes], int]
"""The hashes of flows, by the function, its key and the bytes that are hashed."""


class Choice(NamedTuple):
    """The queue for a frame, its hash, and which headers that is of, as completions tell it."""

    rqn: int
    value: int
    hashed: int


class QueueTable:
    """A table of the numbers of receive queues (RQT)."""

    def __init__(self, queues: list[int]) -> None:
        self.queues = queues


class Tir:
    """A transport interface receive; `table` is what it spreads frames over, if anything.

    `hashes` are those that all TIRs of an adapter remember.
    """

    def __init__(self, context: bytes, table: QueueTable | None, hashes: Hashes) -> None:
        self.context = bytearray(context)
        self.table = table
        self.rqn = TIRC.get(context, "rqn")
        self.direct = TIRC.get(context, "dispatch") == Dispatch.DIRECT
        self.loopback = TIRC.get(context, "loopback")
        self.domain = TIRC.get(context, "transport_domain")
        self._hashes = hashes
        self.load_hash(context)

    def load_hash(self, context: bytes) -> None:
        """Take over what is hashed, and how."""
        for name in ("symmetric", "hash_function", "key", "hash_ipv6", "hash_udp", "hash_fields"):
            if TIRC.field(name).raw:
                TIRC.set(self.context, name, TIRC.get_raw(context, name))
            else:
                TIRC.set(self.context, name, TIRC.get(context, name))
        self._function = TIRC.get(context, "hash_function")
        self._symmetric = bool(TIRC.get(context, "symmetric"))
        self._key = TIRC.get_raw(context, "key")
        self._version = 6 if TIRC.get(context, "hash_ipv6") else 4
        self._protocol = UDP if TIRC.get(context, "hash_udp") else TCP
        self._fields = TIRC.get(context, "hash_fields")

    def set_loopback(self, allowed: int) -> None:
        """Take own frames to unicast (1) or multicast (2) addresses, or not."""
        self.loopback = allowed
        TIRC.set(self.context, "loopback", allowed)

    def choose(self, frame: Frame, headers: FrameHeaders) -> Choice | None:
        """Return the queue for a frame; None where there is none."""
        value, hashed = self._hash(frame, headers)
        if self.direct or self.table is None:
            return Choice(self.rqn, value, hashed)
        queues = self.table.queues
        return Choice(queues[value % len(queues)], value, hashed) if queues else None

    def _hash(self, frame: Frame, headers: FrameHeaders) -> tuple[int, int]:
        """Return the hash of a frame and which headers it is of; zeros without one."""
        if self._function == HashFunction.NONE or headers.version != self._version:
            return 0, 0
        fields, hashed = self._fields, _L3[headers.version]
        addresses = headers.addresses(frame)
        half = len(addresses) // 2
        parts = [
            addresses[:half] if fields & SOURCE else b"",
            addresses[half:] if fields & TARGET else b"",
        ]
        if fields & _PORT_FIELDS and headers.whole and headers.protocol == self._protocol:
            start = headers.transport
            hashed |= _L4[headers.protocol]
            parts.append(bytes(frame[start : start + 2]) if fields & SOURCE_PORT else b"")
            parts.append(bytes(frame[start + 2 : start + 4]) if fields & TARGET_PORT else b"")
        if self._symmetric:  # both directions of a flow have one order
            parts[:2] = sorted(parts[:2])
            parts[2:] = sorted(parts[2:])
        flow = b"".join(parts)
        place = self._function, self._key, flow
        value = self._hashes.get(place)
        if value is None:
            value = self._value(flow)
            if len(self._hashes) >= MAX_FLOWS:
                self._hashes.clear()
            self._hashes[place] = value
        return value, hashed

    def _value(self, flow: bytes) -> int:
        if self._function == HashFunction.TOEPLITZ:
            return toeplitz(flow, self._key)
        folded = 0
        for byte in flow:
            folded ^= byte
        return folded ^ 0xFF
