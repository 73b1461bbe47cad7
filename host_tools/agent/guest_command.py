"""A command in a guest: `Command` while it runs, `Completed` when it has ended."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from bluebridge.guest.agent.frames import PAYLOAD_BYTES, Kind
from bluebridge.host_tools.agent.connection import Operation
from bluebridge.host_tools.agent.errors import AgentCommandFailed, AgentError, CommandTimedOut

Sink = Callable[[str, bytes], None]
"""Called with "stdout" or "stderr" and a piece of output as it comes."""

_STREAMS = {Kind.DATA: "stdout", Kind.ERROR_DATA: "stderr"}
_GRACE = 20.0
"""The seconds beyond its time limit after which the guest, not the command, is to blame."""


@dataclass(frozen=True)
class Completed:
    """The status and output of a command that has ended."""

    status: int
    """The exit status; 128 + the number of the signal that ended the command."""
    stdout: bytes
    stderr: bytes
    signal: int | None
    seconds: float
    """The duration in seconds, measured in the guest."""

    @property
    def text(self) -> str:
        """The standard output as text without the last line's end."""
        return self.stdout.decode(errors="replace").rstrip("\n")


def spell(command: str | Sequence[str]) -> str:
    """Return a command as one would type it in a shell."""
    return command if isinstance(command, str) else shlex.join(command)


class Command:
    """A command that runs in a guest; `Agent.start` makes it."""

    def __init__(
        self, guest: str, spelling: str, operation: Operation, limit: float | None
    ) -> None:
        self.guest = guest
        self.spelling = spelling
        self._operation = operation
        self._limit = limit
        self._deadline = None if limit is None else time.monotonic() + limit + _GRACE
        self._timed_out = False

    def feed(self, source: bytes | BinaryIO) -> None:
        """Send `source` as standard input from a thread of its own, then its end."""
        threading.Thread(target=self._feed, args=(source,), daemon=True).start()

    def _feed(self, source: bytes | BinaryIO) -> None:
        try:
            if isinstance(source, bytes):
                self._operation.send(source)
            else:
                read = getattr(source, "read1", source.read)  # what is there, not a full block
                while (data := read(PAYLOAD_BYTES)) and self._operation.send(data):
                    pass
            self._operation.end({})
        except (AgentError, OSError, ValueError):
            return  # the side that waits gets the error; a closed source is an end like any other

    def output(self) -> Iterator[tuple[str, bytes]]:
        """Yield pieces of ("stdout" or "stderr", bytes) as they come, until the command ends.

        Raises `AgentRefused` when it could not be started, `AgentSilent` when the guest hangs.
        """
        while (piece := self._receive()) is not None:
            yield _STREAMS[piece[0]], piece[1]

    def _receive(self) -> tuple[Kind, bytes] | None:
        try:
            return self._operation.receive(self._deadline)
        except TimeoutError:
            raise AgentError(
                f"guest {self.guest}: no end of `{self.spelling}`, {_GRACE:.0f} s after its limit",
                "look at its console",
            ) from None

    def signal(self, number: signal.Signals) -> None:
        """Send the command's process group a signal."""
        self._operation.signal(number)

    def resize(self, size: os.terminal_size) -> None:
        """Give the command's terminal another size."""
        self._operation.resize(size.lines, size.columns)

    def kill(self) -> None:
        """Kill the command and all of its session; its further output is dropped."""
        self._operation.give_up()

    def wait(self, on_output: Sink | None = None, most: int | None = None) -> Completed:
        """Collect the command's output until it ends; with `on_output`, pass it on instead.

        Raises `CommandTimedOut` with what was printed; kills the command and raises `AgentError`
        when it prints more than `most` bytes. Any other exception, Ctrl-C too, kills it as well.
        """
        # Not lists of pieces, each of which could be one byte.
        collected = {"stdout": bytearray(), "stderr": bytearray()}
        size = 0
        try:
            for name, data in self.output():
                if on_output is not None:
                    on_output(name, data)
                    continue
                collected[name] += data
                size += len(data)
                if most is not None and size > most:
                    raise AgentError(
                        f"guest {self.guest}: `{self.spelling}` printed more than {most} bytes",
                        "send its output to a file in the guest",
                    )
        except BaseException:
            with contextlib.suppress(AgentError):  # without a connection the command has gone too
                self.kill()
            raise
        return self._completed(bytes(collected["stdout"]), bytes(collected["stderr"]))

    def _completed(self, stdout: bytes, stderr: bytes) -> Completed:
        result = self._operation.result()
        if result["timed_out"]:
            raise CommandTimedOut(self.guest, self.spelling, self._limit or 0, stdout, stderr)
        number = result["signal"]
        status = result["status"] if number is None else 128 + number
        return Completed(status, stdout, stderr, number, result["seconds"])

    def failed(self, completed: Completed) -> AgentCommandFailed:
        """Return the error for a status other than zero."""
        return AgentCommandFailed(
            self.guest, self.spelling, completed.status, completed.stdout, completed.stderr
        )
