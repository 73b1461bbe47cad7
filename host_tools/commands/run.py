"""`bluebridge run`: runs a command in a guest, with its streams and its exit status."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import BinaryIO

from bluebridge.host_tools.agent import (
    Agent,
    AgentError,
    AgentRefused,
    AgentSilent,
    CommandTimedOut,
)
from bluebridge.host_tools.agent.guest_command import Command
from bluebridge.host_tools.commands import console
from bluebridge.host_tools.errors import LabError, UsageError
from bluebridge.host_tools.keeper import guests
from bluebridge.host_tools.keeper.guests import Guest
from bluebridge.host_tools.processes import handling

TIMED_OUT = 124
"""The exit status for a command that ran out of time, the same as that of timeout(1)."""
FAILED = 125
"""The exit status when bluebridge, not the command, failed, as with env(1) and timeout(1)."""
NOT_EXECUTABLE = 126
NOT_FOUND = 127
_VALUED = ("--timeout",)
"""The options that take a value."""
_GRACE = 3.0
"""The seconds that a command may take to end after Ctrl-C."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command, apart from the command for the guest (see `split`)."""
    parser.usage = "bluebridge run [-h] [-t] [--timeout SECONDS] GUEST -- COMMAND [ARGUMENT ...]"
    parser.description = (
        "Run a command in a guest with its output, its input (unless that is a "
        "terminal) and its exit status: 128+N if signal N ended it, 124 after the time limit, 127 "
        "for an unknown command, 125 if bluebridge itself failed, 2 for a wrong command line. "
        "One word is a line for the guest's shell, several are a command and its arguments."
    )
    parser.add_argument(
        "-t", "--tty", action="store_true",
        help="give the command a terminal: for gdb, top, an editor, a shell",
    )  # fmt: skip
    parser.add_argument("guest", metavar="GUEST")
    parser.add_argument(
        "--timeout", type=_seconds, metavar="SECONDS", help="end the command then (default: never)"
    )


def split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split words into those of `run` itself and the command for the guest.

    The command begins after `--`, or after the guest's name.
    """
    words = list(words)
    named = False
    position = 0
    while position < len(words):
        word = words[position]
        if word == "--":
            return words[:position], words[position + 1 :]
        if word.startswith("-"):
            position += 1 if word not in _VALUED else 2
            continue
        if named:
            break
        named = True
        position += 1
    return words[:position], words[position:]


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no number of seconds above 0")
    return seconds


def main(options: argparse.Namespace) -> int:
    """Run the command; return its exit status, or `TIMED_OUT`, `FAILED` and so on."""
    try:
        if not options.words:
            raise UsageError("no command", "write `bluebridge run GUEST -- COMMAND`")
        if options.tty:
            console.check()
        guest = guests.find(options.guest)
        try:
            run = _run_in_terminal if options.tty else _run
            with guest.agent() as agent:
                try:
                    return run(agent, options.words, options.timeout)
                except AgentSilent as error:
                    raise _explained(guest, error) from None
                except LabError as error:
                    error.aloud = True  # the stack of a panic that ended the command
                    raise
        except AgentRefused as error:
            return _refused(guest, options.words[0], error)
        except CommandTimedOut as error:
            # What it printed was shown as it came.
            return _give_up(guest, error.what, TIMED_OUT)
    except UsageError:
        raise
    except LabError as error:
        error.status = FAILED
        raise


def _run(agent: Agent, words: list[str], timeout: float | None) -> int:
    command = agent.start(_command(words), timeout, stdin=_input())
    with _ctrl_c(command):
        return command.wait(_print).status


def _run_in_terminal(agent: Agent, words: list[str], timeout: float | None) -> int:
    """Run the command in a terminal, which passes everything typed to it, Ctrl-C too."""
    command = agent.start(
        _command(words),
        timeout,
        env={"TERM": os.environ.get("TERM", "linux")},
        stdin=open(0, "rb", buffering=0, closefd=False),  # noqa: SIM115 (as long as we run)
        terminal=console.size(),
    )
    with console.raw(), console.resizing(command.resize):
        return command.wait(_print).status


def _command(words: list[str]) -> str | list[str]:
    """Return one word as a line for the guest's shell, several as a command with its arguments."""
    return words[0] if len(words) == 1 else words


def _input() -> BinaryIO | None:
    """Return standard input, unbuffered since a thread reads it; None if a terminal or closed."""
    try:
        return None if os.isatty(0) else open(0, "rb", buffering=0, closefd=False)
    except OSError:
        return None


def _print(stream: str, data: bytes) -> None:
    target = sys.stdout if stream == "stdout" else sys.stderr
    target.buffer.write(data)
    target.buffer.flush()


@contextmanager
def _ctrl_c(command: Command) -> Iterator[None]:
    """Pass Ctrl-C on to the guest; a command that does not obey, or a second one, kills it."""

    def interrupt() -> None:
        try:
            command.signal(signal.SIGINT)
            threading.Event().wait(_GRACE)
            command.signal(signal.SIGKILL)
        except AgentError:
            return  # the waiting thread gets the same error

    def handle(_number: int, _frame: FrameType | None) -> None:
        # In a thread: the one that was interrupted may hold the connection.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        threading.Thread(target=interrupt, daemon=True).start()

    with handling((signal.SIGINT,), handle):
        yield


def _explained(guest: Guest, error: AgentSilent) -> LabError:
    """Return the error of a guest that hangs, with the reason that its console shows."""
    pair = guest.entry.record()
    remark = pair.guest(guest.name).remark if pair else ""
    what = f"{error.what}; {remark}" if remark else error.what
    return LabError(what, f"read {guest.record.transcript}")


def _refused(guest: Guest, word: str, error: AgentRefused) -> int:
    word = shlex.quote(word)
    if error.code == "ENOENT":
        return _give_up(guest, f"guest {guest.name}: no command {word}", NOT_FOUND)
    if error.code == "EACCES":
        return _give_up(guest, f"guest {guest.name}: {word} is not executable", NOT_EXECUTABLE)
    raise error


def _give_up(guest: Guest, why: str, status: int) -> int:
    print(f"bluebridge: {why}; console: {guest.record.transcript}", file=sys.stderr)
    return status
