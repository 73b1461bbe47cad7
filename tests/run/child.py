"""A test runner as a child process that ends with its parent, or after a time limit."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bluebridge.host_tools.processes.termination import termination_as_exception

ROOT = Path(__file__).resolve().parents[2]
SUITE = 40 * 60.0
"""Seconds for a whole suite. The longest takes 7 minutes on two idle cores, and a session of
pytest-xdist whose workers crash may wait for ever."""
ONE_TEST = 10 * 60.0
"""Seconds for one test in a second turn. pytest-timeout ends a test after 2 minutes; images and a
snapshot may have to be made before."""
TO_END = 60.0
"""Seconds for a child that is interrupted after its limit to end its guests and write reports."""


def run_module(words: Sequence[str], folder: Path = ROOT, limit: float = SUITE) -> int | None:
    """Run `python -m WORDS...` in `folder`; returns its exit status, None if `limit` ended it.

    The child leads a process group of its own. After `limit` seconds that gets SIGINT, and SIGKILL
    if the child has not ended `TO_END` seconds later. Ctrl-C, SIGTERM and SIGHUP are handed on; the
    child ends in its own order before this raises `KeyboardInterrupt` or `SystemExit`.
    """
    with (
        termination_as_exception(),
        subprocess.Popen(
            [sys.executable, "-m", *words], cwd=folder, stdin=subprocess.DEVNULL, process_group=0
        ) as child,
    ):
        try:
            return child.wait(limit)
        except subprocess.TimeoutExpired:
            _end(child)
            return None
        except KeyboardInterrupt:
            _hand_on(child)
            raise
        except SystemExit:
            child.terminate()
            raise


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the process group of a child: as Ctrl-C does, then by SIGKILL."""
    try:
        _signal(child, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(TO_END)
    finally:
        _signal(child, signal.SIGKILL)


def _hand_on(child: subprocess.Popen[bytes]) -> None:
    """Interrupt the process group of a child, again at each further Ctrl-C, until it has ended."""
    while child.returncode is None:
        with contextlib.suppress(KeyboardInterrupt):
            _signal(child, signal.SIGINT)
            child.wait()


def _signal(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to the group that a child leads; none if it has ended."""
    if child.poll() is None:
        os.killpg(child.pid, number)
