"""The operation `run`: a process with its streams, its time limit, and the end of its session."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import time
from typing import IO, Any

from bluebridge.guest.agent.frames import PAYLOAD_BYTES, Kind
from bluebridge.guest.agent.loop import READ, WRITE, Timer
from bluebridge.guest.agent.served_port import Operation, OperationError, ServedPort

_ROUNDS = 10

_PIPE_BYTES = 256 * 1024
"""The size of the output pipes, large for few switches between command and agent."""
_DEATH_SECONDS = 10.0
"""The seconds that a killed process may take before it counts as stuck in the kernel."""


def kill_session(leader: int) -> None:
    """Send SIGKILL to the group and to the whole session of `leader`, background jobs too.

    `leader` must not have been waited for yet, so that its number is still its own. What made a
    session of its own (`setsid`) wants to stay and does.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
    for _ in range(_ROUNDS):  # a fork may be faster than one look
        members = session_members(leader)
        if not members:
            return
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def session_members(leader: int) -> list[int]:
    """Return the living processes whose session is `leader`."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if (found := _state(pid)) and found == (False, leader)]


def _state(pid: int) -> tuple[bool, int] | None:
    """Whether a process is dead or dying of SIGKILL, and its session; None when it is gone.

    proc(5): after the name in parentheses, which may hold anything, come state, parent, group and
    session; a killed process counts as dead only once it is a zombie.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            fields = stream.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return fields[0] in b"ZX", int(fields[3])


def spare_from_oom(pid: int, score: int) -> None:
    """Make the kernel's memory shortage choose (1000) or spare (-1000) a process, if it lets us."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/oom_score_adj", "w") as stream:
        stream.write(str(score))


class Run(Operation):
    """Runs `argv`, or a line for /bin/sh as `shell`; `cwd`, `env` (added), `stdin`, `timeout`.

    It ends when its first process ends and what was written by then is sent. What it leaves in
    the background goes on without an audience, except after a time limit, a signal from the host's
    CLOSE or the host's end: then the whole session is killed.
    """

    def __init__(self, port: ServedPort, number: int, request: dict[str, Any]) -> None:
        super().__init__(port, number)
        shell = request.get("shell")
        self._argv = ["/bin/sh", "-c", shell] if shell is not None else request["argv"]
        if not self._argv or not all(isinstance(word, str) for word in self._argv):
            raise OperationError("request", "a command is a list of words")
        self._cwd: str | None = request.get("cwd")
        self._env: dict[str, str] = request.get("env") or {}
        self._wants_input = bool(request.get("stdin"))
        self._timeout: float | None = request.get("timeout")
        self._timer: Timer | None = None
        self._timed_out = False
        self._pending: list[bytes] = []
        self._last_input = False
        self._input = -1
        self._input_file: IO[bytes] | None = None
        self._outputs: dict[int, Kind] = {}
        self._output_files: list[IO[bytes]] = []
        self._status: int | None = None

    def start(self) -> None:
        """Start the process. Raises `OSError` when there is no such program or folder."""
        if self._cwd is not None and not os.path.isdir(self._cwd):
            raise OperationError("ENOENT", f"{self._cwd}: no such folder")
        self._begin = time.monotonic()
        self._process = self._spawn({**os.environ, **self._env})
        spare_from_oom(self._process.pid, 0)
        self._pid_fd = os.pidfd_open(self._process.pid)
        self.watch(self._pid_fd, READ, self._exited)
        self.resume()
        if self._timeout is not None:
            self._timer = self.loop.later(self._timeout, self._out_of_time)

    def _spawn(self, env: dict[str, str]) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            self._argv,
            stdin=subprocess.PIPE if self._wants_input else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self._cwd,
            env=env,
            start_new_session=True,
            bufsize=0,
        )
        assert process.stdout is not None and process.stderr is not None
        for stream, kind in ((process.stdout, Kind.DATA), (process.stderr, Kind.ERROR_DATA)):
            with contextlib.suppress(OSError):  # a user may run out of pipe pages
                fcntl.fcntl(stream.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
            self._take_output(stream, kind)
        if process.stdin is not None:
            self._take_input(process.stdin)
        return process

    def _take_output(self, stream: IO[bytes], kind: Kind) -> None:
        """Forward what comes from `stream` as frames of `kind`."""
        os.set_blocking(stream.fileno(), False)
        self._outputs[stream.fileno()] = kind
        self._output_files.append(stream)

    def _take_input(self, stream: IO[bytes]) -> None:
        """Write the host's DATA to `stream`."""
        os.set_blocking(stream.fileno(), False)
        self._input_file = stream
        self._input = stream.fileno()

    # Output.

    def resume(self) -> None:
        """Watch the outputs while they may be sent, else let the pipes fill."""
        if self._status is not None:
            return self._drain()
        for fd in self._outputs:
            if not self.may_send():
                self.loop.remove(fd)
            elif not self.loop.watches(fd):
                self.watch(fd, READ, lambda _events, fd=fd: self._readable(fd))  # type: ignore[misc]
        return None

    def _readable(self, fd: int) -> None:
        while self.may_send() and self._forward(fd):
            pass
        self.resume()

    def _forward(self, fd: int) -> bool:
        """Send the bytes of one read; returns False when the pipe is empty or at its end."""
        try:
            data = self._read(fd, min(self.allowance, PAYLOAD_BYTES))
        except BlockingIOError:
            return False
        if data:
            self.emit(self._outputs[fd], data)
            return True
        self.loop.remove(fd)
        del self._outputs[fd]
        return False

    def _read(self, fd: int, count: int) -> bytes:
        """Read bytes, none at the end; raises `BlockingIOError` when there are none yet."""
        return os.read(fd, count)

    def _drain(self) -> None:
        """Send what the pipes still hold after the end, as far as allowed, then report."""
        for fd in list(self._outputs):
            while self.may_send() and self._forward(fd):
                pass
            if not self.may_send():
                return  # `resume` comes here again
        self._report()

    # Input.

    def data(self, payload: bytes) -> None:
        """Write to standard input; dropped once the process does not read it any more."""
        if self._input < 0:
            return self.consumed(len(payload))
        self._pending.append(payload)
        return self._feed(0)

    def end(self, summary: dict[str, Any]) -> None:
        """Close the standard input of the command."""
        self._last_input = True
        if self._input >= 0 and not self._pending:
            self._close_input()

    def _feed(self, _events: int) -> None:
        while self._pending:
            piece = self._pending[0]
            try:
                count = os.write(self._input, piece)
            except BlockingIOError:
                break
            except BrokenPipeError:
                return self._close_input()
            self.consumed(count)
            if count < len(piece):
                self._pending[0] = piece[count:]
            else:
                del self._pending[0]
        if self._pending:
            if not self.loop.watches(self._input):
                self.watch(self._input, WRITE, self._feed)
            return None
        self.loop.remove(self._input)
        if self._last_input:
            self._close_input()
        return None

    def _close_input(self) -> None:
        if self._input < 0:
            return
        assert self._input_file is not None
        self.loop.remove(self._input)
        self._input = -1
        # Raw, not buffered: closing writes nothing and so cannot fail or block.
        self._input_file.close()
        for piece in self._pending:
            self.consumed(len(piece))
        self._pending.clear()

    # The end.

    def signal(self, number: int) -> None:
        """Send a signal to the command's process group."""
        if self._status is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _out_of_time(self) -> None:
        self._timed_out = True
        kill_session(self._process.pid)
        self._timer = self.loop.later(_DEATH_SECONDS, self._immortal)

    def _immortal(self) -> None:
        self.fail(
            OperationError(
                "stuck", f"process {self._process.pid} is out of time but stuck in the kernel"
            )
        )

    def _exited(self, _events: int) -> None:
        """Note the end of the first process: no more input, and the outputs hold all there is."""
        if self._process.poll() is None:
            return
        self._status = self._process.returncode
        self.loop.remove(self._pid_fd)
        os.close(self._pid_fd)
        if self._timer is not None:
            self._timer.cancel()
        self._close_input()
        for fd in self._outputs:
            self.loop.remove(fd)
        self._drain()

    def _report(self) -> None:
        assert self._status is not None
        if self._timed_out:
            self._close_outputs()
        else:
            self._leave_outputs()
        self.done(
            status=self._status if self._status >= 0 else None,
            signal=-self._status if self._status < 0 else None,
            timed_out=self._timed_out,
            seconds=round(time.monotonic() - self._begin, 3),
        )

    def _close_outputs(self) -> None:
        for fd in self._outputs:
            self.loop.remove(fd)
        self._outputs.clear()
        for stream in self._output_files:
            stream.close()
        self._output_files.clear()

    def _leave_outputs(self) -> None:
        """Close the pipes, but read on what processes in the background still write to."""
        for fd in self._outputs:
            leftover = os.dup(fd)  # closing the pipe would kill whoever writes to it
            self.loop.add(
                leftover,
                READ,
                lambda _events, fd=leftover: self._discard(fd),  # type: ignore[misc]
            )
        self._close_outputs()

    def _discard(self, fd: int) -> None:
        try:
            data = self._read(fd, PAYLOAD_BYTES)
        except BlockingIOError:
            return
        if not data:
            self.loop.remove(fd)
            os.close(fd)

    def abort(self) -> None:
        """Kill the process and its session; `_exited` notices its end."""
        if not hasattr(self, "_process"):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._close_input()
        self._close_outputs()
        if self._status is None:
            self._timed_out = True  # nothing of it is left behind
            kill_session(self._process.pid)
