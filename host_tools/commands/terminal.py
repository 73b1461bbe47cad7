"""The user's terminal while it is connected to a program in a guest."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator

from bluebridge.host_tools.agent import AgentError
from bluebridge.host_tools.errors import UsageError


def check() -> None:
    """Raise `UsageError` unless standard input and output are a terminal."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("--tty needs a terminal at both ends", "leave out -t")


def size() -> os.terminal_size:
    """Return the columns and lines of the terminal."""
    return os.get_terminal_size(sys.stdout.fileno())


@contextlib.contextmanager
def raw() -> Iterator[None]:
    """Within the `with` block the terminal passes on every key at once and echoes nothing."""
    before = termios.tcgetattr(sys.stdin)
    tty.setraw(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


@contextlib.contextmanager
def resizing(tell: Callable[[os.terminal_size], None]) -> Iterator[None]:
    """Within the `with` block call `tell` with each new size of the terminal."""

    def adapt() -> None:
        with contextlib.suppress(AgentError, OSError):  # whoever waits gets the same error
            tell(size())

    def handle(*_: object) -> None:
        # In a thread: the one that was interrupted may hold the connection.
        threading.Thread(target=adapt, daemon=True).start()

    before = signal.signal(signal.SIGWINCH, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)
