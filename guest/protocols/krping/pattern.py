"""The data of a ping: a counter, then printable characters that roll on from ping to ping."""

from __future__ import annotations

from functools import lru_cache

FIRST, LAST = 65, 122
PERIOD = LAST - FIRST + 1


@lru_cache(maxsize=4)
def _roll(length: int) -> bytes:
    """Return at least `length` rolling characters for a start at any of the first 58."""
    return bytes(range(FIRST, LAST + 1)) * (length // PERIOD + 2)


def ping_data(ping: int, size: int) -> bytes:
    """Return the `size` bytes of ping number `ping`, the last of them NUL."""
    head = b"rdma-ping-%d: " % ping
    start = ping % PERIOD
    return (head + _roll(size)[start : start + size])[: size - 1] + b"\0"


def shown(data: bytes | memoryview) -> str:
    """Return the part of the data that `verbose` prints: up to 64 bytes, to the first NUL."""
    return bytes(data[:64]).split(b"\0", 1)[0].decode("ascii", "backslashreplace")
