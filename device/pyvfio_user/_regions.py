"""Regions that are served without the library: registers for latency, windows for throughput.

A guest's processor waits for each register access. libvfio-user reads a message from the socket in
pieces and calls Python through C; here the access is served from the buffer that was peeked at.
Stores into a window arrive as thousands of messages of eight bytes at most: they are taken off the
socket a buffer at a time, and neighbours are joined. Besides, libvfio-user keeps the size of a
region in 32 bits (vfu_reg_info_t), in which 4 GiB are 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple


class MappedFile(NamedTuple):
    """A part of a region that clients map: `length` bytes at `start` of file and region."""

    fd: int
    start: int
    length: int


RunCallback = Callable[[int, bytes, int], None]

LINE: Final = 64
"""Bytes of a line: stores are joined within one, as write combining does."""


@dataclass(frozen=True, slots=True)
class BulkRegion:
    """A window of `size` bytes: `read(offset, length)`, `write(offset, data, width of each)`.

    Neither raises, but `read` may return too little: the access then fails with EIO.
    """

    size: int
    read: Callable[[int, int], bytes]
    write: RunCallback
    file: MappedFile | None = None


class LineStores(NamedTuple):
    """Posted stores from `start` of a region on: adjacent ones of a line are one call of `write`.

    `write(offset, data, width of each)`; the stores ascend, and none is beyond the line's end.
    """

    start: int
    write: RunCallback


@dataclass(frozen=True, slots=True)
class RegisterRegion:
    """Registers in `size` bytes: `read(offset, length)`, `write(offset, data)`.

    Calls may raise, which fails the access with the errno that `failed` makes of it.
    """

    size: int
    read: Callable[[int, int], bytes]
    write: Callable[[int, bytes], None]
    failed: Callable[[BaseException], int]
    lines: LineStores | None = None
