"""Messages out of a TCP stream, their data put where it belongs."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable

from bluebridge.device.layout.ntrdma.stream import TAG, MessageKind

HEADER = struct.Struct("<QIIQQ")
BUFFER_BYTES = 64 << 10
MOST_RECEIVED = 4 << 20
"""Bytes that one call takes at most."""
_KINDS = (MessageKind.DATA, MessageKind.SIGNAL, MessageKind.IMMEDIATE)


class Receiver:
    """Parses a stream. `place` says where a store goes (None: nowhere); `signalled` is an event."""

    def __init__(
        self, place: Callable[[int, int], memoryview | None], signalled: Callable[[], None]
    ) -> None:
        self._place, self._signalled = place, signalled
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self.restart()

    def restart(self) -> None:
        """Begin a new stream."""
        self._begin = self._end = 0
        self._target: memoryview | None = None
        self._missing = 0

    def drop(self) -> None:
        """The rest of the store that is coming goes nowhere."""
        self._target = None

    def receive(self, stream: socket.socket) -> None:
        """Take what has come, up to `MOST_RECEIVED` bytes. Raises `OSError` at the stream's end."""
        taken = 0
        while taken < MOST_RECEIVED:
            direct = self._missing >= BUFFER_BYTES and self._target is not None
            try:
                if direct and self._target is not None:
                    count = stream.recv_into(self._target)
                else:
                    count = stream.recv_into(self._buffer[self._end :])
            except BlockingIOError:
                return
            if not count:
                raise ConnectionError("the peer has closed the connection")
            taken += count
            if direct and self._target is not None:
                self._missing -= count
                self._target = self._target[count:]
            else:
                self._end += count
                self._parse()

    def _parse(self) -> None:
        """Take whole headers, and data as far as it is there."""
        while True:
            if self._missing and not self._take_data():
                break
            if self._end - self._begin < HEADER.size:
                break
            tag, kind, length, address, end_tag = HEADER.unpack_from(self._buffer, self._begin)
            if tag != TAG or end_tag != TAG or kind not in _KINDS:
                raise ConnectionError("the peer does not speak NTRDMA")
            self._begin += HEADER.size
            if kind == MessageKind.SIGNAL:
                self._signalled()
            self._target = self._place(address, length)
            self._missing = length
        self._buffer[: self._end - self._begin] = self._buffer[self._begin : self._end]
        self._begin, self._end = 0, self._end - self._begin

    def _take_data(self) -> bool:
        """Data of the message that is under way; whether it is complete."""
        part = min(self._missing, self._end - self._begin)
        if self._target is not None:
            self._target[:part] = self._buffer[self._begin : self._begin + part]
            self._target = self._target[part:]
        self._begin += part
        self._missing -= part
        return not self._missing
