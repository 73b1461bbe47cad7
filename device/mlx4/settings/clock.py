"""The free-running clock of the adapter: 48 bits at `CORE_CLOCK_MHZ`.

Completions carry it, a register of BAR0 shows it (Linux `mlx4/main.c: mlx4_read_clock`, `mlx4/
en_clock.c: mlx4_en_get_cqe_ts`).
"""

from __future__ import annotations

from time import monotonic_ns

from bluebridge.device.layout.mlx4.bar0 import CLOCK_OFFSET

CORE_CLOCK_MHZ = 1000
CLOCK_BYTES = 8
MASK = (1 << 48) - 1


def now() -> int:
    """Return the present clock value in nanoseconds, as it runs at 1 GHz."""
    return monotonic_ns() & MASK


def covers(offset: int, length: int) -> bool:
    """Return True if an access of BAR0 lies inside the clock register."""
    return offset >= CLOCK_OFFSET and offset + length <= CLOCK_OFFSET + CLOCK_BYTES


def read(offset: int, length: int) -> bytes:
    """Return bytes of the clock register."""
    start = offset - CLOCK_OFFSET
    return now().to_bytes(CLOCK_BYTES, "big")[start : start + length]
