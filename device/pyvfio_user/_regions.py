"""Regions that are served without the library: registers for latency, windows for throughput.

A guest's processor waits for each register access. libvfio-user reads a message from the socket in
pieces and calls Python through C; here the access is served from the buffer that was peeked at.
Stores into a window arrive as thousands of messages of eight bytes at most: they are taken off the
socket a buffer at a time, and neighbours are joined. Besides, libvfio-user keeps the size of a
region in 32 bits (vfu_reg_info_t), in which a size of 4 GiB overflows to 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

RunCallback = Callable[[int, bytes, int], None]

LINE: Final = 64
"""Bytes of a line: adjacent stores are joined within one, as write combining does."""


class MappedFile(NamedTuple):
    """A part of a region that clients map to a file: `length` bytes.

    It begins at `start` of both the file and the region.
    """

    fd: int
    start: int
    length: int


@dataclass(frozen=True, slots=True)
class BulkRegion:
    """A window of `size` bytes with `read(offset, length)` and `write(offset, data, width)`.

    `width` is that of each store. Neither function raises, but `read` may return too little: the
    access then fails with EIO.
    """

    size: int
    read: Callable[[int, int], bytes]
    write: RunCallback
    file: MappedFile | None = None


class LineStores(NamedTuple):
    """Joins posted stores to a region from offset `start` on.

    Adjacent stores within a line become one call of `write(offset, data, width of each)`; the
    stores ascend, and none is beyond the line's end.
    """

    start: int
    write: RunCallback


@dataclass(frozen=True, slots=True)
class RegisterRegion:
    """Registers in `size` bytes, accessed by `read(offset, length)` and `write(offset, data)`.

    These calls may raise; the access then fails with the errno that `failed` returns for the
    exception.
    """

    size: int
    read: Callable[[int, int], bytes]
    write: Callable[[int, bytes], None]
    failed: Callable[[BaseException], int]
    lines: LineStores | None = None
