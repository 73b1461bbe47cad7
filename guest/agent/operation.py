"""The base class of one operation of the host: a process or a file transfer."""

from __future__ import annotations

import errno
from typing import Any, Protocol

from bluebridge.guest.agent.frames import WINDOW, Kind
from bluebridge.guest.agent.loop import Handler, Loop

_CREDIT_STEP = WINDOW // 4
_MESSAGE_CHARS = 500
"""The characters kept at either end of a message, since FAIL must fit into a frame."""


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


class Outlet(Protocol):
    """The part of a port that an operation uses towards the host."""

    @property
    def loop(self) -> Loop:
        """The loop that watches file descriptors and timers."""

    def send(self, kind: Kind, number: int, payload: bytes) -> None:
        """Queue a frame of operation `number` for the host."""

    def has_room(self) -> bool:
        """Return True if streams may send."""

    def finish(self, operation: Operation, kind: Kind, result: dict[str, Any]) -> None:
        """Send an operation's last frame and forget it; nothing if forgotten already."""


class Operation:
    """The base class of operations, of which subclasses override methods; all of them may raise."""

    def __init__(self, outlet: Outlet, number: int) -> None:
        self.loop = outlet.loop
        self.number = number
        """The channel of this operation in frames."""
        self.allowance = WINDOW
        """The bytes that may be sent before the host grants more."""
        self._outlet = outlet
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
            self._outlet.send(Kind.CREDIT, self.number, self._owed.to_bytes(4, "big"))
            self._owed = 0

    def may_send(self) -> bool:
        """Return True if a piece of the outgoing stream may be sent now."""
        return self.allowance > 0 and self._outlet.has_room()

    def emit(self, kind: Kind, payload: bytes) -> None:
        """Send a piece of the outgoing stream; at most `allowance` bytes."""
        self.allowance -= len(payload)
        self._outlet.send(kind, self.number, payload)

    def done(self, **result: Any) -> None:
        """End a successful operation with its result."""
        self._outlet.finish(self, Kind.DONE, result)

    def fail(self, error: Exception) -> None:
        """End a failed operation and free what it holds."""
        reason = explain(error)
        self._outlet.finish(self, Kind.FAIL, {"code": reason.code, "message": str(reason)})
        self.abort()
