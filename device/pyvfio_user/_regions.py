"""Regions that are served past the library: registers for speed, windows for bulk and for size.

A register access is what a guest's processor waits for. libvfio-user takes a message off the
socket in pieces and calls Python through C; here the message that was looked at is the one that is
served. What a guest stores into a window comes as thousands of messages of eight bytes at most:
they are taken off the socket a buffer at a time, and neighbours are joined. And libvfio-user keeps
the size of a region in 32 bits (vfu_reg_info_t), which turns 4 GiB into nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

MOST = 8192
"""Bytes of the longest access."""


class MappedFile(NamedTuple):
    """A stretch of a region that clients map: it begins at `start` in `fd` and region alike."""

    fd: int
    start: int
    length: int


RunCallback = Callable[[int, bytes, int], None]


@dataclass(frozen=True, slots=True)
class BulkRegion:
    """A window of `size` bytes: `read(offset, length)`, `write(offset, data, width of each)`.

    Neither raises, but `read` may return too little: the access then fails with EIO.
    """

    size: int
    read: Callable[[int, int], bytes]
    write: RunCallback
    file: MappedFile | None = None


@dataclass(frozen=True, slots=True)
class RegisterRegion:
    """Registers in `size` bytes: `read(offset, length)`, `write(offset, data)`.

    Both may raise, which fails the access with the errno that `failed` makes of it.
    """

    size: int
    read: Callable[[int, int], bytes]
    write: Callable[[int, bytes], None]
    failed: Callable[[BaseException], int]
