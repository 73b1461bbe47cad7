"""The rights of keys."""

from __future__ import annotations

from enum import IntFlag
from typing import Final


class Rights(IntFlag):
    """Accesses that a memory region permits."""

    LOCAL_READ = 1 << 10
    LOCAL_WRITE = 1 << 11
    REMOTE_READ = 1 << 12
    REMOTE_WRITE = 1 << 13
    REMOTE_ATOMIC = 1 << 14
    BIND_WINDOW = 1 << 15


ALL_RIGHTS: Final = 0x3F << 10
EVERYTHING: Final = (1 << 64) - 1
"""Length of a region over all memory."""
REMOTE_CHANGES: Final = int(Rights.REMOTE_WRITE | Rights.REMOTE_ATOMIC)
"""Rights that need LOCAL_WRITE, too (InfiniBand vol. 1, 10.6.3.1)."""


class AccessError(Exception):
    """A key, range or right that does not hold; nothing was touched."""
