"""Child processes that never outlive the tool, alarms while it waits, signals as exceptions."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import IO

from bluebridge.host_tools.errors import LabError

Alarm = Callable[[], LabError | None]
"""Returns the error when something is wrong, else None.

It must be cheap, since a wait calls it several times a second.
"""

LOOKS = 500
"""The number of looks of `wait_for_cause`, in 10 seconds.

Looks are counted, not seconds: these pass as well while the host gives this process no time.
"""
_PAUSE = 0.02
"""The seconds between two looks."""

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_libc = ctypes.CDLL(None, use_errno=True)

_SCRIPT = 'read -r _; rm -rf -- "$1"'


def first(alarms: Iterable[Alarm]) -> LabError | None:
    """Return the message of the first alarm that has one; causes stand before their effects."""
    return next((found for alarm in alarms if (found := alarm()) is not None), None)


def wait_for_cause(alarms: Sequence[Alarm], looks: int = LOOKS) -> LabError | None:
    """Return the first error of an alarm, which is why QEMU hung up; None if none comes in time.

    A process closes its sockets a little before its end can be seen.
    """
    found = first(alarms)
    while found is None and alarms and looks > 0:
        time.sleep(_PAUSE)
        found = first(alarms)
        looks -= 1
    return found


class SideBySide:
    """Runs actions in threads; each should have `trouble` among the alarms of its waits."""

    def __init__(self) -> None:
        self._failure: Exception | None = None
        self._trouble: LabError | None = None

    def trouble(self) -> LabError | None:
        """Return the alarm that another action has failed; None if none has."""
        return self._trouble

    def run(self, actions: Sequence[Callable[[], object]]) -> None:
        """Run `actions` at the same time, the last in this thread. Raises the first failure.

        Failures of an earlier run are forgotten: a guest may be restarted after a vain attempt.
        """
        self._failure = self._trouble = None
        threads = [
            threading.Thread(target=self._guarded, args=(action,)) for action in actions[:-1]
        ]
        for thread in threads:
            thread.start()
        try:
            self._guarded(actions[-1])
        except BaseException:  # Ctrl-C: the threads must end before their guests do
            self._trouble = self._trouble or LabError("stopped")
            raise
        finally:
            for thread in threads:
                thread.join()
        if self._failure is not None:
            raise self._failure

    def _guarded(self, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception as error:
            if self._failure is None:
                self._failure = error
                self._trouble = LabError(f"the other side failed: {error}")


def _die_with(parent: int, confine: Callable[[], None] | None) -> Callable[[], None]:
    """Return what the child does between fork and exec: ask for SIGKILL when `parent` dies."""

    def prepare() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before the call above took effect
            os._exit(1)
        if confine is not None:
            confine()

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
    confine: Callable[[], None] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a child in its own session that the kernel kills when this process dies.

    Must be called from the main thread: the kernel ties the death signal to the *thread* that
    forked, so a child started by a worker thread would die with that thread. `env` is added to the
    environment, and the child calls `confine` before it starts the program. Raises `LabError` when
    the program is missing or `confine` fails.
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
            preexec_fn=_die_with(os.getpid(), confine),
        )
    except FileNotFoundError as error:
        raise LabError(f"{argv[0]} is missing", "run `bluebridge doctor`") from error
    except subprocess.SubprocessError as error:  # `confine` raised, in the child
        raise LabError(f"{argv[0]} could not be confined", "run `bluebridge doctor`") from error


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


@contextlib.contextmanager
def handling(
    numbers: Iterable[signal.Signals], handler: Callable[[int, FrameType | None], object]
) -> Iterator[None]:
    """Within the `with` block `handler` is called for these signals."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@contextlib.contextmanager
def termination_as_exception() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into `SystemExit` in the main thread, so that `with` blocks end."""

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    main = threading.current_thread() is threading.main_thread()
    with handling((signal.SIGTERM, signal.SIGHUP) if main else (), leave):
        yield
