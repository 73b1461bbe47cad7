"""The adapter's clock, which counts nanoseconds in 48 bits, and its stamps in completions.

A register of BAR0 shows it, too (Linux `mlx4/main.c: mlx4_read_clock`, `mlx4/en_clock.c:
mlx4_en_get_cqe_ts`).
"""

from __future__ import annotations

from struct import Struct
from time import monotonic_ns
from typing import Final

from bluebridge.device.layout.mlx4.cqe import TS_HIGH_OFFSET, TS_LOW_OFFSET

_HIGH: Final = Struct(">I")
_LOW: Final = Struct(">H")
_MASK: Final = (1 << 48) - 1


def clock() -> int:
    """Return what the clock shows now."""
    return monotonic_ns() & _MASK


def stamped(entry: bytes, when: int) -> bytes:
    """Return a completion entry with the stamp of an event at `when`, monotonic time in ns."""
    stamp = bytearray(entry)
    ticks = when & _MASK
    _HIGH.pack_into(stamp, TS_HIGH_OFFSET, ticks >> 16)
    _LOW.pack_into(stamp, TS_LOW_OFFSET, ticks & 0xFFFF)
    return bytes(stamp)
