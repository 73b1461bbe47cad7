"""NTRDMA without a bridge: stores into the peer's memory travel over TCP.

Addresses are offsets into an arena, which begins with the scratchpads. A peer that breaks the
format loses the connection, one that stores where nothing is has its store dropped.
"""

from __future__ import annotations

import contextlib
import mmap
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from itertools import islice

from bluebridge.device.layout.ntrdma.port import TAG, MessageKind
from bluebridge.guest.bus.dma_memory import Arena
from bluebridge.guest.bus.interface import DmaMemory
from bluebridge.guest.ntrdma.engine.transport import Message
from bluebridge.guest.ntrdma.transports.back_end import News

HEADER = struct.Struct("<QIIQQ")
BUFFER_BYTES = 64 << 10
MOST_RECEIVED = 4 << 20
"""Bytes that one call takes at most."""
_KINDS = (MessageKind.DATA, MessageKind.SIGNAL, MessageKind.IMMEDIATE)

ARENA_BYTES = 64 << 20
FIRST_ADDRESS = 4096
SPADS = 16
RETRY_SECONDS = 0.2
CLOSE_SECONDS = 1.0
_MOST_IOVECS = 64
_HUGE = 1 << 62


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
            target = self._target if self._missing >= BUFFER_BYTES else None
            try:
                count = stream.recv_into(self._buffer[self._end :] if target is None else target)
            except BlockingIOError:
                return
            if not count:
                raise ConnectionError("the peer has closed the connection")
            taken += count
            if target is None:
                self._end += count
                self._parse()
            else:
                self._missing -= count
                self._target = target[count:]

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
        part = min(self._missing, self._end - self._begin)
        if self._target is not None:
            self._target[:part] = self._buffer[self._begin : self._begin + part]
            self._target = self._target[part:]
        self._begin += part
        self._missing -= part
        return not self._missing


class TcpTransport:
    """`BackEnd` over TCP. `place` is `s:ADDRESS:PORT` (wait there) or `c:ADDRESS:PORT` (connect).

    Port 0 takes a free one, see `port`. Raises `OSError` when the place cannot be listened at.
    """

    seen_in_memory = False

    def __init__(self, place: str, size: int = ARENA_BYTES) -> None:
        role, address, port = place.split(":")
        self.message = Message(0, 1)
        self.span = FIRST_ADDRESS, size - FIRST_ADDRESS
        self.posted = self.done = 0
        self._memory = memoryview(mmap.mmap(-1, size))
        self._spads = self._memory[: 4 * SPADS].cast("I")
        self.arena = Arena()
        self.arena.add(FIRST_ADDRESS, self._memory[FIRST_ADDRESS:])
        self._let_in = False
        self._into_memory = False
        """Whether the store that came last is not one to a scratchpad."""
        self._out: deque[tuple[bytes | memoryview, bool]] = deque()
        """Bytes to send; True with the last of a store."""
        self._news = News()
        self._stream: socket.socket | None = None
        self._receiver = Receiver(self._arrived, self._signalled)
        self._place = (address, int(port)) if role == "c" else None
        self._retry_at = 0.0
        self._listener: socket.socket | None = None
        if role == "s":
            self._listener = socket.create_server((address, int(port)))
            self._listener.setblocking(False)

    @property
    def port(self) -> int:
        """The TCP port that it listens on."""
        assert self._listener is not None
        number: int = self._listener.getsockname()[1]
        return number

    # -- memory ---------------------------------------------------------------------------------

    def map(self, length: int, align: int = 4096) -> DmaMemory:
        memory = self.arena.allocate(length, align)
        if memory is None:
            raise MemoryError(f"{length} bytes do not fit into the memory for NTRDMA over TCP")
        return memory

    def reaches(self, address: int, length: int) -> bool:
        """Anything may be named: the peer drops what it does not have."""
        return 0 <= address <= address + length <= _HUGE

    def open(self) -> None:
        self._let_in = True

    def shut(self) -> None:
        """Drop stores, the rest of one that has begun to come too."""
        self._let_in = False
        if self._into_memory:
            self._receiver.drop()

    def load_spad(self, index: int) -> int:
        value: int = self._spads[index]
        return value

    # -- stores ---------------------------------------------------------------------------------

    def write(self, target: int, data: bytes) -> None:
        self._send(MessageKind.DATA, target, data)

    def copy(self, source: int, target: int, length: int) -> None:
        """Send own memory; it is read when it leaves."""
        self._send(MessageKind.DATA, target, self._memory[source : source + length])

    def imm32(self, target: int, value: int) -> None:
        self._send(MessageKind.IMMEDIATE, target, value.to_bytes(4, "little"))

    def word(self, target: int, value: int) -> None:
        """Store a word: a stream keeps everything in order."""
        self.imm32(target, value)

    def fence(self) -> None:
        """A stream keeps everything in order."""

    def signal(self, message: Message) -> None:
        self._send(MessageKind.SIGNAL, message.address, b"")

    def store_spad(self, index: int, value: int) -> None:
        self._send(MessageKind.DATA, 4 * index, value.to_bytes(4, "little"))

    def _send(self, kind: MessageKind, address: int, data: bytes | memoryview) -> None:
        self.posted += 1
        if self._stream is None:
            self.done = self.posted
            return
        header = HEADER.pack(TAG, kind, len(data), address, TAG)
        if len(data) <= 256:
            self._out.append((header + data, True))
        else:
            self._out.append((header, False))
            self._out.append((data, True))

    def flush(self) -> None:
        while self._out and self._stream is not None:
            pieces = [piece for piece, _ in islice(self._out, _MOST_IOVECS)]
            try:
                # Programs leave SIGPIPE as it is, for their output.
                sent = self._stream.sendmsg(pieces, (), socket.MSG_NOSIGNAL)
            except BlockingIOError:
                return
            except OSError:
                self._lose()
                return
            self._sent(sent)

    def _sent(self, count: int) -> None:
        out = self._out
        while count:
            piece, last = out[0]
            if count < len(piece):
                out[0] = memoryview(piece)[count:], last
                return
            count -= len(piece)
            out.popleft()
            self.done += last

    # -- events ---------------------------------------------------------------------------------

    @property
    def wait_for(self) -> list[tuple[int, int]]:
        found = []
        if self._stream is not None:
            events = select.POLLIN | (select.POLLOUT if self._out else 0)
            found.append((self._stream.fileno(), events))
        elif self._listener is not None:
            found.append((self._listener.fileno(), select.POLLIN))
        return found

    @property
    def pause(self) -> float:
        """The time in seconds until it is time to connect anew."""
        if self._stream is not None or self._place is None:
            return 1.0
        return max(0.0, self._retry_at - time.monotonic())

    def serve(self, silent: bool = False) -> News:
        """Take what has come; a stream that breaks says so itself."""
        if self._stream is None:
            self._connect()
        if self._stream is not None:
            try:
                self._receiver.receive(self._stream)
            except OSError:
                self._lose()
            self.flush()
        news, self._news = self._news, News()
        return news

    def _connect(self) -> None:
        stream = None
        if self._listener is not None:
            with contextlib.suppress(BlockingIOError):
                stream = self._listener.accept()[0]
        elif self._place is not None and time.monotonic() >= self._retry_at:
            self._retry_at = time.monotonic() + RETRY_SECONDS
            with contextlib.suppress(OSError):
                stream = socket.create_connection(self._place, timeout=1.0)
        if stream is not None:
            stream.setblocking(False)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._stream = stream
            self._receiver.restart()
            self._news.links.append(True)

    def abandon(self) -> None:
        """The connection ends: what the peer has not taken is lost with it."""
        self._lose()

    def _lose(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
            self._out.clear()
            self.done = self.posted
            self._news.links.append(False)

    def _arrived(self, address: int, length: int) -> memoryview | None:
        """Where a store of the peer goes; None drops it. Raises `OSError` for nonsense."""
        self._into_memory = address >= FIRST_ADDRESS
        if address + length > len(self._memory):
            return None
        if address + length <= 4 * SPADS or (self._let_in and address >= FIRST_ADDRESS):
            return self._memory[address : address + length]
        return None

    def _signalled(self) -> None:
        self._news.signalled = True

    def drain(self) -> None:
        end = time.monotonic() + CLOSE_SECONDS
        self.flush()
        while self._out and self._stream is not None and time.monotonic() < end:
            select.select([], [self._stream], [], 0.05)
            self.flush()

    def close(self) -> None:
        self.drain()
        self._lose()
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        self._place = None
