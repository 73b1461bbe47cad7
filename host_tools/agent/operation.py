"""One operation of the agent on the host's side: its output, its input, its end."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from bluebridge.guest.agent import frames
from bluebridge.guest.agent.frames import WINDOW, Frame, Kind
from bluebridge.host_tools.agent.errors import AgentError, AgentForgot, AgentRefused

_CREDIT_STEP = WINDOW // 4


class Session(Protocol):
    """The part of a connection to the agent that an operation uses."""

    @property
    def guest(self) -> str:
        """The name of the guest."""

    @property
    def changed(self) -> threading.Condition:
        """The lock of all operations, notified whenever a frame came in."""

    def wait(self, ready: Callable[[], bool], deadline: float | None = None) -> bool:
        """Wait, with `changed` held, until `ready()`; return False at `deadline` (monotonic)."""

    def frame(self, kind: Kind, channel: int = 0, payload: bytes = b"") -> bytes:
        """Return an encoded frame of this session."""

    def send(self, frame: bytes) -> None:
        """Send a whole frame. Raises `AgentLost`, `AgentSilent`."""

    def forget(self, number: int) -> None:
        """Forget the operation with that number, so that its frames are ignored."""


class Operation:
    """An operation that `AgentConnection.open` started; the session's condition guards its state.

    `number` is its channel in frames, `what` names it in messages.
    """

    def __init__(self, session: Session, number: int, what: str) -> None:
        self.number = number
        self.over = False
        """Whether the agent has reported the end of the operation."""
        self.asked = False
        """Whether OPEN has been sent, so that the agent's answer to a later SYNC must know it."""
        self._session = session
        self._what = what
        self._received: deque[tuple[Kind, bytes]] = deque()
        self._allowance = WINDOW
        self._owed = 0
        self._result: dict[str, Any] | None = None
        self._failure: AgentError | None = None

    def serve(self, frame: Frame) -> None:
        """Handle a frame from the reading thread, which holds the condition."""
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
                self._session.guest, self._what, str(answer["code"]), str(answer["message"])
            )
            self.over = True

    def lose(self) -> None:
        """Note that the agent does not know the operation; called by the reading thread."""
        self._failure = AgentForgot(self._session.guest, self._what)
        self.over = True

    def receive(self, deadline: float | None = None) -> tuple[Kind, bytes] | None:
        """Return the next piece of output; None at the operation's end.

        Raises `TimeoutError` at `deadline` (monotonic), `AgentRefused` if the operation failed,
        `AgentForgot` if the agent lost it.
        """
        changed = self._session.changed
        with changed:
            arrived = self._session.wait(lambda: bool(self._received) or self.over, deadline)
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
        """Send input as the agent has room for it; return False if the command needs no more."""
        rest = memoryview(data)
        while rest:
            with self._session.changed:
                self._session.wait(lambda: self._allowance > 0 or self.over)
                if self.over:
                    return False
                count = min(self._allowance, len(rest), frames.PAYLOAD_BYTES)
                self._allowance -= count
            self._send(Kind.DATA, bytes(rest[:count]))
            rest = rest[count:]
        return True

    def end(self, summary: dict[str, Any]) -> None:
        """End the input of the command."""
        self._send(Kind.END, json.dumps(summary).encode())

    def signal(self, number: int) -> None:
        """Send the command's process group a signal."""
        self._send(Kind.SIGNAL, bytes([number]))

    def resize(self, rows: int, columns: int) -> None:
        """Give the command's terminal another size."""
        self._send(Kind.RESIZE, json.dumps({"rows": rows, "columns": columns}).encode())

    def give_up(self) -> None:
        """Let the agent stop the operation and undo what it can."""
        self._session.forget(self.number)
        if not self.over:
            self._send(Kind.CLOSE, b"")

    def result(self, deadline: float | None = None) -> dict[str, Any]:
        """Return the operation's result; output before it is dropped. Raises as `receive` does."""
        while self.receive(deadline) is not None:
            pass
        assert self._result is not None
        return self._result

    def _send(self, kind: Kind, payload: bytes) -> None:
        self._session.send(self._session.frame(kind, self.number, payload))
