"""The operation `run` with a pseudo-terminal as the command's standard streams."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import subprocess
import termios
from typing import Any

from bluebridge.guest.agent.frames import Kind
from bluebridge.guest.agent.run import Run
from bluebridge.guest.agent.served_port import ServedPort

_CONTROL_D = b"\x04"
_MOST = 0xFFFF


class TerminalRun(Run):
    """A `Run` at a terminal, `tty` {`rows`, `columns`}: output and errors are one stream of DATA.

    What the host sends is typed: Ctrl-C becomes a signal by the terminal's own rules.
    """

    def __init__(self, port: ServedPort, number: int, request: dict[str, Any]) -> None:
        super().__init__(port, number, request)
        size = request["tty"]
        self._size = int(size["rows"]), int(size["columns"])
        self._master = -1

    def _spawn(self, env: dict[str, str]) -> subprocess.Popen[bytes]:
        master, slave = os.openpty()
        self._master = master
        try:
            self.resize(*self._size)
            process = subprocess.Popen(
                self._argv,
                stdin=slave,
                stdout=slave,
                stderr=slave,
                cwd=self._cwd,
                env=env,
                start_new_session=True,
                preexec_fn=_take_terminal,
            )
        except BaseException:
            os.close(master)
            self._master = -1
            raise
        finally:
            os.close(slave)
        # One description for each direction: the loop watches a descriptor for one of them.
        self._take_input(os.fdopen(os.dup(master), "wb", buffering=0))
        self._take_output(os.fdopen(master, "rb", buffering=0), Kind.DATA)
        return process

    def _read(self, fd: int, count: int) -> bytes:
        try:
            return super()._read(fd, count)
        except OSError as error:
            if error.errno == errno.EIO:  # nobody has the terminal open any more
                return b""
            raise

    def end(self, summary: dict[str, Any]) -> None:
        """Type the character for the end of input."""
        if self._input >= 0:
            with contextlib.suppress(OSError):
                os.write(self._input, _CONTROL_D)

    def resize(self, rows: int, columns: int) -> None:
        """Resize the terminal; the kernel tells the command by SIGWINCH."""
        if self._master >= 0:
            size = (min(max(rows, 0), _MOST), min(max(columns, 0), _MOST))
            termios.tcsetwinsize(self._master, size)

    def _close_outputs(self) -> None:
        self._master = -1
        super()._close_outputs()

    def _leave_outputs(self) -> None:
        """Close the terminal with the command, which hangs up on background processes."""
        self._close_outputs()


def _take_terminal() -> None:
    """Make standard input the controlling terminal of the new process, a session leader."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
