"""One operation of the host: what processes and file transfers have in common."""

from __future__ import annotations

import errno
from typing import Any, Protocol

from bluebridge.guest.agent.frames import WINDOW, Kind
from bluebridge.guest.agent.loop import Handler, Loop

_CREDIT_STEP = WINDOW // 4
_MESSAGE_CHARS = 500
"""At either end of a message; it may quote what the host sent, and FAIL must fit into a frame."""


class OperationError(Exception):
    """The content of FAIL: a line for the user of the host and a code for its program."""

    def __init__(self, code: str, message: str) -> None:
        if len(message) > 2 * _MESSAGE_CHARS:
            message = f"{message[:_MESSAGE_CHARS]} ... {message[-_MESSAGE_CHARS:]}"
        super().__init__(message)
        self.code = code


def explain(error: Exception) -> OperationError:
    """Any exception as one line and a code."""
    if isinstance(error, OperationError):
        return error
    if isinstance(error, OSError) and error.errno is not None:
        name = errno.errorcode.get(error.errno, str(error.errno))
        where = f"{error.filename}: " if error.filename else ""
        return OperationError(name, f"{where}{error.strerror}")
    return OperationError("request", f"{type(error).__name__}: {error}")


class Outlet(Protocol):
    """The way to the host, as an operation uses it."""

    @property
    def loop(self) -> Loop:
        """The loop that watches file descriptors and timers."""

    def send(self, kind: Kind, number: int, payload: bytes) -> None:
        """Queue a frame of operation `number` for the host."""

    def has_room(self) -> bool:
        """Whether streams may send."""

    def finish(self, operation: Operation, kind: Kind, result: dict[str, Any]) -> None:
        """Send the last frame of an operation and forget it; nothing if it is forgotten."""


class Operation:
    """Base of operations. Subclasses override what concerns them; all of it may raise."""

    def __init__(self, outlet: Outlet, number: int) -> None:
        self.loop = outlet.loop
        self.number = number
        """The channel of this operation in frames."""
        self.allowance = WINDOW
        """Bytes we may send before the host grants more."""
        self._outlet = outlet
        self._owed = 0
        self._incoming = 0

    # Called by the port.

    def start(self) -> None:
        """Begin; called once the port knows the operation."""

    def data(self, payload: bytes) -> None:
        """A piece of the incoming stream."""

    def end(self, summary: dict[str, Any]) -> None:
        """The incoming stream is complete."""

    def signal(self, number: int) -> None:
        """The host sends the command a signal."""

    def resize(self, rows: int, columns: int) -> None:
        """The host's terminal has another size."""

    def resume(self) -> None:
        """The port has room or the host granted more: send on."""

    def abort(self) -> None:
        """The host gave up or went away: undo, stop, free everything. Must not raise."""

    # Called by the port and by subclasses.

    def receive(self, payload: bytes) -> None:
        """Count incoming bytes against the window, then hand them to `data`."""
        self._incoming += len(payload)
        if self._incoming > WINDOW:
            raise OperationError("flow", "the host sent more than it was allowed to")
        self.data(payload)

    def grant(self, count: int) -> None:
        """The host consumed `count` bytes."""
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
        """`count` incoming bytes are dealt with: let the host send as many again."""
        self._owed += count
        if self._owed >= _CREDIT_STEP:
            self._incoming -= self._owed
            self._outlet.send(Kind.CREDIT, self.number, self._owed.to_bytes(4, "big"))
            self._owed = 0

    def may_send(self) -> bool:
        """Whether a piece of the outgoing stream may go out now."""
        return self.allowance > 0 and self._outlet.has_room()

    def emit(self, kind: Kind, payload: bytes) -> None:
        """Send a piece of the outgoing stream; at most `allowance` bytes."""
        self.allowance -= len(payload)
        self._outlet.send(kind, self.number, payload)

    def done(self, **result: Any) -> None:
        """End an operation that went well, with its result."""
        self._outlet.finish(self, Kind.DONE, result)

    def fail(self, error: Exception) -> None:
        """End an operation that did not; frees what it holds."""
        reason = explain(error)
        self._outlet.finish(self, Kind.FAIL, {"code": reason.code, "message": str(reason)})
        self.abort()
