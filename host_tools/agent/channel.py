"""One operation as the host sees it: what comes in, what may go out, how it ended."""

from __future__ import annotations

import json
from collections import deque
from typing import TYPE_CHECKING, Any

from bluebridge.guest.agent import frames
from bluebridge.guest.agent.frames import WINDOW, Frame, Kind
from bluebridge.host_tools.agent.errors import AgentError, AgentForgot, AgentRefused

if TYPE_CHECKING:
    from bluebridge.host_tools.agent.connection import Connection

_CREDIT_STEP = WINDOW // 4


class Channel:
    """Made by `Connection.open`. The connection's condition guards all of its state."""

    def __init__(self, connection: Connection, number: int, what: str) -> None:
        self.number = number
        self.over = False
        """Whether the agent has said its last word."""
        self.asked = False
        """Whether OPEN is on its way, so that the agent's answer to a later SYNC must know it."""
        self._connection = connection
        self._what = what
        self._received: deque[tuple[Kind, bytes]] = deque()
        self._allowance = WINDOW
        self._owed = 0
        self._result: dict[str, Any] | None = None
        self._failure: AgentError | None = None

    def serve(self, frame: Frame) -> None:
        """Take a frame from the reading thread, which holds the condition."""
        if frame.kind in (Kind.DATA, Kind.ERROR_DATA):
            self._received.append((Kind(frame.kind), frame.payload))
        elif frame.kind == Kind.CREDIT:
            self._allowance += frame.number()
        elif frame.kind == Kind.DONE:
            self._result = frame.object()
            self.over = True
        elif frame.kind == Kind.FAIL:
            answer = frame.object()
            self._failure = AgentRefused(
                self._connection.guest, self._what, str(answer["code"]), str(answer["message"])
            )
            self.over = True

    def lose(self) -> None:
        """The agent does not know the operation; called by the reading thread as `serve` is."""
        self._failure = AgentForgot(self._connection.guest, self._what)
        self.over = True

    def receive(self, deadline: float | None = None) -> tuple[Kind, bytes] | None:
        """The next piece of output; None at the operation's end.

        Raises `TimeoutError` at `deadline` (monotonic), `AgentRefused` if the operation failed,
        `AgentForgot` if the agent lost it.
        """
        changed = self._connection.changed
        with changed:
            arrived = self._connection.wait(lambda: bool(self._received) or self.over, deadline)
            if not arrived:
                raise TimeoutError
            piece = self._received.popleft() if self._received else None
        if piece is not None:
            self._consumed(len(piece[1]))
        elif self._failure is not None:
            raise self._failure
        return piece

    def _consumed(self, count: int) -> None:
        self._owed += count
        if self._owed >= _CREDIT_STEP and not self.over:
            owed, self._owed = self._owed, 0
            self._send(Kind.CREDIT, owed.to_bytes(4, "big"))

    def send(self, data: bytes) -> bool:
        """Send a piece of input when the agent has room; False once it needs no more."""
        rest = memoryview(data)
        while rest:
            with self._connection.changed:
                self._connection.wait(lambda: self._allowance > 0 or self.over)
                if self.over:
                    return False
                count = min(self._allowance, len(rest), frames.PAYLOAD_BYTES)
                self._allowance -= count
            self._send(Kind.DATA, bytes(rest[:count]))
            rest = rest[count:]
        return True

    def end(self, summary: dict[str, Any]) -> None:
        """No more input."""
        self._send(Kind.END, json.dumps(summary).encode())

    def signal(self, number: int) -> None:
        """Send the command's process group a signal."""
        self._send(Kind.SIGNAL, bytes([number]))

    def give_up(self) -> None:
        """Let the agent stop the operation and undo what it can."""
        self._connection.forget(self)
        if not self.over:
            self._send(Kind.CLOSE, b"")

    def result(self, deadline: float | None = None) -> dict[str, Any]:
        """The operation's result; output before it is thrown away. Raises as `receive` does."""
        while self.receive(deadline) is not None:
            pass
        assert self._result is not None
        return self._result

    def _send(self, kind: Kind, payload: bytes) -> None:
        self._connection.send(self._connection.frame(kind, self.number, payload))
