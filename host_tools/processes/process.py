"""Child processes and folders that never outlive the tool, even when it is killed with SIGKILL."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from bluebridge.host_tools.errors import LabError

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_libc = ctypes.CDLL(None, use_errno=True)


def _die_with(parent: int) -> Callable[[], None]:
    """Return what the child does between fork and exec: ask for SIGKILL when `parent` dies."""

    def prepare() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before the call above took effect
            os._exit(1)

    return prepare


def follow(parent: int) -> None:
    """Ask for SIGTERM when `parent`, who forked this process, dies; at once if it already has."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def outlive_parent() -> None:
    """Undo `follow`: the process may go on when its parent ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, 0, 0, 0, 0)


def spawn(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdout: int | IO[bytes] | None = subprocess.DEVNULL,
    stderr: int | IO[bytes] | None = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """Start a child in its own session that the kernel kills when this process dies.

    Must be called from the main thread: the kernel ties the death signal to the *thread* that
    forked, so a child started by a worker thread would die with that thread. `env` is added to the
    environment. Raises `LabError` when the program is missing.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("children are started from the main thread only")
    try:
        return subprocess.Popen(
            list(argv),
            env={**os.environ, **(env or {})},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,  # Ctrl-C is ours to pass on, not the terminal's
            preexec_fn=_die_with(os.getpid()),
        )
    except FileNotFoundError as error:
        raise LabError(f"{argv[0]} is missing", "run `bluebridge doctor`") from error


def stop(process: subprocess.Popen[bytes], grace: float = 5.0) -> int:
    """End a child: SIGTERM, then SIGKILL after `grace` seconds; returns its exit status."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            return process.wait(timeout=grace)
        except subprocess.TimeoutExpired:
            process.kill()
    return process.wait()


_SCRIPT = 'read -r _; rm -rf -- "$1"'


@contextlib.contextmanager
def removed_at_end(folder: Path, keep_open: Sequence[int] = ()) -> Iterator[None]:
    """Remove `folder` and all that is in it at the end of the block, or when this process ends.

    A shell waits for the end of a pipe that only this process writes to, then removes the folder.
    It inherits the descriptors `keep_open` and closes them after that.
    """
    shell = subprocess.Popen(
        ["/bin/sh", "-c", _SCRIPT, "bluebridge-remove-folder", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
        pass_fds=keep_open,
    )
    try:
        yield
    finally:
        assert shell.stdin is not None
        shell.stdin.close()
        if shell.wait():  # it was killed
            shutil.rmtree(folder, ignore_errors=True)
