"""`bluebridge up`: a pair that stays, with a console to each guest."""

from __future__ import annotations

import os
import re
import select
import socket
import sys
import termios
import tty

from host_tools.console import FAILURES
from host_tools.errors import LabError
from host_tools.lab import LabConfig, Pair
from host_tools.progress import Progress
from host_tools.vm import Vm

_ESCAPE = b"\x1d"  # Ctrl-], as in telnet
_HELP = "a, b: console of that guest (leave it with Ctrl-])   status   quit"


def up(config: LabConfig, progress: Progress) -> int:
    """Boot a pair and keep it until `quit`, end of input, or a signal. Returns the exit status."""
    with Pair(config, progress) as pair:
        for machine in pair.machines:
            machine.console.run("stty echo", timeout=30)
            machine.console.close()
        _describe(pair)
        try:
            _converse(pair)
        except KeyboardInterrupt:
            print()
        progress("ending guests and server")
    return 0


def _describe(pair: Pair) -> None:
    print(f"bus log and transcripts: {pair.logs}")
    for machine in pair.machines:
        print(f"console of {machine.name}: {machine.console_socket}")
    print("  from another terminal: socat -,raw,echo=0,escape=0x1d UNIX-CONNECT:SOCKET")
    print(_HELP, flush=True)


def _converse(pair: Pair) -> None:
    """Read commands from standard input; at its end just watch until a signal comes."""
    scanners = [_Scanner(machine) for machine in pair.machines]
    listening = True
    _prompt()
    while True:
        readable, _, _ = select.select([sys.stdin] if listening else [], [], [], 0.5)
        _check(pair, scanners)
        if not readable:
            continue
        line = sys.stdin.readline()
        listening = bool(line)
        if line.strip() in ("quit", "exit", "q"):
            return
        if listening:
            _obey(pair, line.strip())
            _prompt()


def _prompt() -> None:
    if sys.stdin.isatty():
        print("bluebridge> ", end="", flush=True)


def _obey(pair: Pair, word: str) -> None:
    if word in ("a", "b"):
        attach(pair.a if word == "a" else pair.b)
    elif word == "status":
        print(f"server {pair.server.pid}, " + ", ".join(f"{m.name} {m.pid}" for m in pair.machines))
    elif word:
        print(_HELP)


class _Scanner:
    """Reads what is new in a transcript and looks for a dying kernel."""

    def __init__(self, machine: Vm) -> None:
        self._machine = machine
        self._position = machine.transcript.stat().st_size

    def trouble(self) -> LabError | None:
        """The first bad sign since the last look, if any."""
        with self._machine.transcript.open("rb") as stream:
            stream.seek(self._position)
            new = stream.read()
        # Stop before an unfinished line, so that a pattern cut in two is seen next time.
        whole = new[: new.rfind(b"\n") + 1]
        self._position += len(whole)
        text = whole.decode(errors="replace")
        for pattern, meaning in FAILURES:
            if (match := re.search(pattern, text)) is not None:
                return LabError(
                    f"guest {self._machine.name}: {meaning} ({match.group(0).strip()})",
                    f"read {self._machine.transcript}",
                )
        return None


def _check(pair: Pair, scanners: list[_Scanner]) -> None:
    """Raise when the server, a QEMU or a guest's kernel has died."""
    watched = [scanner.trouble for scanner in scanners] + [m.trouble for m in pair.machines]
    for look in (*watched, pair.server.trouble):
        if (trouble := look()) is not None:
            raise trouble


def attach(machine: Vm) -> None:
    """Join the terminal with a guest's console until Ctrl-] or the guest's end."""
    if not sys.stdin.isatty():
        raise LabError("a console needs a terminal", "attach to its socket with socat instead")
    with socket.socket(socket.AF_UNIX) as console:
        console.connect(str(machine.console_socket))
        console.sendall(b"\n")
        before = termios.tcgetattr(sys.stdin)
        tty.setraw(sys.stdin)
        try:
            _relay(console)
        finally:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
    print()


def _relay(console: socket.socket) -> None:
    keyboard, screen = sys.stdin.fileno(), sys.stdout.fileno()
    while True:
        readable, _, _ = select.select([keyboard, console], [], [])
        if console in readable:
            data = console.recv(4096)
            if not data:
                return
            os.write(screen, data)
        if keyboard in readable:
            typed = os.read(keyboard, 1024)
            if _ESCAPE in typed:
                return
            console.sendall(typed)
