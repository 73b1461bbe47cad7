"""One session with the agent: a thread reads frames, any thread may send and wait.

No lock guards what the threads share: an exception out of a signal's handler could leave it taken,
or fall where a condition does not hold it. The reading thread changes a thing in one step and then
wakes those who wait; what others change they change in one step too.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from bluebridge.guest.agent import PROTOCOL, frames
from bluebridge.guest.agent.frames import WINDOW, Frame, FrameReader, Kind
from bluebridge.host_tools import processes
from bluebridge.host_tools.agent import messages
from bluebridge.host_tools.agent.errors import (
    AgentError,
    AgentForgot,
    AgentLost,
    AgentRefused,
    AgentSilent,
)
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.processes import Alarm

_READ_BYTES = 256 * 1024
_SLICE = 0.2
"""The seconds between two looks at the alarms during a wait."""
_FILLER_AFTER = 0.3
"""The seconds after which an unanswered SYNC is taken for a guest stuck in an old frame."""
_REPEAT = 2.0
"""The seconds of a wait after which the agent is asked whether it still knows our operations."""
_SILENCE = 30.0
"""The seconds without any frame after which a guest is taken to hang."""
_SEND_SECONDS = 30
_CREDIT_STEP = WINDOW // 4


class Operation:
    """An operation that `AgentConnection.open` started; its reading thread tells it frames.

    `number` is its channel in frames, `what` names it in messages, `result` is what its result has.
    """

    def __init__(
        self, session: AgentConnection, number: int, what: str, result: messages.Table
    ) -> None:
        self.number = number
        self.over = False
        """Whether the agent has reported the end of the operation."""
        self.asked = False
        """Whether OPEN has been sent, so that the agent's answer to a later SYNC must know it."""
        self.announced: dict[str, Any] | None = None
        """The agent's announcement of a file; None as long as there is none."""
        self._session = session
        self._what = what
        self._table = result
        self._taken = 0
        """The bytes of output that came in, counted by the reading thread."""
        self._allowed = WINDOW
        """The bytes of output that the agent may have sent up to now."""
        self._received: deque[tuple[Kind, bytes]] = deque()
        self._granted = WINDOW
        self._sent = 0
        self._owed = 0
        self._result: dict[str, Any] | None = None
        self._failure: AgentError | None = None

    def serve(self, frame: Frame) -> None:
        """Handle a frame; called by the reading thread. Raises `ValueError` for nonsense."""
        if frame.kind in (Kind.DATA, Kind.ERROR_DATA):
            self._take(Kind(frame.kind), frame.payload)
        elif frame.kind == Kind.CREDIT:
            self._granted += frame.number()
        elif frame.kind == Kind.SIZE:
            self.announced = messages.checked(frame.object(), messages.SIZE)
        elif frame.kind == Kind.DONE:
            self._result = messages.checked(frame.object(), self._table)
            self.over = True
        elif frame.kind == Kind.FAIL:
            answer = messages.checked(frame.object(), messages.FAILURE)
            self._failure = AgentRefused(
                self._session.guest, self._what, answer["code"], answer["message"]
            )
            self.over = True

    def _take(self, kind: Kind, payload: bytes) -> None:
        """Keep a piece of output. The agent is held to its window, so what is kept is bounded."""
        self._taken += len(payload)
        if not payload or self._taken > self._allowed:
            raise ValueError("it sends more than it was allowed to" if payload else "empty output")
        self._received.append((kind, payload))

    def lose(self) -> None:
        """Note that the agent does not know the operation; called by the reading thread."""
        self._failure = AgentForgot(self._session.guest, self._what)
        self.over = True

    def receive(self, deadline: float | None = None) -> tuple[Kind, bytes] | None:
        """Return the next piece of output; None at the operation's end.

        Raises `TimeoutError` at `deadline` (monotonic), `AgentRefused` if the operation failed,
        `AgentForgot` if the agent lost it.
        """
        if not self._session.wait(lambda: bool(self._received) or self.over, deadline):
            raise TimeoutError
        piece = self._received.popleft() if self._received else None
        if piece is not None:
            self._owed += len(piece[1])
            if self._owed >= _CREDIT_STEP and not self.over:
                owed, self._owed = self._owed, 0
                self._allowed += owed
                self._send(Kind.CREDIT, owed.to_bytes(4, "big"))
        elif self._failure is not None:
            raise self._failure
        return piece

    def size(self) -> int | None:
        """Wait for the announcement of a file; return its size, None where it is not known."""
        self._session.wait(lambda: self.announced is not None or bool(self._received) or self.over)
        return None if self.announced is None else self.announced["size"]

    def send(self, data: bytes) -> bool:
        """Send input as the agent has room for it; return False if the command needs no more."""
        rest = memoryview(data)
        while rest:
            self._session.wait(lambda: self._granted > self._sent or self.over)
            if self.over:
                return False
            count = min(self._granted - self._sent, len(rest), frames.PAYLOAD_BYTES)
            self._sent += count
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
        """Let the agent stop the operation and undo what it can; a thread that waits goes on."""
        self._session.forget(self.number)
        if not self.over:
            self._send(Kind.CLOSE, b"")
            self._failure = AgentError(f"guest {self._session.guest}: {self._what} was given up")
            self.over = True

    def result(self, deadline: float | None = None) -> dict[str, Any]:
        """Return the operation's result; output before it is dropped. Raises as `receive` does."""
        while self.receive(deadline) is not None:
            pass
        assert self._result is not None
        return self._result

    def _send(self, kind: Kind, payload: bytes) -> None:
        self._session.send(self._session.frame(kind, self.number, payload))


class AgentConnection:
    """Frames to and from one agent; every wait looks at `alarms` and notices a hanging guest."""

    def __init__(self, guest: str, connection: socket.socket, silence: float = _SILENCE) -> None:
        """Take over a connected socket; `synchronise` must come next."""
        self.guest = guest
        self.alarms: list[Alarm] = []
        """The alarms whose messages explain a lost connection better than its own error."""
        self.hello: dict[str, Any] = {}
        self._silence = silence
        self._socket = connection
        self._session = os.urandom(frames.SESSION_BYTES)
        self._operations: dict[int, Operation] = {}
        self._channels = itertools.count(1)
        self._syncs = itertools.count(1)
        self._expected: dict[int, list[Operation]] = {}
        """The operations opened before each unanswered SYNC, by the number of the SYNC."""
        self._waiting: set[queue.SimpleQueue[None]] = set()
        """One queue for each `wait`, which gets an item whenever a frame came in."""
        self._sending = threading.Lock()
        self._lost: AgentError | None = None
        self._hung_up = False
        self._reason: LabError | None = None
        self.heard = self._asked = time.monotonic()
        # A guest that reads nothing must not block us for ever, not even within a frame.
        connection.settimeout(None)
        connection.setsockopt(
            socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _SEND_SECONDS, 0)
        )
        self._thread = threading.Thread(
            target=self._read, name=f"agent of guest {guest}", daemon=True
        )
        self._thread.start()

    # Reading.

    def _read(self) -> None:
        reader = FrameReader(self._session)
        while True:
            try:
                data = self._socket.recv(_READ_BYTES)
            except OSError:
                data = b""
            if not data:
                self._hung_up = True
                self._lose(AgentLost(f"guest {self.guest}: QEMU closed the agent's port"))
                return
            reader.feed(data)
            self.heard = time.monotonic()
            try:
                while (frame := reader.take()) is not None:
                    self._serve(frame)
            except ValueError as error:
                what = f"guest {self.guest}: its agent talks nonsense: {error}"
                self._lose(AgentLost(what, "start the guest anew"))
                self._hang_up()  # so that a thread that sends is not held up
                return
            self._wake()

    def _serve(self, frame: Frame) -> None:
        if frame.kind == Kind.HELLO:
            self._greeted(frame.channel, messages.checked(frame.object(), messages.HELLO))
        elif (operation := self._operations.get(frame.channel)) is not None:
            operation.serve(frame)
            if operation.over:
                self.forget(frame.channel)

    def _greeted(self, number: int, hello: dict[str, Any]) -> None:
        if not self.hello:
            self.hello = hello
        elif hello["instance"] != self.hello["instance"]:
            return self._lose(AgentLost(f"guest {self.guest}: its agent was started anew"))
        for sync in [sync for sync in list(self._expected) if sync <= number]:
            for operation in self._expected.pop(sync):
                # What ended was told before HELLO; see `frames`.
                if not operation.over and operation.number not in hello["channels"]:
                    self.forget(operation.number)
                    operation.lose()
        return None

    def _lose(self, why: AgentError) -> None:
        if self._lost is None:
            self._lost = why
        self._wake()

    def _wake(self) -> None:
        for waiting in tuple(self._waiting):
            waiting.put(None)

    # Sending.

    def send(self, frame: bytes) -> None:
        """Send a whole frame. Raises `AgentLost`, `AgentSilent`."""
        self.check()
        with self._sending:
            try:
                self._socket.sendall(frame)
                return
            except BlockingIOError:
                failure: AgentError = self.silent("its agent reads nothing")
            except OSError:
                failure = AgentLost(f"guest {self.guest}: QEMU closed the agent's port")
        self._lose(failure)
        self.check()

    def frame(self, kind: Kind, channel: int = 0, payload: bytes = b"") -> bytes:
        """Return an encoded frame of this session."""
        return frames.encode(self._session, kind, channel, payload)

    def open(
        self, request: dict[str, Any], what: str, result: messages.Table = messages.ANY
    ) -> Operation:
        """Start an operation, `what` in messages, with these fields in its result.

        Raises `AgentError`.
        """
        operation = Operation(self, next(self._channels), what, result)
        try:
            frame = frames.encode_object(self._session, Kind.OPEN, operation.number, request)
        except ValueError:
            raise AgentError(
                f"guest {self.guest}: the command is longer than {frames.PAYLOAD_BYTES} bytes",
                "copy it into the guest as a file",
            ) from None
        self._operations[operation.number] = operation
        self.send(frame)
        operation.asked = True
        return operation

    def forget(self, number: int) -> None:
        """Forget the operation with that number, so that its frames are ignored."""
        self._operations.pop(number, None)

    # Waiting.

    def check(self) -> None:
        """Raise the error of a lost connection; do nothing while it is well."""
        if self._lost is None:
            return
        if self._reason is None:
            looks = processes.LOOKS if self._hung_up else 0
            self._reason = processes.wait_for_cause(self.alarms, looks) or self._lost
        raise self._reason

    def silent(self, what: str) -> AgentSilent:
        """Return the error for a guest that hangs; `what` is the sign of it."""
        return AgentSilent(f"guest {self.guest}: {what}", "look at its console")

    def wait(self, ready: Callable[[], bool], deadline: float | None = None) -> bool:
        """Wait until `ready()`, which a frame makes true; return False at `deadline` (monotonic).

        Raises `AgentLost`, `AgentSilent`, or what an alarm reports.
        """
        woken: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._waiting.add(woken)
        try:
            return self._wait(ready, deadline, woken)
        finally:
            self._waiting.discard(woken)

    def _wait(
        self, ready: Callable[[], bool], deadline: float | None, woken: queue.SimpleQueue[None]
    ) -> bool:
        begin = time.monotonic()  # nobody listens between two waits: that is no silence
        while not ready():
            self.check()
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                return False
            try:
                woken.get(timeout=_SLICE if deadline is None else min(_SLICE, deadline - now))
            except queue.Empty:
                self._look_around(begin)
            now = time.monotonic()
            # Others' operations may be talkative: that says nothing of the one waited for.
            if now - max(begin, self._asked) > _REPEAT:
                self._asked = now
                self._nudge()
        return True

    def _look_around(self, begin: float) -> None:
        if (found := processes.first(self.alarms)) is not None:
            raise found
        if time.monotonic() - max(self.heard, begin) > self._silence:
            raise self.silent(f"no answer for {self._silence:.0f} s")

    def _sync(self) -> bytes:
        number = next(self._syncs)
        self._expected[number] = [each for each in list(self._operations.values()) if each.asked]
        return self.frame(Kind.SYNC, number)

    def _nudge(self) -> None:
        """Ask for a sign of life, unless somebody sends, whom a guest that hangs may hold up."""
        if self._sending.acquire(blocking=False):
            try:
                with contextlib.suppress(OSError):
                    self._socket.send(self._sync(), socket.MSG_DONTWAIT)
            finally:
                self._sending.release()

    def synchronise(self, timeout: float) -> None:
        """Agree with the agent where frames begin; waits for it to start. Raises `AgentError`."""
        begin = time.monotonic()
        deadline = begin + timeout
        first, second = self._sync(), self._sync()
        self.send(first)
        known = self.wait(lambda: bool(self.hello), min(deadline, begin + _FILLER_AFTER))
        if not known:
            self.send(frames.FILLER + second)
            self.heard = deadline  # silence is normal while the guest boots
            known = self.wait(lambda: bool(self.hello), deadline)
            self.heard = time.monotonic()
        if not known:
            raise self.silent(f"its agent does not answer within {timeout:.0f} s")
        spoken = self.hello.get("protocol")
        if spoken != PROTOCOL:
            raise AgentError(
                f"guest {self.guest}: its agent speaks protocol {spoken}, this tool {PROTOCOL}",
                "start the guest anew",
            )

    def close(self) -> None:
        """End the session: the agent stops what is still going on."""
        self.alarms.clear()
        self._lose(AgentLost(f"guest {self.guest}: the connection was closed"))
        self._hang_up()
        self._thread.join()

    def _hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
