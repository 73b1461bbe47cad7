"""One operation of the host: what commands and file transfers have in common."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from bluebridge.guest.agent.frames import WINDOW, Kind
from bluebridge.guest.agent.loop import Handler

if TYPE_CHECKING:
    from bluebridge.guest.agent.link import Link

_CREDIT_STEP = WINDOW // 4
_MESSAGE_CHARS = 500
"""At either end of a message; it may quote what the host sent, and FAIL must fit into a frame."""


class OperationError(Exception):
    """What the host is told in FAIL: a line for its user and a word for its program."""

    def __init__(self, code: str, message: str) -> None:
        if len(message) > 2 * _MESSAGE_CHARS:
            message = f"{message[:_MESSAGE_CHARS]} ... {message[-_MESSAGE_CHARS:]}"
        super().__init__(message)
        self.code = code


def explain(error: Exception) -> OperationError:
    """Any exception as one line."""
    if isinstance(error, OperationError):
        return error
    if isinstance(error, OSError) and error.errno is not None:
        name = errno.errorcode.get(error.errno, str(error.errno))
        where = f"{error.filename}: " if error.filename else ""
        return OperationError(name, f"{where}{error.strerror}")
    return OperationError("request", f"{type(error).__name__}: {error}")


class Channel:
    """Base of operations. Subclasses override what concerns them; all of it may raise."""

    def __init__(self, link: Link, number: int) -> None:
        self.link = link
        self.number = number
        self.allowance = WINDOW
        """Bytes we may send before the host grants more."""
        self._owed = 0
        self._incoming = 0

    # Called by the link.

    def start(self) -> None:
        """Begin; called once the link knows the channel."""

    def data(self, payload: bytes) -> None:
        """A piece of the incoming stream."""

    def end(self, summary: dict[str, Any]) -> None:
        """The incoming stream is complete."""

    def signal(self, number: int) -> None:
        """The host sends the command a signal."""

    def resume(self) -> None:
        """There is room in the link or new allowance: send on."""

    def abort(self) -> None:
        """The host gave up or went away: undo, stop, free everything. Must not raise."""

    # Called by the link and by subclasses.

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

        self.link.loop.add(fd, events, guarded)

    def consumed(self, count: int) -> None:
        """`count` incoming bytes are dealt with: let the host send as many again."""
        self._owed += count
        if self._owed >= _CREDIT_STEP:
            self._incoming -= self._owed
            self.link.send(Kind.CREDIT, self.number, self._owed.to_bytes(4, "big"))
            self._owed = 0

    def may_send(self) -> bool:
        """Whether a piece of the outgoing stream may go out now."""
        return self.allowance > 0 and self.link.has_room()

    def emit(self, kind: Kind, payload: bytes) -> None:
        """Send a piece of the outgoing stream; at most `allowance` bytes."""
        self.allowance -= len(payload)
        self.link.send(kind, self.number, payload)

    def done(self, **result: Any) -> None:
        """The last word of a channel that went well."""
        self.link.finish(self, Kind.DONE, result)

    def fail(self, error: Exception) -> None:
        """The last word of a channel that did not; frees what it holds."""
        reason = explain(error)
        self.link.finish(self, Kind.FAIL, {"code": reason.code, "message": str(reason)})
        self.abort()
