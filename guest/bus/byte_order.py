"""Big-endian words through memory views, whose items have the byte order of this machine."""

from __future__ import annotations


def swap32(value: int) -> int:
    """The 32-bit value whose little-endian bytes are the big-endian ones of `value`.

    By arithmetic, which compiled code does without making objects.
    """
    return (value & 0xFF) << 24 | (value & 0xFF00) << 8 | value >> 8 & 0xFF00 | value >> 24 & 0xFF
