"""One virtio-serial port: its session, its operations, its bounded queue towards the host."""

from __future__ import annotations

import errno
import json
import os
import select
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

from bluebridge.guest.agent import PROTOCOL, VERSION, frames
from bluebridge.guest.agent.frames import WINDOW, Frame, FrameReader, Kind
from bluebridge.guest.agent.loop import READ, WRITE, Handler, Loop, Timer

_CREDIT_STEP = WINDOW // 4
_MESSAGE_CHARS = 500
"""The characters kept at either end of a message, since FAIL must fit into a frame."""

_PIECE_BYTES, _PIECES = 4096, 16
"""The driver hands out a page per read, but reads on into the next piece within one call."""
_TURN_BYTES = 256 * 1024
"""The bytes that one port may bring before others have their turn."""
_ROOM_BYTES = 256 * 1024
"""The bytes waiting for the host from which streams pause."""
_FULL_BYTES = 1024 * 1024
"""The bytes that may wait: then nothing is read, lest a host that never reads fill our memory."""
_MOST_OPERATIONS = 64
GONE_SECONDS = 2.0
"""The time that the port may be without a host before the session ends."""


class OperationError(Exception):
    """An operation failed, with a line for the host's user and a code for its program."""

    def __init__(self, code: str, message: str) -> None:
        if len(message) > 2 * _MESSAGE_CHARS:
            message = f"{message[:_MESSAGE_CHARS]} ... {message[-_MESSAGE_CHARS:]}"
        super().__init__(message)
        self.code = code


def explain(error: Exception) -> OperationError:
    """Return any exception as an `OperationError` of one line and a code."""
    if isinstance(error, OperationError):
        return error
    if isinstance(error, OSError) and error.errno is not None:
        name = errno.errorcode.get(error.errno, str(error.errno))
        where = f"{error.filename}: " if error.filename else ""
        return OperationError(name, f"{where}{error.strerror}")
    return OperationError("request", f"{type(error).__name__}: {error}")


class Operation:
    """The base class of operations, of which subclasses override methods; all of them may raise."""

    def __init__(self, port: ServedPort, number: int) -> None:
        self.loop = port.loop
        self.number = number
        """The channel of this operation in frames."""
        self.allowance = WINDOW
        """The bytes that may be sent before the host grants more."""
        self._port = port
        self._owed = 0
        self._incoming = 0

    # Called by the port.

    def start(self) -> None:
        """Begin the operation, which the port knows by now."""

    def data(self, payload: bytes) -> None:
        """Take a piece of the incoming stream."""

    def end(self, summary: dict[str, Any]) -> None:
        """Take the end of the incoming stream."""

    def signal(self, number: int) -> None:
        """Send the command a signal on behalf of the host."""

    def resize(self, rows: int, columns: int) -> None:
        """Take the new size of the host's terminal."""

    def resume(self) -> None:
        """Continue to send, since the port has room or the host granted more."""

    def abort(self) -> None:
        """Undo, stop and free everything, since the host has gone or given up; must not raise."""

    # Called by the port and by subclasses.

    def receive(self, payload: bytes) -> None:
        """Count incoming bytes against the window, then hand them to `data`."""
        self._incoming += len(payload)
        if self._incoming > WINDOW:
            raise OperationError("flow", "the host sent more than it was allowed to")
        self.data(payload)

    def grant(self, count: int) -> None:
        """Allow as many more bytes as the host has consumed."""
        self.allowance = min(WINDOW, self.allowance + count)
        self.resume()

    def watch(self, fd: int, events: int, handler: Handler) -> None:
        """Watch a file descriptor of this operation; an exception of `handler` ends only it."""

        def guarded(ready: int) -> None:
            try:
                handler(ready)
            except Exception as error:
                self.fail(error)

        self.loop.add(fd, events, guarded)

    def consumed(self, count: int) -> None:
        """Let the host send `count` more bytes, since as many were consumed."""
        self._owed += count
        if self._owed >= _CREDIT_STEP:
            self._incoming -= self._owed
            self._port.send(Kind.CREDIT, self.number, self._owed.to_bytes(4, "big"))
            self._owed = 0

    def may_send(self) -> bool:
        """Return True if a piece of the outgoing stream may be sent now."""
        return self.allowance > 0 and self._port.has_room()

    def emit(self, kind: Kind, payload: bytes) -> None:
        """Send a piece of the outgoing stream; at most `allowance` bytes."""
        self.allowance -= len(payload)
        self._port.send(kind, self.number, payload)

    def tell(self, kind: Kind, **fields: Any) -> None:
        """Send a message that is not the end."""
        self._port.send(kind, self.number, json.dumps(fields).encode())

    def done(self, **result: Any) -> None:
        """End a successful operation with its result."""
        self._port.finish(self, Kind.DONE, result)

    def fail(self, error: Exception) -> None:
        """End a failed operation and free what it holds."""
        reason = explain(error)
        self._port.finish(self, Kind.FAIL, {"code": reason.code, "message": str(reason)})
        self.abort()


class ServedPort:
    """A virtio-serial port, open for the agent's life, whose frames are read and served.

    The port is watched edge-triggered, since a port without a host is always "hung up".
    """

    def __init__(
        self, fd: int, loop: Loop, create: Callable[[ServedPort, int, dict[str, Any]], Operation]
    ) -> None:
        """`create` makes the operation of an OPEN request; raises `OperationError` for nonsense."""
        os.set_blocking(fd, False)
        self.loop = loop
        self.instance = os.urandom(8).hex()
        """A random word of this run of the agent, by which the host notices a restart."""
        self._fd = fd
        self._create = create
        self._reader = FrameReader()
        self._input = memoryview(bytearray(_PIECE_BYTES * _PIECES))
        starts = range(0, len(self._input), _PIECE_BYTES)
        self._pieces = [self._input[start : start + _PIECE_BYTES] for start in starts]
        self._operations: dict[int, Operation] = {}
        self._queue: deque[bytes] = deque()
        self._queued = 0
        self._unsent = memoryview(b"")
        self._doubt: Timer | None = None
        """The timer of the second look while the host seems to be gone."""
        self.unread = True
        """True if the port may have more to read than was read in the last turn."""
        loop.add(fd, READ | WRITE | select.EPOLLET, self._ready)

    @property
    def operations(self) -> int:
        """The number of operations that are going on."""
        return len(self._operations)

    def has_room(self) -> bool:
        """Return True if streams may send."""
        return self._queued < _ROOM_BYTES

    def _ready(self, events: int) -> None:
        self.unread = True
        if events & select.EPOLLHUP:
            self._doubt_host()
        self.turn()

    def _doubt_host(self) -> None:
        """Plan a second look at a port that seems to have no host, and end its session then.

        Linux learns of hosts that come and go by messages of their own, which a work item handles
        some time after the interrupt (virtio_console.c, control_work_handler). So "hung up" may
        still speak of the last host when frames of the next one have been read; to end the session
        of the next one would lose its operations.
        """
        if self._reader.session is not None and self._doubt is None:
            self._doubt = self.loop.later(GONE_SECONDS, self._decide)

    def _decide(self) -> None:
        self._doubt = None
        if self.loop.hung_up(self._fd):
            self.end_session()

    def turn(self) -> None:
        """Write what waits, then read and serve a share of what came."""
        self.flush()
        budget = _TURN_BYTES
        while self.unread and budget > 0 and self._queued < _FULL_BYTES:
            count = self._read()
            budget -= count
            self._reader.feed(self._input[:count])
            while (frame := self._reader.take()) is not None:
                self._serve(frame)
        self.flush()

    def runnable(self) -> bool:
        """Return True if another `turn` would do something without an event."""
        return self.unread and self._queued < _FULL_BYTES

    def _read(self) -> int:
        """Read bytes into `_input`; returns 0 and clears `unread` when the port is empty."""
        try:
            count = os.readv(self._fd, self._pieces)
        except BlockingIOError:
            count = 0
        except OSError as error:  # the port was unplugged, or a socket's other end reset it
            print(f"port: {error}", file=sys.stderr)
            count = 0
        self.unread = count > 0
        return count

    def _serve(self, frame: Frame) -> None:
        if frame.kind == Kind.SYNC:
            self._begin_session(frame.session)
            hello = {"version": VERSION, "protocol": PROTOCOL, "instance": self.instance}
            self._send_object(
                Kind.HELLO, frame.channel, {**hello, "channels": list(self._operations)}
            )
        elif frame.kind == Kind.OPEN:
            self._open(frame)
        elif (operation := self._operations.get(frame.channel)) is not None:
            try:
                self._pass_on(operation, frame)
            except Exception as error:
                operation.fail(error)

    def _begin_session(self, session: bytes) -> None:
        if session == self._reader.session:
            return
        self.end_session()
        self._reader.session = session
        if self.loop.hung_up(self._fd):  # its end will make no new edge
            self._doubt_host()

    def end_session(self) -> None:
        """Stop all operations of the host; a frame already begun is still finished."""
        for operation in list(self._operations.values()):
            operation.abort()
        self._operations.clear()
        self._queue.clear()
        self._queued = len(self._unsent)
        self._reader.session = None
        if self._doubt is not None:
            self._doubt.cancel()
            self._doubt = None

    def _open(self, frame: Frame) -> None:
        if frame.channel in self._operations:
            return self._refuse(frame.channel, "request", "the channel is in use")
        if len(self._operations) >= _MOST_OPERATIONS:
            return self._refuse(frame.channel, "busy", f"more than {_MOST_OPERATIONS} at once")
        try:
            operation = self._create(self, frame.channel, frame.object())
        except Exception as error:  # whatever it is, the host waits for an answer
            reason = explain(error)
            return self._refuse(frame.channel, reason.code, str(reason))
        self._operations[frame.channel] = operation
        try:
            operation.start()
        except Exception as error:
            operation.fail(error)
        return None

    def _refuse(self, channel: int, code: str, message: str) -> None:
        self._send_object(Kind.FAIL, channel, {"code": code, "message": message})

    def _pass_on(self, operation: Operation, frame: Frame) -> None:
        if frame.kind == Kind.DATA:
            operation.receive(frame.payload)
        elif frame.kind == Kind.END:
            operation.end(frame.object())
        elif frame.kind == Kind.CREDIT:
            operation.grant(frame.number())
        elif frame.kind == Kind.SIGNAL:
            operation.signal(frame.number())
        elif frame.kind == Kind.RESIZE:
            size = frame.object()
            operation.resize(int(size["rows"]), int(size["columns"]))
        elif frame.kind == Kind.CLOSE:
            del self._operations[operation.number]
            operation.abort()

    def finish(self, operation: Operation, kind: Kind, result: dict[str, Any]) -> None:
        """Send an operation's last frame and forget it; nothing if forgotten already."""
        if self._operations.get(operation.number) is operation:
            self._send_object(kind, operation.number, result)  # too long? then `fail` comes next
            del self._operations[operation.number]

    def _send_object(self, kind: Kind, channel: int, value: dict[str, Any]) -> None:
        session = self._reader.session
        if session is not None:
            self._put(frames.encode_object(session, kind, channel, value))

    def send(self, kind: Kind, number: int, payload: bytes) -> None:
        """Queue a frame of operation `number` for the host, if there is one."""
        session = self._reader.session
        if session is not None:
            self._put(frames.encode(session, kind, number, payload))

    def _put(self, frame: bytes) -> None:
        self._queue.append(frame)
        self._queued += len(frame)

    def flush(self) -> None:
        """Write until the port takes no more; then let streams refill the queue."""
        while self._write():
            if self.has_room():
                for operation in list(self._operations.values()):
                    try:
                        operation.resume()
                    except Exception as error:
                        operation.fail(error)

    def _write(self) -> bool:
        """Write one frame or a part of it; False when nothing could be written."""
        if not self._unsent:
            if not self._queue:
                return False
            self._unsent = memoryview(self._queue.popleft())
        try:
            count = os.write(self._fd, self._unsent)
        except BlockingIOError:
            return False
        except OSError as error:
            print(f"port: {error}", file=sys.stderr)
            count = len(self._unsent)  # there is no host to read it
        self._unsent = self._unsent[count:]
        self._queued -= count
        return count > 0
