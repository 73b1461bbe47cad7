"""Frames in which host and agent talk: a stream of them may begin anywhere.

A frame is a header of 32 bytes and a payload:

    0   4  magic
    4   8  session, chosen at random by the host for each connection
    12  1  kind
    13  3  zero
    16  4  channel: one per operation, numbers chosen by the host; of SYNC its own number,
           counted by the host, of HELLO that of the SYNC it answers
    20  4  length of the payload in bytes
    24  4  CRC-32 of the payload
    28  4  CRC-32 of the 28 bytes above

Numbers are big-endian. Bytes that are no frame of the current session are skipped one by one, so
the rest of a frame that an earlier host did not finish reading, or writing, does no harm: the
host opens with SYNC and knows by HELLO that both sides agree where frames begin. A guest restored
from a snapshot may wait for the rest of a frame that never comes; `FILLER` after an unanswered
SYNC completes it, and its checksum then turns it down.

Within a session everything arrives in order. So a HELLO tells the host what became of every
operation that it opened before the SYNC: its end was told earlier, or it is listed, or the agent
does not know it, since the session was ended in between. Nothing is ever waited for in vain.

Flow control is per channel and direction: a sender may have `WINDOW` bytes of DATA and ERROR_DATA
under way, CREDIT allows more. Memory on both sides is bounded by windows times channels.
"""

from __future__ import annotations

import json
import struct
import zlib
from enum import IntEnum
from typing import Any, NamedTuple

MAGIC = b"\xb1\xb5\x1d\xe7"
HEADER_BYTES = 32
FRAME_BYTES = 32 * 1024
"""The longest frame, which is what the virtio-serial driver takes in one write."""
PAYLOAD_BYTES = FRAME_BYTES - HEADER_BYTES
SESSION_BYTES = 8
WINDOW = 256 * 1024
FILLER = bytes(FRAME_BYTES)
"""The bytes that complete any unfinished frame; they hold no magic."""

_FIELDS = struct.Struct(">4s8sB3xIII")
_CHECK = struct.Struct(">I")
_SYNC_PAYLOAD_BYTES = 256


class Kind(IntEnum):
    """The kinds of frames. Payloads marked {} are JSON objects."""

    SYNC = 1
    """Host: begin this session; within it, only ask for HELLO again."""
    HELLO = 2
    """Agent, {}: version, protocol, instance; channels, the operations going on; answers SYNC."""
    OPEN = 3
    """Host, {}: start the operation `op` on a new channel."""
    DATA = 4
    """Standard input or output, or content of a file."""
    ERROR_DATA = 5
    """Standard error."""
    END = 6
    """Host, {}: no more DATA; for a file its size and checksum."""
    CREDIT = 7
    """Number of bytes (32 bits) that were consumed, so may be sent anew."""
    SIGNAL = 8
    """Host: one byte, the signal for the command's process group."""
    CLOSE = 9
    """Host: give the operation up; nothing more is said about the channel."""
    DONE = 10
    """Agent, {}: the operation ended; its result."""
    FAIL = 11
    """Agent, {}: the operation failed; `message` says why, `code` is an errno name or a word."""
    RESIZE = 12
    """Host, {}: `rows` and `columns` that the command's terminal has from now on."""
    SIZE = 13
    """Agent, {}: before DATA of a file, its `size` in bytes; null where that is not known."""


class Frame(NamedTuple):
    """A frame as received."""

    session: bytes
    kind: int
    channel: int
    payload: bytes

    def object(self) -> dict[str, Any]:
        """Return the payload of a {} kind; raises `ValueError` if it is not an object."""
        try:
            value = json.loads(self.payload or b"{}")
        except RecursionError as error:
            raise ValueError("the payload is nested too deep") from error
        if not isinstance(value, dict):
            raise ValueError("the payload is no JSON object")
        return value

    def number(self) -> int:
        """Return the payload of CREDIT or SIGNAL as a number; 0 if it is empty."""
        return int.from_bytes(self.payload[:4], "big")


def encode(session: bytes, kind: int, channel: int, payload: bytes = b"") -> bytes:
    """Return a frame as bytes; `payload` has at most `PAYLOAD_BYTES`."""
    if len(payload) > PAYLOAD_BYTES:
        raise ValueError(f"{len(payload)} bytes do not fit into a frame")
    head = _FIELDS.pack(MAGIC, session, kind, channel, len(payload), zlib.crc32(payload))
    return b"".join((head, _CHECK.pack(zlib.crc32(head)), payload))


def encode_object(session: bytes, kind: int, channel: int, value: dict[str, Any]) -> bytes:
    """Return a frame of a {} kind; raises `ValueError` when it is too long."""
    return encode(session, kind, channel, json.dumps(value).encode())


class FrameReader:
    """A parser of frames in a stream, which holds at most one unfinished frame."""

    def __init__(self, session: bytes | None = None) -> None:
        """Only frames of `session` count; SYNC counts with any session."""
        self.session = session
        self.skipped = 0
        """The number of bytes that belonged to no frame."""
        self._buffer = bytearray()

    def feed(self, data: bytes | memoryview) -> None:
        """Add bytes of the stream; then call `take` until it returns None."""
        self._buffer += data

    def take(self) -> Frame | None:
        """Return the next frame, or None until more is fed."""
        buffer = self._buffer
        while True:
            start = buffer.find(MAGIC)
            if start < 0:
                self._skip(max(0, len(buffer) - len(MAGIC) + 1))
                return None
            self._skip(start)
            if len(buffer) < HEADER_BYTES:
                return None
            _, session, kind, channel, length, check = _FIELDS.unpack_from(buffer)
            if not self._plausible(session, kind, length):
                self._skip(len(MAGIC))
                continue
            end = HEADER_BYTES + length
            if len(buffer) < end:
                return None
            payload = bytes(memoryview(buffer)[HEADER_BYTES:end])
            if zlib.crc32(payload) != check:
                self._skip(len(MAGIC))
                continue
            del buffer[:end]
            return Frame(session, kind, channel, payload)

    def _plausible(self, session: bytes, kind: int, length: int) -> bool:
        """Return True if the header at the start of the buffer is intact and of the session."""
        (check,) = _CHECK.unpack_from(self._buffer, _FIELDS.size)
        if zlib.crc32(memoryview(self._buffer)[: _FIELDS.size]) != check:
            return False
        if kind == Kind.SYNC:
            return bool(length <= _SYNC_PAYLOAD_BYTES)
        return session == self.session and length <= PAYLOAD_BYTES

    def _skip(self, count: int) -> None:
        self.skipped += count
        del self._buffer[:count]
