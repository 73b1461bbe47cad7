"""Which program of this machine drives a function: a lock beside the function's socket."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import shlex
import signal
from pathlib import Path
from typing import NamedTuple

from bluebridge.printable import printable

_SUFFIX = ".holder"
_GRACE = 2.0


class Holder(NamedTuple):
    """A program that drives a function: its process id and its command line."""

    pid: int
    command: str

    def __str__(self) -> str:
        return f"process {self.pid} ({self.command})"


def hold(socket: Path) -> int | None:
    """Take the function at `socket` for this process; return the descriptor that holds it.

    Return None when another program has it. Closing the descriptor gives it back, and so does the
    end of the process.
    """
    lock = os.open(f"{socket}{_SUFFIX}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)
    return lock


def holder(socket: Path) -> Holder | None:
    """Return who drives the function at `socket`; None when nobody does."""
    try:
        lock = os.open(f"{socket}{_SUFFIX}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(lock) as stream:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = int(stream.read() or 0)
            return Holder(pid, _command(pid))
    return None


def end(program: Holder) -> None:
    """End a program, by SIGKILL if it is still there after a moment; return when it is gone."""
    with contextlib.suppress(ProcessLookupError):
        process = os.pidfd_open(program.pid)
        try:
            signal.pidfd_send_signal(process, signal.SIGTERM)
            if not select.select([process], [], [], _GRACE)[0]:
                signal.pidfd_send_signal(process, signal.SIGKILL)
                select.select([process], [], [])
        finally:
            os.close(process)


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return "it is just ending"
    program, *rest = words.rstrip("\0").split("\0")
    return printable(shlex.join([Path(program).name, *rest]))
