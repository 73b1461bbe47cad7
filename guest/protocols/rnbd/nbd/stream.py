"""The stream of requests that the kernel's nbd module sends, and of its replies, without I/O."""

from __future__ import annotations

import struct
from enum import IntEnum, IntFlag
from typing import NamedTuple

REQUEST_MAGIC = 0x25609513
REPLY_MAGIC = 0x67446698
REQUEST = struct.Struct(">IHHQQI")
"""The format of a request; the data of a WRITE follows.

The fields are magic, command flags, command, cookie, first byte, length.
"""
REPLY = struct.Struct(">IIQ")
"""The format of a reply: magic, errno or 0, cookie; the data of a successful READ follows."""
SCRATCH = 1 << 14
"""The bytes received at once while no data is due: many requests, or one with its data."""


class Command(IntEnum):
    """The commands that the kernel's nbd module sends."""

    READ = 0
    WRITE = 1
    DISC = 2
    FLUSH = 3
    TRIM = 4
    WRITE_ZEROES = 6


class CommandFlag(IntFlag):
    """The flags in the other half of the word that has the command."""

    FUA = 1
    NO_HOLE = 2


class ServerFlag(IntFlag):
    """The flags that tell the kernel what a device can do."""

    HAS_FLAGS = 1
    READ_ONLY = 2
    SEND_FLUSH = 4
    SEND_FUA = 8
    SEND_TRIM = 32
    SEND_WRITE_ZEROES = 64


class NbdRequest(NamedTuple):
    """A request of the kernel: `offset` and `length` are in bytes."""

    flags: int
    command: int
    cookie: int
    offset: int
    length: int


class StreamError(ValueError):
    """The bytes received are no stream of requests."""


class RequestStream:
    """A parser of bytes into requests and the data of writes.

    Receive into `space()`, tell how much came by `filled`, then take requests by `next` until it
    gives None. After a WRITE, `take_data` says where its data belongs; until all of it is there
    (`data_complete`) no other request comes.
    """

    def __init__(self) -> None:
        self._scratch = bytearray(SCRATCH)
        self._view = memoryview(self._scratch)
        self._start = 0
        self._end = 0
        self._data = self._view[:0]
        self._skip = 0

    @property
    def data_complete(self) -> bool:
        """True when all data of the last WRITE has arrived in its place."""
        return not self._data and not self._skip

    def space(self) -> memoryview:
        """Return the memory where the next bytes go; never empty."""
        if self._data:
            return self._data
        if self._start == self._end:
            self._start = self._end = 0
        elif self._start:
            rest = self._end - self._start
            self._view[:rest] = bytes(self._view[self._start : self._end])
            self._start, self._end = 0, rest
        return self._view[self._end :]

    def filled(self, count: int) -> None:
        """Note that `count` bytes were received into the last `space`."""
        if self._data:
            self._data = self._data[count:]
        else:
            self._end += count
            self._drop()

    def next(self) -> NbdRequest | None:
        """Return the next complete request, None if there is none; raises `StreamError`."""
        if not self.data_complete or self._end - self._start < REQUEST.size:
            return None
        magic, flags, command, *rest = REQUEST.unpack_from(self._scratch, self._start)
        if magic != REQUEST_MAGIC:
            raise StreamError(f"{magic:#x} in place of a request")
        self._start += REQUEST.size
        return NbdRequest(flags, command, *rest)

    def take_data(self, into: memoryview) -> None:
        """Receive the data of the WRITE into `into`, which has its length."""
        count = min(len(into), self._end - self._start)
        into[:count] = self._view[self._start : self._start + count]
        self._start += count
        self._data = into[count:]

    def skip_data(self, length: int) -> None:
        """Drop the data of the WRITE."""
        self._skip = length
        self._drop()

    def _drop(self) -> None:
        count = min(self._skip, self._end - self._start)
        self._skip -= count
        self._start += count


def pack_reply(cookie: int, errno: int) -> bytes:
    """Return the head of a reply."""
    return REPLY.pack(REPLY_MAGIC, errno, cookie)
