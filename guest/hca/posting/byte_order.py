"""Big-endian words through memory views, whose items have the byte order of this machine."""

from __future__ import annotations


def swap32(value: int) -> int:
    """The 32-bit value whose little-endian bytes are the big-endian ones of `value`."""
    return int.from_bytes(value.to_bytes(4, "big"), "little")
