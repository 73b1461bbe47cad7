"""The access rights of memory keys."""

from __future__ import annotations

from enum import IntFlag
from typing import Final


class Rights(IntFlag):
    """Accesses that a memory region or window permits."""

    LOCAL_READ = 1 << 10
    LOCAL_WRITE = 1 << 11
    REMOTE_READ = 1 << 12
    REMOTE_WRITE = 1 << 13
    REMOTE_ATOMIC = 1 << 14
    BIND_WINDOW = 1 << 15


ALL_RIGHTS: Final = 0x3F << 10
EVERYTHING: Final = (1 << 64) - 1
"""Length in bytes of a region over the whole address space."""
REMOTE_CHANGES: Final = int(Rights.REMOTE_WRITE | Rights.REMOTE_ATOMIC)
"""Rights that a region may have only with LOCAL_WRITE (InfiniBand vol. 1, 10.6.3.1)."""


class AccessError(Exception):
    """A key, range or right is not valid for an access; no memory was touched."""
