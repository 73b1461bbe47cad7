"""The free running clock of an adapter, which stamps completions and stands in its registers."""

from __future__ import annotations

from time import monotonic_ns


def clock() -> int:
    """Return the time in ticks of a nanosecond (`capabilities.CLOCK_KHZ`), 64 bits."""
    return monotonic_ns() & 0xFFFF_FFFF_FFFF_FFFF
