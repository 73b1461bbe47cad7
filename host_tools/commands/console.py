"""`bluebridge console`: a terminal joined with a guest's serial console."""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
import socket
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator
from pathlib import Path

from bluebridge.host_tools import processes
from bluebridge.host_tools.agent import AgentError
from bluebridge.host_tools.errors import LabError, UsageError
from bluebridge.host_tools.keeper import guests
from bluebridge.host_tools.keeper.guests import Guest
from bluebridge.host_tools.keeper.registry import Lock

_ESCAPE = b"\x1d"  # Ctrl-], as in telnet
_AGENT_SECONDS = 5.0


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

    with processes.handling((signal.SIGWINCH,), handle):
        yield


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("guest", metavar="GUEST")


def main(options: argparse.Namespace) -> int:
    """Join terminal and console until Ctrl-]; returns 0. Raises `LabError` when the guest ends."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("a console needs a terminal", "`bluebridge run` does not")
    guest = guests.find(options.guest)
    guest.need_guest()
    guest.check()
    with _alone(guest), _connected(guest) as console:
        _adapt(guest)
        print(f"console of guest {guest.name}; Ctrl-] leaves it", flush=True)
        with raw(), resizing(lambda _size: _adapt(guest)):
            console.sendall(b"\n")  # have the shell show where it is
            left = _relay(console)
        print()
    if not left:
        # The keeper knows the reason after a moment.
        closed = LabError(f"guest {guest.name}: QEMU closed its console")
        raise processes.wait_for_cause([guest.trouble]) or closed
    return 0


@contextlib.contextmanager
def _alone(guest: Guest) -> Iterator[None]:
    """Hold a lock on the console: QEMU serves one client and lets others wait without a message."""
    with Lock(Path(f"{guest.record.console}.lock"), create=True) as lock:
        if not lock.take():
            raise LabError(
                f"guest {guest.name}: somebody else is at its console",
                f"Ctrl-] leaves it there; transcript: {guest.record.transcript}",
            )
        yield


@contextlib.contextmanager
def _connected(guest: Guest) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as console:
        try:
            console.connect(guest.record.console)
        except OSError as error:
            guest.check()
            raise LabError(
                f"guest {guest.name}: its console does not answer: {error.strerror}"
            ) from None
        yield console


def _adapt(guest: Guest) -> None:
    """Tell the guest's terminal the size of ours, and to echo.

    This goes by the agent, since the console may be busy. A guest that cannot be told has a console
    all the same.
    """
    columns, lines = size()
    command = ["stty", "-F", "/dev/ttyS0", "echo", "cols", str(columns), "rows", str(lines)]
    with contextlib.suppress(AgentError), guest.agent(_AGENT_SECONDS) as agent:
        agent.run(command, _AGENT_SECONDS)


def _relay(console: socket.socket) -> bool:
    """Pass bytes both ways; returns whether the user left, rather than the guest."""
    keyboard, screen = sys.stdin.fileno(), sys.stdout.fileno()
    while True:
        readable, _, _ = select.select([keyboard, console], [], [])
        if console in readable:
            try:
                data = console.recv(65536)
            except ConnectionError:
                return False
            if not data:
                return False
            _write(screen, data)
        if keyboard in readable:
            typed = os.read(keyboard, 1024)
            before, escape, _ = typed.partition(_ESCAPE)
            with contextlib.suppress(ConnectionError):
                console.sendall(before)
            if escape or not typed:
                return True


def _write(screen: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(screen, rest) :]
