"""One session with the agent: a thread reads frames, any thread may send and wait."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

from bluebridge.guest.agent import PROTOCOL, frames
from bluebridge.guest.agent.frames import Frame, FrameReader, Kind
from bluebridge.host_tools.agent.errors import AgentError, AgentLost, AgentSilent
from bluebridge.host_tools.agent.operation import Operation
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.processes import alarms
from bluebridge.host_tools.processes.alarms import Alarm

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
_END_SECONDS = 2.0
"""The seconds that the reading thread gets to end with the connection."""


class AgentConnection:
    """Frames to and from one agent; every wait looks at `alarms` and notices a hanging guest."""

    def __init__(self, guest: str, connection: socket.socket, silence: float = _SILENCE) -> None:
        """Take over a connected socket; `synchronise` must come next."""
        self.guest = guest
        self.alarms: list[Alarm] = []
        """The alarms whose messages explain a lost connection better than its own error."""
        self.changed = threading.Condition()
        """The lock of all operations, notified whenever a frame came in."""
        self.hello: dict[str, Any] = {}
        self._silence = silence
        self._socket = connection
        self._session = os.urandom(frames.SESSION_BYTES)
        self._operations: dict[int, Operation] = {}
        self._last_channel = 0
        self._last_sync = 0
        self._expected: dict[int, list[Operation]] = {}
        """The operations opened before each unanswered SYNC, by the number of the SYNC."""
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
            with self.changed:
                self.heard = time.monotonic()
                try:
                    while (frame := reader.take()) is not None:
                        self._serve(frame)
                except (ValueError, KeyError, TypeError) as error:
                    self._lose(AgentLost(f"guest {self.guest}: its agent talks nonsense: {error}"))
                    return
                self.changed.notify_all()

    def _serve(self, frame: Frame) -> None:
        if frame.kind == Kind.HELLO:
            self._greeted(frame.channel, frame.object())
        elif (operation := self._operations.get(frame.channel)) is not None:
            operation.serve(frame)
            if operation.over:
                del self._operations[frame.channel]

    def _greeted(self, number: int, hello: dict[str, Any]) -> None:
        if not self.hello:
            self.hello = hello
        elif hello["instance"] != self.hello["instance"]:
            return self._lose(AgentLost(f"guest {self.guest}: its agent was started anew"))
        for sync in [sync for sync in self._expected if sync <= number]:
            for operation in self._expected.pop(sync):
                # What ended was told before HELLO; see `frames`.
                if not operation.over and operation.number not in hello["channels"]:
                    self._operations.pop(operation.number, None)
                    operation.lose()
        return None

    def _lose(self, why: AgentError) -> None:
        with self.changed:
            if self._lost is None:
                self._lost = why
            self.changed.notify_all()

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

    def open(self, request: dict[str, Any], what: str) -> Operation:
        """Start an operation; `what` names it in messages. Raises `AgentError`."""
        with self.changed:
            self._last_channel += 1
            operation = Operation(self, self._last_channel, what)
            self._operations[operation.number] = operation
        try:
            frame = frames.encode_object(self._session, Kind.OPEN, operation.number, request)
        except ValueError:
            del self._operations[operation.number]
            raise AgentError(
                f"guest {self.guest}: the command is longer than {frames.PAYLOAD_BYTES} bytes",
                "copy it into the guest as a file",
            ) from None
        self.send(frame)
        operation.asked = True
        return operation

    def forget(self, number: int) -> None:
        """Forget the operation with that number, so that its frames are ignored."""
        with self.changed:
            self._operations.pop(number, None)

    # Waiting.

    def check(self) -> None:
        """Raise the error of a lost connection; do nothing while it is well."""
        if self._lost is None:
            return
        if self._reason is None:
            looks = alarms.LOOKS if self._hung_up else 0
            self._reason = alarms.wait_for_cause(self.alarms, looks) or self._lost
        raise self._reason

    def silent(self, what: str) -> AgentSilent:
        """Return the error for a guest that hangs; `what` is the sign of it."""
        return AgentSilent(f"guest {self.guest}: {what}", "look at its console")

    def wait(self, ready: Callable[[], bool], deadline: float | None = None) -> bool:
        """Wait, with `changed` held, until `ready()`; return False at `deadline` (monotonic).

        Raises `AgentLost`, `AgentSilent`, or what an alarm reports.
        """
        begin = time.monotonic()  # nobody listens between two waits: that is no silence
        while not ready():
            self.check()
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                return False
            patience = _SLICE if deadline is None else min(_SLICE, deadline - now)
            if not self.changed.wait(patience):
                self._look_around(begin)
            now = time.monotonic()
            # Others' operations may be talkative: that says nothing of the one waited for.
            if now - max(begin, self._asked) > _REPEAT:
                self._asked = now
                self._nudge()
        return True

    def _look_around(self, begin: float) -> None:
        if (found := alarms.first(self.alarms)) is not None:
            raise found
        if time.monotonic() - max(self.heard, begin) > self._silence:
            raise self.silent(f"no answer for {self._silence:.0f} s")

    def _sync(self) -> bytes:
        """Return the next SYNC frame; `changed` must be held."""
        self._last_sync += 1
        asked = [each for each in self._operations.values() if each.asked]
        self._expected[self._last_sync] = asked
        return self.frame(Kind.SYNC, self._last_sync)

    def _nudge(self) -> None:
        """Ask for a sign of life without blocking: the reading thread waits for our lock."""
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
        with self.changed:
            first, second = self._sync(), self._sync()
        self.send(first)
        with self.changed:
            known = self.wait(lambda: bool(self.hello), min(deadline, begin + _FILLER_AFTER))
        if not known:
            self.send(frames.FILLER + second)
            with self.changed:
                # Silence is normal while the guest boots.
                self.heard = deadline
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
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        # A signal that came while this thread took the lock may have left it taken for good.
        self._thread.join(_END_SECONDS)
